"""`electrify finetune`: every model on every task with every seed, each run once, and the report of
them.

The output folder holds finetune.json (the settings that all runs share), scores.jsonl (one run a
line), predictions/, models/ and the report. An interrupted command resumes: a run whose line and
files are there is not repeated.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import json
import math
import os
import re
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..errors import UserError
from ..exporting.loading import load_config
from ..exporting.places import INITIAL, MARK, RANDOM, SCORES
from ..files import claim, json_text, must_be_ours, read_json, sha256, write
from ..hub import at_commit
from ..progress import Progress, say
from ..text.tokenizer import VOCABULARY_FILES
from ..train.machine import choose, computing_with
from . import loop, metrics
from .baselines import MAJORITY, OVERLAP, TFIDF, answer, applies, baseline_hashes, is_baseline
from .known import read_asked
from .one_run import Outcome, drawn_examples, expected_updates, finetune_one, shown_examples
from .options import FinetuneConfig, FinetuneSettings, search_grid
from .plot import write_plot
from .report import Report, report_of
from .tasks import TASKS, Kind, TaskData

SETTINGS = "finetune.json"
"""Marks the folder as one of `finetune`."""
PREFIXES = (RANDOM, INITIAL)
"""Of models that are only for comparison: they are not saved, and submit nothing."""
TEXTS: tuple[Kind, ...] = ("classification", "multilabel", "regression")
ONLY_FOR: dict[str, tuple[Kind, ...]] = {
    "doc_stride": ("answering",),
    "n_best_size": ("answering",),
    "max_answer_length": ("answering",),
    "class_weights": ("classification", "multilabel", "tagging"),
    "frozen_encoder": (*TEXTS, "tagging"),
}
"""Settings that no other kind of task uses."""
Key = tuple[str, str, int, str]
Grid = Sequence[tuple[str, FinetuneSettings]]


@dataclass(frozen=True)
class Run:
    """A model on a task with a seed and settings. label: the model's name in our files. point: the
    settings that a search varies, as text. hashes: of the model's files and of the examples, on
    which the scores depend."""

    model: str
    label: str
    task: TaskData
    seed: int
    point: str
    settings: FinetuneSettings
    hashes: dict[str, str]
    out: Path
    save_to: Path | None

    @property
    def key(self) -> Key:
        return self.label, self.task.name, self.seed, self.point

    @property
    def name(self) -> str:
        return file_name(f"{self.task.name}-seed{self.seed}" + f"-{self.point}" * bool(self.point))

    @property
    def predictions(self) -> Path:
        return self.out / "predictions" / file_name(self.label) / self.name


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
    grid: Grid = [("", options.settings)]
    if options.hyperparameter_search is not None:
        grid = search_grid(options.hyperparameter_search, options.settings)
    for _, settings in grid:
        must_fit(options, settings, tasks)
    out = options.folder
    with claim(out, SETTINGS):
        shared = shared_settings(options, grid)
        must_be_the_same(out, shared)
        names = models_of(options)
        plan = list(planned(options, names, tasks, grid, out))
        done = {key_of(record): record for record in read_records(out)}
        todo = [run for run in plan if not is_done(run, done.get(run.key))]
        todo.sort(key=lambda run: not is_baseline(run.model))  # they take seconds
        for run in todo:
            if run.save_to is not None:
                must_be_ours(run.save_to, MARK)
        if len(todo) < len(plan):
            say(f"{len(plan) - len(todo)} of {len(plan)} runs are done already: {out / SCORES}")
        if todo:
            run_all(todo, done, options, shared)
        report = report_of(
            [done[run.key] for run in plan],
            {task.name: task.score_names for task in tasks},
            settings=shared["settings"],
            names={label_of(name, out): name for name in names},
        )
        report.write(out)
        write_plot(report, out / "report.png")
        if options.predict_test:
            submit(plan, done, out)
    return report


# ------------------------------------------------------------------ what is run


def must_fit(options: FinetuneConfig, settings: FinetuneSettings, tasks: list[TaskData]) -> None:
    """Raises UserError for an option that none of the tasks would use, for training examples that
    cannot be divided, and if a library is missing."""
    kinds = {task.kind for task in tasks}
    for name, its in ONLY_FOR.items():
        if getattr(settings, name) != getattr(FinetuneSettings(), name) and not kinds & {*its}:
            raise UserError(f"{name} is for {', '.join(its)}. None of the tasks is")
    if settings.frozen_encoder != "none" and "answering" in kinds:
        raise UserError("frozen_encoder is for texts and tags, not for questions")
    if options.baselines and kinds == {"answering"}:
        raise UserError("baselines are for texts and tags. None of the tasks is")
    if options.predict_test and not any(task.test for task in tasks):
        raise UserError("predict_test finds no test set: GLUE's folders hold it as test.tsv")
    for task in tasks:
        if task.kind in TEXTS:
            metrics.require(task.metrics)
        if settings.load_best_model_at_end:
            for seed in range(options.seed, options.seed + options.seeds):
                shown_examples(task, seed=seed, settings=settings)


def models_of(options: FinetuneConfig) -> list[str]:
    """The models and baselines to run, each once."""
    names = list(options.models)
    if options.random_weights:
        names = [RANDOM + name.removeprefix(RANDOM) for name in names]
    if options.random_baseline:
        own = [name for name in names if not name.startswith(PREFIXES)]
        if options.corpus is not None:
            from .initial import has_initial_words

            names += [INITIAL + name for name in own if has_initial_words(name)]
        names += [RANDOM + name for name in own]
    names += [MAJORITY, TFIDF, OVERLAP] * options.adds_baselines
    out = options.folder
    # The first of several names of one folder.
    return list({label_of(name, out): name for name in reversed(names)}.values())[::-1]


def planned(
    options: FinetuneConfig, names: list[str], tasks: list[TaskData], grid: Grid, out: Path
) -> Iterator[Run]:
    data = {t.name: short_hash((t.kind, t.labels, t.train, t.validation, t.also)) for t in tasks}
    # Nobody wants the model of a row that is only a comparison.
    trained = [name for name in names if not name.startswith(PREFIXES) and not is_baseline(name)]
    for model in names:
        hashes = baseline_hashes(model) if is_baseline(model) else {"weights": fingerprint(model)}
        wanted = model in trained or not (trained or is_baseline(model))
        label = label_of(model, out)
        for task in (task for task in tasks if applies(model, task)):
            its = hashes | {"data": data[task.name]}
            place = out / "models" / f"{file_name(task.name)}-{file_name(label)}"
            for point, settings in grid:
                for seed in range(options.seed, options.seed + options.seeds):
                    saves = options.saves_model and wanted and seed == options.seed
                    save_to = place if saves else None
                    yield Run(model, label, task, seed, point, settings, its, out, save_to)


def divided(model: str) -> tuple[str, str]:
    """The prefix of a model's name, and the folder or the name on the Hub."""
    prefix = next((p for p in PREFIXES if model.startswith(p)), "")
    return prefix, model.removeprefix(prefix)


