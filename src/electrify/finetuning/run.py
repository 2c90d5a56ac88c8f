"""`electrify finetune`: every model on every task with every seed, each run once, and the report of
them.

The output folder holds finetune.json (the settings that all runs share), scores.jsonl (one run a
line), predictions/, models/ and the report. An interrupted command resumes: a run whose line and
files are there is not repeated.
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
import re
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ..errors import UserError, need
from ..exporting.loading import load_config
from ..exporting.places import FROZEN, METADATA, RANDOM, SCORES
from ..files import claim, json_text, read_json, text_hash, write
from ..progress import Progress, say
from ..train.machine import choose_threads, computing_with, pick_device
from ..train.start import content_of
from . import loop, metrics
from .baselines import BASELINE, MAJORITY, OVERLAP, TFIDF, answer, applies
from .known import read_asked
from .one_run import Outcome, drawn_examples, expected_updates, finetune_one
from .options import FinetuneConfig, FinetuneSettings
from .report import Report, draw_scores, picture, report_of
from .tasks import TaskData

ANOTHER = "choose another --output-dir"
SETTINGS = "finetune.json"
"""Marks the folder as one of `finetune`."""
PREFIXES = (RANDOM, FROZEN, BASELINE)
"""Of models that are only for comparison: they are not saved, and submit nothing."""
OF_UPDATES = ("learning_rate", "layerwise_lr_decay", "num_train_epochs", "max_steps")
OF_UPDATES += ("min_train_steps", "eval_steps", "load_best_model_at_end", "early_stopping_patience")
"""Settings that a probe has by default, whatever those of fine-tuning are."""
Key = tuple[str, str, int, str]


@dataclass(frozen=True)
class Run:
    """A model on a task with a seed and settings. point: the settings that a search varies, as
    text. hashes: of the model's files and of the examples, on which the scores depend. saves:
    whether the model is saved."""

    model: str
    task: TaskData
    seed: int
    point: str
    settings: FinetuneSettings
    hashes: dict[str, str]
    out: Path
    saves: bool

    @property
    def prefix(self) -> str:
        return divided(self.model)[0]

    @property
    def key(self) -> Key:
        return self.model, self.task.name, self.seed, self.point

    @property
    def name(self) -> str:
        return file_name(f"{self.task.name}-seed{self.seed}" + f"-{self.point}" * bool(self.point))

    @property
    def predictions(self) -> Path:
        return self.out / "predictions" / file_name(self.model) / self.name

    @property
    def save_to(self) -> Path | None:
        name = f"{file_name(self.task.name)}-{file_name(self.model)}"
        return self.out / "models" / name if self.saves else None


def finetune(options: FinetuneConfig, tasks: list[TaskData] | None = None) -> Report:
    """Fine-tunes every model on every task with every seed. Runs that are in the output folder
    already are not repeated.

    With `hyperparameter_search` it does so for every combination of settings, and the report has
    each model's best on each task by the median of the first metric. Such a best is chosen on the
    examples on which it is reported, so it is too optimistic; search.md holds the whole grid.

    tasks: those of the options, if they have been read already.

    Raises:
        UserError: bad data, models or options, or an `output_dir` that holds runs with others.
    """
    tasks = read_asked(options) if tasks is None else tasks
    must_fit(options, tasks)
    for task in tasks:
        for note in task.notes:
            say(f"{task.name}: {note}")
    out = options.folder
    with claim(out, SETTINGS):
        shared = shared_settings(options)
        must_be_the_same(out, shared)
        runs = list(runs_of(options, tasks))
        done = read_records(out)
        todo = [run for run in runs if not is_done(run, done.get(run.key))]
        # Baselines first, and then the probes: they take seconds.
        todo.sort(key=lambda run: (run.prefix != BASELINE, run.prefix != FROZEN))
        if len(todo) < len(runs):
            say(f"{len(runs) - len(todo)} of {len(runs)} runs are done already: {out / SCORES}")
        if todo:
            run_all(todo, done, options, shared)
        names = {task.name: task.score_names for task in tasks}
        report = report_of([done[run.key] for run in runs], names, settings=shared)
        saved = tuple(run.save_to for run in runs if run.save_to is not None)
        report = dataclasses.replace(report, saved=saved)
        report.write(out)
        models = link_model(out)
        if todo and models:
            say(f"saved for `electrify predict`: {', '.join(map(str, models))}")
        if png := picture(partial(draw_scores, report=report)):
            write(out / "report.png", png)
        if options.predict_test:
            submit(runs, done)
    return report


# ------------------------------------------------------------------ what is run


def must_fit(options: FinetuneConfig, tasks: list[TaskData]) -> None:
    """Raises UserError for an option that none of the tasks would use, and if a library is
    missing."""
    kinds = {task.kind for task in tasks}
    for _, settings in options.grid:
        classed = kinds - {"regression", "answering"} or settings.class_weights == "none"
        need(bool(classed), "class_weights is for classes and tags. No task has any")
        asked = "answering" in kinds and settings.frozen_encoder != "none"
        need(not asked, "frozen_encoder is not for questions")
    tested = any(task.test for task in tasks) or not options.predict_test
    need(tested, "predict_test: no task has a test set of GLUE (test.tsv)")
    if kinds - {"tagging", "answering"}:
        metrics.require()


def models_of(options: FinetuneConfig) -> list[str]:
    """The models and baselines to run, each once."""
    names, settings = list(options.models), options.settings
    own = [name for name in names if not name.startswith(PREFIXES)]
    if options.random_baseline:
        names += [RANDOM + name for name in own]
    if options.adds_baselines:
        names += [MAJORITY, TFIDF, OVERLAP]
        if settings.frozen_encoder == "none" and settings.protocol == "electrify":
            names += [FROZEN + name for name in own]
    return list(dict.fromkeys(names))


def runs_of(options: FinetuneConfig, tasks: list[TaskData]) -> Iterator[Run]:
    """All runs of a request, also those that are done."""
    of = {t.name: repr((t.kind, t.labels, t.train, t.validation, t.also)) for t in tasks}
    data = {name: text_hash(examples)[:16] for name, examples in of.items()}
    names = models_of(options)
    # Nobody wants the model of a row that is only a comparison. If only models with random weights
    # are asked for, they are what the user wants.
    own = any(not name.startswith(PREFIXES) for name in names)
    for model in names:
        prefix, name = divided(model)
        if prefix != BASELINE:
            load_config(name, causal=True)  # of the Hub: now its cache knows the commit
        weights = model if prefix == BASELINE else prefix + content_of(name)
        wanted = prefix not in (PREFIXES if own else (BASELINE,))
        for task in (task for task in tasks if applies(model, task)):
            hashes = {"weights": weights, "data": data[task.name]}
            for point, settings in options.grid:
                if prefix == FROZEN:
                    settings = probing(settings)
                for seed in range(options.seed, options.seed + options.seeds):
                    saves = options.saves_model and wanted and seed == options.seed
                    yield Run(model, task, seed, point, settings, hashes, options.folder, saves)


def probing(settings: FinetuneSettings) -> FinetuneSettings:
    """The settings of a probe on the last layer, from those of fine-tuning."""
    usual = {name: getattr(FinetuneSettings(), name) for name in OF_UPDATES}
    return dataclasses.replace(settings, frozen_encoder="last", **usual)


def divided(model: str) -> tuple[str, str]:
    """The prefix of a model's name, and the folder or the name on the Hub."""
    prefix = next((p for p in PREFIXES if model.startswith(p)), "")
    return prefix, model.removeprefix(prefix)


