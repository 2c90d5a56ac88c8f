"""`electrify finetune`: every model on every task with every seed, each run once, and the report of
them."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..errors import UserError
from ..export.places import MARK, RANDOM
from ..files import claim, must_be_ours, write
from ..progress import Progress, say
from ..train.machine import Threads, choose, computing_with
from . import loop, submission
from .baselines import MAJORITY, OVERLAP, TFIDF, baseline_one, is_baseline
from .fitting import require_use
from .names import folder_name, relative
from .one_run import Outcome, finetune_one
from .options import FinetuneConfig, FinetuneSettings
from .page import write_report
from .plan import (
    Run,
    at_commits,
    is_done,
    is_wanted,
    models_of,
    must_be_makeable,
    must_be_of_same_examples,
    must_be_sayable,
    planned,
)
from .plot import write_plot
from .read.asked import read_asked
from .records import SCORES, SETTINGS, line_of, read_records, read_settings, settings_text
from .report import Report, report_of
from .saving import can_save
from .search import search
from .tasks import TaskData
from .trial import width_of

LONGEST_NAME = "x" * 120  # as long as a file in such a folder gets while it is written


def finetune(options: FinetuneConfig, tasks: list[TaskData] | None = None) -> Report:
    """Fine-tunes every model on every task with every seed; runs already in OUT/scores.jsonl are
    not repeated. Writes scores.jsonl and report.{md,csv,json}.

    With `hyperparameter_search` it does so for every combination, see search.py. tasks: the tasks
    of the options, if they have been read already.

    Raises UserError for bad data or models (all are checked before the first update), and if
    `output_dir` holds runs with other options.
    """
    tasks = read_asked(options) if tasks is None else tasks
    if options.hyperparameter_search is not None:
        return search(options, tasks, finetune)
    require_use(options, tasks)
    models = _models(options)
    out = Path(options.output_dir)
    must_be_sayable(models, tasks, out)
    with claim(out, SETTINGS):
        return _finetune(options, tasks, models, out)


def _finetune(
    options: FinetuneConfig, tasks: list[TaskData], models: list[str], out: Path
) -> Report:
    """Does the runs and writes their report, in a folder into which nobody else writes."""
    held = _held(out, options.settings)
    plan = list(planned(options, out, models, tasks))
    for run in plan:
        must_be_makeable(run.predictions / LONGEST_NAME)
        if run.save_to is not None:
            must_be_makeable(run.save_to / LONGEST_NAME)
            must_be_ours(run.save_to, MARK)
    done = {(r["model"], r["task"], r["seed"]): r for r in read_records(out)}
    must_be_of_same_examples(plan, done.values(), out)
    todo = [run for run in plan if not is_done(run, done, out)]
    device = loop.device_named(options.settings.device)
    widths = [0]
    for model in dict.fromkeys(run.model for run in todo if not is_baseline(run.model)):
        widths.append(width_of(model, tasks, options.settings, device))
    todo = at_commits(todo, plan, done, out)
    if not held:
        write(out / SETTINGS, settings_text(_kept(options.settings)))
    if len(todo) < len(plan):
        say(f"{len(plan) - len(todo)} of {len(plan)} runs are done already: {out / SCORES}")
    if todo:
        with computing_with(_threads(options, done, device, width=max(widths))):
            _run_all(todo, done, out, options.settings)
    report = report_of(
        [done[run.key] for run in plan],
        {t.name: t.score_names for t in tasks},
        settings=options.settings,
        shown={r.label: r.model for r in plan},
    )
    write_report(report, out)
    write_plot(report, out / "report.png")
    if options.predict_test:
        _submit(plan, done, out)
    return report


def _threads(
    options: FinetuneConfig, done: dict[Any, dict[str, Any]], device: torch.device, *, width: int
) -> Threads:
    """The threads for all remaining runs: as in the finished runs, unless the user says
    otherwise."""
    earlier = next((record["threads"] for record in done.values() if "threads" in record), None)
    bf16 = loop.computes_in_bf16(options.settings.bf16, device)
    threads = choose(
        options.threads,
        device=device,
        width=width,
        tokens=loop.most_tokens(device),
        bf16=bf16,
        earlier=earlier,
    )
    if threads.text():
        say(threads.text())
    return threads


def _submit(plan: list[Run], done: dict[Any, dict[str, Any]], out: Path) -> None:
    """Writes a submission archive for every model; for models with random weights only if there are
    no others."""
    models = dict.fromkeys(run.model for run in plan)
    for model in (m for m in models if is_wanted(m, models)):
        runs = [run for run in plan if run.model == model]
        for line in submission.assemble(
            out,
            [(run.task, run.predictions, done[run.key]["scores"]) for run in runs],
            name=folder_name(runs[0].label),
        ):
            say(line)


def _run_all(
    todo: list[Run], done: dict[Any, dict[str, Any]], out: Path, settings: FinetuneSettings
) -> None:
    """Does the remaining runs. After each of them, its predictions and its record are on disk, and
    then its model."""
    with Progress(sum(run.updates for run in todo), title="finetune", unit="updates") as progress:
        for run in todo:
            outcome = _outcome(run, settings, progress, functools.partial(_keep, run, done, out))
            shown = ", ".join(f"{name} {value:.4f}" for name, value in outcome.scores.items())
            say(f"{run.model} {run.task.name} seed {run.seed}: {shown} ({outcome.seconds:.1f} s)")
            if run.save_to is not None:
                say(f"kept for `electrify predict`: {run.save_to}")


def _outcome(
    run: Run,
    settings: FinetuneSettings,
    progress: Progress,
    finished: Callable[[Outcome], None],
) -> Outcome:
    if is_baseline(run.model):
        outcome = baseline_one(run.model, run.task, seed=run.seed, settings=settings)
        finished(outcome)
        return outcome
    return finetune_one(
        run.model,
        run.task,
        seed=run.seed,
        settings=settings,
        progress=progress,
        save_to=run.save_to,
        hashes=run.hashes,
        finished=finished,
    )


def _keep(run: Run, done: dict[Any, dict[str, Any]], out: Path, outcome: Outcome) -> None:
    """Writes the predictions and the record of a run."""
    submission.write_files(run.predictions, outcome.files)
    why = ": no validation question is of that kind" if run.task.kind == "answering" else ""
    odd = [
        f"{name} of {run.label} is not a number with seed {run.seed}{why}"
        for name, value in outcome.scores.items()
        if not math.isfinite(value)
    ]
    known = {
        "validation_examples": len(run.task.validation),
        "notes": [*run.task.notes, *(f"{run.label}: {note}" for note in outcome.notes), *odd],
    }
    known["answers"] = {
        name: hashlib.sha256(text.encode()).hexdigest() for name, text in outcome.files.items()
    }
    known["threads"] = torch.get_num_threads()
    done[run.key] = run.identity | outcome.record() | known
    write(out / SCORES, "".join(map(line_of, done.values())))


def _models(options: FinetuneConfig) -> list[str]:
    names = models_of(options)
    if options.random_baseline:
        names += [RANDOM + name.removeprefix(RANDOM) for name in names]
    once: dict[tuple[bool, str], str] = {}
    for name in names:
        place = relative(name.removeprefix(RANDOM), Path(options.output_dir))
        once.setdefault((name.startswith(RANDOM), place), name)
    names = list(once.values())
    for name in names if options.save_model else ():
        can_save(name)
    return names + [MAJORITY, TFIDF, OVERLAP] * options.baselines


def _kept(settings: FinetuneSettings) -> dict[str, Any]:
    """The settings that all runs of an output folder share."""
    return {k: v for k, v in dataclasses.asdict(settings.filled()).items() if k != "device"}


def _held(out: Path, settings: FinetuneSettings) -> bool:
    """Whether the folder holds runs. Raises UserError if those have other settings."""
    wanted = _kept(settings)
    held = read_settings(out)
    if held is None:
        return False
    # The protocol comes first, because it explains why other settings differ.
    for k in sorted({*wanted, *held}, key=lambda k: (k != "protocol", k)):
        here, there = (str(of.get(k)).lower() for of in (wanted, held))
        if here != there:
            flag = "--" + k.replace("_", "-")
            raise UserError(
                f"{out} holds runs with {flag} {there}, not {here}; choose another --output-dir"
            )
    return True