def fingerprint(model: str) -> str:
    """What scores depend on in a model: a short hash of the weights, configuration and tokenizer in
    a folder, or a name on the Hub with its commit."""
    prefix, name = divided(model)
    if not Path(name).is_dir():
        return prefix + at_commit(name)
    digest = hashlib.sha256(prefix.encode())
    for file in sorted(Path(name).iterdir()):
        weights = file.suffix == ".safetensors" and not prefix
        if weights or file.name in ("config.json", "tokenizer_config.json", *VOCABULARY_FILES):
            digest.update(f"{file.name} {sha256(file)}\n".encode())
    return digest.hexdigest()[:16]


def label_of(model: str, out: Path) -> str:
    """The name of a model in our files: folders relative to the output folder, so that both can be
    moved together."""
    prefix, name = divided(model)
    path = os.path.expanduser(name)
    if not os.path.isdir(path):
        return model
    return prefix + os.path.relpath(os.path.realpath(path), os.path.realpath(out))


def file_name(label: str) -> str:
    """A label as the name of a file or folder, with a hash where that loses something."""
    readable = re.sub(r"[^\w.=-]+", "-", label.replace("..", "")).strip("./-")[:80]
    if readable == label:
        return label
    return f"{readable}-{hashlib.sha256(label.encode()).hexdigest()[:6]}"