def file_name(label: str) -> str:
    """A label as the name of a file or folder, with a hash where that loses something."""
    readable = re.sub(r"[^\w.=-]+", "-", label.replace("..", "")).strip("./-")[:80]
    if readable == label:
        return label
    return f"{readable}-{text_hash(label)[:6]}"


# ------------------------------------------------------------------ what is done


def shared_settings(options: FinetuneConfig) -> dict[str, Any]:
    """What all runs of an output folder share. The metrics are among it: records hold no others,
    and the first one chooses an evaluation."""
    settings = dataclasses.asdict(options.settings) | {"metrics": list(options.metrics)}
    settings.pop("device")
    return settings | {"hyperparameter_search": options.hyperparameter_search}


def must_be_the_same(out: Path, shared: dict[str, Any]) -> None:
    """Raises UserError if the folder holds runs with other settings."""
    there = read_json(out / SETTINGS) if (out / SETTINGS).exists() else shared
    for name, here in shared.items():
        if here != there.get(name):
            now, had = ("its default" if v is None else v for v in (here, there.get(name)))
            raise UserError(f"{out} holds runs with {name} {had}, not {now}", ANOTHER)


def read_records(out: Path) -> dict[Key, dict[str, Any]]:
    """The runs in scores.jsonl. Scores that are no numbers are null there."""
    path = out / SCORES
    text = path.read_text("utf-8") if path.exists() else ""
    found = list(map(json.loads, text.splitlines()))
    for record in found:
        scores = record["scores"].items()
        record["scores"] = {k: math.nan if v is None else v for k, v in scores}
    return {(r["model"], r["task"], r["seed"], r["point"]): r for r in found}


def is_done(run: Run, record: dict[str, Any] | None) -> bool:
    """Whether a run's record and files are there. Raises UserError if it is the record of another
    model or of other examples: side by side, they would be compared."""
    if record is None:
        return False
    for what, now in run.hashes.items():
        changed = "the examples" if what == "data" else "the model"
        fact = f"{run.out} holds scores of {run.model} on {run.task.name!r}, and {changed} changed"
        need(record.get(what) == now, f"{fact} since", ANOTHER)
    files = () if run.prefix == BASELINE else (f"{name}.tsv" for name, _ in run.task.test)
    saved = run.save_to is None or (run.save_to / METADATA).is_file()
    return saved and all((run.predictions / name).is_file() for name in files)