def short_hash(value: Any) -> str:
    return hashlib.sha256(repr(value).encode("utf-8", "replace")).hexdigest()[:16]


# ------------------------------------------------------------------ what is done


def shared_settings(options: FinetuneConfig, grid: Grid) -> dict[str, Any]:
    """The settings that all runs of an output folder share; None where a search varies one. The
    metrics are among them: records hold no others, and the first one chooses an evaluation."""
    all_of = [dataclasses.asdict(settings) for _, settings in grid]
    shared = {k: v if all(one[k] == v for one in all_of) else None for k, v in all_of[0].items()}
    shared.pop("device")
    search, wanted = options.hyperparameter_search, list(options.metrics)
    return {"settings": shared, "hyperparameter_search": search, "metrics": wanted}


def must_be_the_same(out: Path, shared: dict[str, Any]) -> None:
    """Raises UserError if the folder holds runs with other settings."""
    if not (out / SETTINGS).exists():
        return
    here, there = ({**each, **each["settings"]} for each in (shared, read_json(out / SETTINGS)))
    for name in here.keys() - {"settings"}:
        if here[name] != there.get(name):
            now, had = ("its default" if v is None else v for v in (here[name], there.get(name)))
            raise UserError(
                f"{out} holds runs with {name} {had}, not {now}. Choose another --output-dir"
            )


def key_of(record: dict[str, Any]) -> Key:
    return record["model"], record["task"], record["seed"], record["point"]


def read_records(out: Path) -> list[dict[str, Any]]:
    """The runs in scores.jsonl. Scores that are no numbers are null there."""
    path = out / SCORES
    found = []
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        record = json.loads(line)
        scores = {k: math.nan if v is None else v for k, v in record["scores"].items()}
        found.append(record | {"scores": scores})
    return found


def is_done(run: Run, record: dict[str, Any] | None) -> bool:
    """Whether a run's record and files are there. Raises UserError if it is the record of another
    model or of other examples: side by side, they would be compared."""
    if record is None:
        return False
    for what, now in run.hashes.items():
        if record.get(what) != now:
            changed = "the examples" if what == "data" else "the model"
            raise UserError(
                f"{run.out} holds scores of {run.label} on {run.task.name!r}, and {changed} "
                "changed since. Choose another --output-dir"
            )
    names = [] if is_baseline(run.model) else [f"{name}.tsv" for name, _ in run.task.test]
    saved = run.save_to is None or (run.save_to / MARK).is_file()
    return saved and all((run.predictions / name).is_file() for name in names + record["files"])


# ------------------------------------------------------------------ running


def run_all(
    todo: list[Run], done: dict[Key, Any], options: FinetuneConfig, shared: dict[str, Any]
) -> None:
    """Does the runs. After each of them, its predictions and then its record are on disk, and then
    its model."""
    networks = [run for run in todo if not is_baseline(run.model)]
    places = {divided(run.model)[1] for run in networks}
    widths = [load_config(place, causal=True).hidden_size for place in places]
    device = loop.device_named(options.settings.device)
    threads = choose(
        options.threads,
        device=device,
        width=max(widths, default=1),
        tokens=loop.most_tokens(device),
        bf16=loop.computes_in_bf16(options.settings.bf16, device),
        earlier=next((record["threads"] for record in done.values()), None),
    )
    if threads.text():
        say(threads.text())
    updates = sum(expected_updates(run.task, run.settings) for run in networks)
    with computing_with(threads), Progress(updates, title="finetune", unit="updates") as progress:
        for run in todo:
            run_one(run, progress, options.corpus, functools.partial(keep, run, done, shared))
            if run.save_to is not None:
                say(f"saved for `electrify predict`: {run.save_to}")


def run_one(
    run: Run, progress: Progress, corpus: str | None, finished: Callable[[Outcome], None]
) -> None:
    task, settings = run.task, run.settings
    if is_baseline(run.model):
        began = time.monotonic()
        examples = drawn_examples(task, seed=run.seed, settings=settings)
        scores = answer(run.model, task, examples, class_weights=settings.class_weights)
        finished(Outcome(scores, (), len(examples), 0, time.monotonic() - began))
        return
    with ExitStack() as held:
        model = run.model
        if model.startswith(INITIAL):
            from .initial import initial_model

            model = held.enter_context(initial_model(model, corpus))
        how: dict[str, Any] = {"seed": run.seed, "settings": settings, "progress": progress}
        finetune_one(model, task, save_to=run.save_to, finished=finished, **how)


def keep(run: Run, done: dict[Key, Any], shared: dict[str, Any], outcome: Outcome) -> None:
    """Writes the settings, and the predictions and the record of a run: a folder of a model that
    cannot be loaded stays free."""
    if not (run.out / SETTINGS).exists():
        write(run.out / SETTINGS, json_text(shared, indent=1) + "\n")
    for name, content in outcome.files.items():
        run.predictions.mkdir(parents=True, exist_ok=True)
        write(run.predictions / name, content)
    notes = list(outcome.notes)
    for name, value in outcome.scores.items():
        if not math.isfinite(value):
            notes.append(f"{name} is not a number with seed {run.seed}")
    done[run.key] = {
        "model": run.label,
        "task": run.task.name,
        "seed": run.seed,
        "point": run.point,
        **run.hashes,
        **outcome.record(),
        "validation_examples": len(run.task.validation),
        "notes": [*run.task.notes, *(f"{run.label}: {note}" for note in notes)],
        "files": sorted(outcome.files),
        "threads": torch.get_num_threads(),
    }
    write(run.out / SCORES, "".join(json_text(record) + "\n" for record in done.values()))
    shown = ", ".join(f"{name} {value:.4f}" for name, value in outcome.scores.items())
    say(f"{run.model} {run.name}: {shown} ({outcome.seconds:.1f} s)")


# ------------------------------------------------------------------ GLUE's submission


def submit(plan: Sequence[Run], done: dict[Key, Any], out: Path) -> None:
    """Writes OUT/submission-MODEL.zip for every model: for each task the predictions of the run
    with the best first metric, as GLUE's server takes them. The archive's bytes depend on its files
    only."""
    best: dict[str, dict[str, Run]] = {}
    for run in plan:
        if not run.task.test or run.model.startswith(PREFIXES) or is_baseline(run.model):
            continue
        mine, metric = best.setdefault(run.label, {}), run.task.metrics[0]
        so_far = mine.get(run.task.name, run)
        scores = (done[each.key]["scores"][metric] for each in (run, so_far))
        mine[run.task.name] = run if next(scores) > next(scores) else so_far
    glue = [row for row in TASKS.values() if row.group == "glue"]
    wanted = [f"{name}.tsv" for row in glue for name in row.submission or row.folders]
    for label, runs in best.items():
        paths = [r.predictions / f"{name}.tsv" for r in runs.values() for name, _ in r.task.test]
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as z:
            for path in sorted(paths, key=lambda path: path.name):
                entry = zipfile.ZipInfo(path.name, date_time=(1980, 1, 1, 0, 0, 0))
                z.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
        target = out / f"submission-{file_name(label)}.zip"
        write(target, archive.getvalue())
        there = {path.name for path in paths}
        missing = [name.removesuffix(".tsv") for name in wanted if name not in there]
        also = f". GLUE's server also wants {', '.join(missing)}" if missing else ""
        say(f"{target}: {len(paths)} test sets{also}")