# ------------------------------------------------------------------ running


def run_all(
    todo: list[Run], done: dict[Key, Any], options: FinetuneConfig, shared: dict[str, Any]
) -> None:
    """Does the runs. After each of them, its predictions and then its record are on disk, and then
    its model."""
    places = {divided(run.model)[1] for run in todo if run.prefix != BASELINE}
    widths = [load_config(place, causal=True).hidden_size for place in places]
    device = pick_device(options.settings.device)
    how: dict[str, Any] = {"device": device, "width": max(widths, default=1)}
    how |= {"bf16": loop.computes_in_bf16(options.settings.bf16, device)}
    earlier = next((record["threads"] for record in done.values()), None)
    tokens = loop.most_tokens(device)
    threads = choose_threads(options.threads, tokens=tokens, earlier=earlier, **how)
    quick = (BASELINE, FROZEN)
    updates = [0 if r.prefix in quick else expected_updates(r.task, r.settings) for r in todo]
    shown = Progress(sum(updates), title="finetune", unit="updates")
    with computing_with(threads), shown as progress:
        for run, number in zip(todo, updates, strict=True):

            def after(share: float, note: str, number: int = number) -> None:
                progress.advance(number * share, note)

            if run.prefix == BASELINE:
                keep(run, done, shared, without_encoder(run))
                continue
            how: dict[str, Any] = {"seed": run.seed, "settings": run.settings, "after": after}
            how |= {"save_to": run.save_to, "finished": partial(keep, run, done, shared)}
            finetune_one(run.model.removeprefix(FROZEN), run.task, **how)


def without_encoder(run: Run) -> Outcome:
    """The scores of a baseline."""
    began = time.monotonic()
    examples = drawn_examples(run.task, seed=run.seed, settings=run.settings)
    scores = answer(run.model, run.task, examples, class_weights=run.settings.class_weights)
    return Outcome(scores, (), len(examples), 0, time.monotonic() - began)


def keep(run: Run, done: dict[Key, Any], shared: dict[str, Any], outcome: Outcome) -> None:
    """Writes the settings, and the predictions and the record of a run: a folder of a model that
    cannot be loaded stays free."""
    if not (run.out / SETTINGS).exists():
        write(run.out / SETTINGS, json_text(shared, indent=1) + "\n")
    for name, content in outcome.files.items():
        run.predictions.mkdir(parents=True, exist_ok=True)
        write(run.predictions / name, content)
    odd = [name for name, value in outcome.scores.items() if not math.isfinite(value)]
    notes = [*outcome.notes, *(f"{name} is not a number with seed {run.seed}" for name in odd)]
    done[run.key] = {
        "model": run.model,
        "task": run.task.name,
        "seed": run.seed,
        "point": run.point,
        **run.hashes,
        **outcome.record(),
        "validation_examples": len(run.task.validation),
        "notes": [*run.task.notes, *(f"{run.model}: {note}" for note in notes)],
        "threads": torch.get_num_threads(),
    }
    write(run.out / SCORES, "".join(json_text(record) + "\n" for record in done.values()))
    shown = ", ".join(f"{name} {value:.4f}" for name, value in outcome.scores.items())
    say(f"{run.model} {run.name}: {shown} ({outcome.seconds:.1f} s)")


def link_model(out: Path) -> list[Path]:
    """Links to the files of the only model in OUT/models, so that other libraries, too, load it by
    the folder's name. Returns the folders that name a model: OUT itself, or those of several."""
    for link in filter(Path.is_symlink, out.iterdir()):
        if link.readlink().parts[:1] == ("models",):  # the user's own stay
            link.unlink()
    models = sorted((out / "models").glob("[!.]*"))  # a kill has left the others
    if len(models) != 1:
        return models
    for file in models[0].iterdir():
        if not (out / file.name).exists():
            (out / file.name).symlink_to(file.relative_to(out))
    return [out]


# ------------------------------------------------------------------ GLUE's submission


def submit(runs: Sequence[Run], done: dict[Key, Any]) -> None:
    """Writes OUT/submission-MODEL.zip for every model: for each task the predictions of the run
    with the best first metric, as GLUE's server takes them. The archive's bytes depend on its files
    only."""

    def score(run: Run) -> float:
        return done[run.key]["scores"][run.task.metrics[0]]

    best: dict[str, dict[str, Run]] = {}
    for run in runs:
        if run.task.test and not run.prefix:
            mine = best.setdefault(run.model, {})
            mine[run.task.name] = max(mine.get(run.task.name, run), run, key=score)
    for model, chosen in best.items():
        paths = [r.predictions / f"{name}.tsv" for r in chosen.values() for name, _ in r.task.test]
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as z:
            for path in sorted(paths, key=lambda path: path.name):
                z.writestr(zipfile.ZipInfo(path.name), path.read_bytes(), zipfile.ZIP_DEFLATED)
        target = runs[0].out / f"submission-{file_name(model)}.zip"
        write(target, archive.getvalue())
        say(f"{target}: {len(paths)} test sets")
