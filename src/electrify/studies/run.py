"""`electrify compare`: the trials of a study, side by side, each in a process of its own; then the
report.

A shorter run waits until the longest run of its recipe and seed has saved the checkpoint from which
it starts. If that run is not here, because its results came from another machine, the shorter one
is run whole.
"""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from ..errors import need
from ..files import json_text, read_json, write
from ..flop_counts import outline
from ..progress import Progress, aligned, duration, say
from ..recipe import Recipe, dump, override, stages_of
from ..train import METRICS, checkpoint
from ..train.length import FORWARD, probe
from .budgets import NO_ENCODER, Trial, as_started, tokens_of
from .measures import without_encoder
from .one_run import OUTCOME, RUN, WORK
from .options import CompareConfig
from .plot import drawn
from .report import Table, in_csv, in_json, markdown, short_names, table_of
from .study import PRETRAIN, Result, Study, digest, held, read_results, record

LOG = "log.txt"
POLL_S = 0.5
GRACE_S = 120.0
"""How long a process that was told to stop may take for its checkpoint."""
SAVES = 20
"""Checkpoints during a run."""
VALIDATIONS = 4
VISIBLE, ONE_THREAD = "CUDA_VISIBLE_DEVICES", {"OMP_NUM_THREADS": "1"}
Slot = tuple[dict[str, str], int | None]
"""Where a process runs: its environment, and its core; None leaves the core to the system."""
PROBE_S = 5.0
"""How long a recipe is trained to measure its rate."""


def compare(study: Study) -> Table:
    """Runs what is left of a study and writes its report. Raises UserError for a folder that cannot
    be used; an encoder that fails is a result with its reason."""
    c = study.config
    with held(study):
        runner = Runner(study)
        results = [*runner.run(), *runner.baselines()]
        table = table_of(
            results, recipes=study.recipes, tasks=study.tasks, equal=c.equal, score=study.score
        )
        write_report(table, study.out)
    return table


# ------------------------------------------------------------------ processes


def slots(processes: int, device: str) -> list[Slot]:
    """A GPU or a core for each process that runs side by side. Raises UserError for more than there
    are."""
    places: Sequence[Slot] = [(ONE_THREAD, None)] * processes
    what, number = "processes", 0 if device == "cpu" else torch.cuda.device_count()
    if number:
        visible = os.environ.get(VISIBLE) or ",".join(map(str, range(number)))
        places, what = [({VISIBLE: gpu}, None) for gpu in visible.split(",")], "GPUs"
    # A single process needs no core of its own, and on the first one it would meet those of other
    # studies.
    elif processes > 1 and hasattr(os, "sched_getaffinity"):
        places, what = [(ONE_THREAD, core) for core in sorted(os.sched_getaffinity(0))], "cores"
    need(processes <= len(places), f"processes: there are {len(places)} {what}, not {processes}")
    return list(places[:processes])


def spawn(folder: Path, config: CompareConfig, slot: Slot, **work: Any) -> subprocess.Popen[bytes]:
    """Starts the process of one encoder. work: see `pretrain_and_measure`."""
    environment, core = slot
    folder.mkdir(parents=True, exist_ok=True)
    (folder / OUTCOME).unlink(missing_ok=True)
    write(folder / WORK, json_text(work | {"config": asdict(config), "core": core}, indent=1))
    with (folder / LOG).open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "electrify.studies.one_run", str(folder)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=os.environ | environment,
            start_new_session=True,  # Ctrl-C reaches this process only, which passes it on
        )


def last_line(path: Path) -> str:
    """The last line of a file that is not empty; empty if there is none, or no file."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    return text.rstrip().rpartition("\n")[2].strip()


# ------------------------------------------------------------------ shared prefix runs


def start_of(study: Study, trial: Trial) -> Path | None:
    """The checkpoint of the longest run from which a trial starts, if it is there."""
    if trial.starts_at is None:
        return None
    longest = study.longest[trial.entry, trial.seed]
    path = checkpoint.folder_of(study.folder(longest) / RUN, trial.starts_at)
    return path if path.is_dir() else None


def work_of(study: Study, trial: Trial) -> dict[str, Any]:
    """What the process of a trial is to do."""
    every = max(1, trial.steps // SAVES)
    fields = {
        "save_steps": every,
        "save_total_limit": 1,
        "eval_steps": max(1, -(-trial.steps // VALIDATIONS)),
        "logging_steps": max(1, every // 5),
        "report_to": (),
        "device": study.config.device,
    }
    shorter = {t.starts_at for t in study.trials if study.longest[t.entry, t.seed] is trial}
    return {
        "recipe": dump(override(trial.recipe, fields)),
        "prefix": (start := start_of(study, trial)) and str(start),
        "milestones": sorted(filter(None, shorter)),
    }


# ------------------------------------------------------------------ the forecast


def forecast(study: Study) -> dict[str, Any]:
    """A row of numbers for each recipe and budget, those of one seed, and the sum of what is still
    to be run. Raises UserError for a recipe that cannot be trained."""
    slots(study.config.processes, study.config.device)
    results = read_results(study.out)
    done = study.finished(results)
    rates = {entry: rate_of(study, entry, results.values()) for entry in study.recipes}
    grouped = defaultdict[tuple[str, float], list[Trial]](list)
    for trial in study.trials:
        grouped[trial.entry, trial.budget].append(trial)
    rows = []
    for (entry, budget), trials in grouped.items():
        one = next((trial for trial in trials if trial.key not in done), trials[0])
        # The longest run may be over without having kept a checkpoint for a budget of today.
        if study.longest[one.entry, one.seed].key in done and not start_of(study, one):
            one = replace(one, starts_at=None)
        counted = as_started(one.recipe, study.cost.vocab_size)
        objective = outline(counted, vocab_size=study.cost.vocab_size).objective
        own = one.own_share * hardware_flops(study, one.recipe) * rates.get(entry, 0.0) / 60
        row = {"recipe": entry, "budget": budget, "flops": one.flops, "updates": one.steps}
        row |= {"tokens": tokens_of(one.recipe), "epochs": study.cost.epochs(one.recipe)}
        row |= {"starts_at": one.starts_at, "minutes": own, "seeds": len(trials)}
        row |= {"parameters": sum(p.numel() for p in objective.parameters())}
        rows.append(row | {"done": sum(trial.key in done for trial in trials)})
    minutes = sum(row["minutes"] * (row["seeds"] - row["done"]) for row in rows)
    measured = [r.task_seconds / 60 for key, r in results.items() if key in done]
    tasks = statistics.median(measured) * (len(study.trials) - len(done)) if measured else None
    plan = {"lines": rows, "minutes": minutes, "task_minutes": tasks}
    return plan | {"processes": study.config.processes, "equal": study.config.equal}


def as_text(plan: dict[str, Any]) -> str:
    """The plan as a table, and a sentence."""
    shown = short_names(row["recipe"] for row in plan["lines"])
    lines = [
        {
            "recipe": shown[row["recipe"]],
            **({} if plan["equal"] == "flops" else {"budget": f"{row['budget']:.3g}"}),
            "FLOPs": f"{row['flops']:.3g}",
            "updates": f"{row['updates']:,}",
            "M tokens": f"{row['tokens'] / 1e6:,.1f}",
            "epochs": f"{row['epochs']:.2f}",
            "starts at": f"{row['starts_at']:,}" if row["starts_at"] else "",
            "minutes": f"{row['minutes']:,.1f}",
            "to do": f"{row['seeds'] - row['done']} of {row['seeds']}",
        }
        for row in plan["lines"]
    ]
    each, tasks = plan["processes"], "not known before the first encoder is measured"
    if plan["task_minutes"] is not None:
        tasks = f"about {duration(60 * plan['task_minutes'] / each)}"
    table = aligned([list(lines[0]), *(list(line.values()) for line in lines)], names=1)
    trained = f"pre-training about {duration(60 * plan['minutes'] / each)}"
    sentence = f"with {each} process{'es' * (each > 1)}: {trained}, tasks {tasks}"
    return "\n".join([*table, sentence])


def hardware_flops(study: Study, recipe: Recipe) -> float:
    """The FLOPs of a run in the convention of its log."""
    counted = as_started(recipe, study.cost.vocab_size)
    return replace(study.cost, convention="hardware").flops(counted)


def rate_of(study: Study, entry: str, results: Iterable[Result]) -> float:
    """The seconds per FLOP of a recipe (tokens of a run may differ in cost): of its encoders that
    are already trained, or else measured."""
    trained = [r.seconds / r.flops for r in results if r.entry == entry and r.flops]
    if trained:
        return statistics.median(trained)
    say(f"measuring the rate of {entry}, for about {PROBE_S:.0f} s")
    return probed(study, next(trial for trial in study.trials if trial.entry == entry))


def probed(study: Study, trial: Trial) -> float:
    """The seconds per FLOP of a run with its validations, from a few seconds of training that leave
    nothing behind. Raises UserError if it cannot be trained."""
    c, t = study.config, trial.recipe.train
    # The second of two stages needs the generator of the first.
    stage = override(stages_of(trial.recipe)[0], {"device": c.device, "threads": "1"})
    per_slot, rows = probe(Path(c.data), study.out / "probe", stage, limit_s=PROBE_S)
    validated = FORWARD * VALIDATIONS * rows / (trial.steps * t.train_batch_size)
    return (1 + validated) * per_slot * tokens_of(stage) / hardware_flops(study, stage)


# ------------------------------------------------------------------ the trials of a study


class Runner:
    """The processes of a study."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.results = read_results(study.out)
        done = study.finished(self.results)
        # All recipes of one seed before the next seed: a study that is stopped compares them.
        ordered = sorted(study.trials, key=lambda trial: trial.seed)
        self.waiting = [trial for trial in ordered if trial.key not in done]
        self.running: dict[Any, tuple[Trial, Slot]] = {}
        """By process."""
        self.free = slots(study.config.processes, study.config.device)
        flops = sum(trial.flops * trial.own_share for trial in self.waiting)
        self.mean_flops = flops / max(1, len(self.waiting)) or 1.0

    def run(self) -> list[Result]:
        """Every trial, until none is left."""
        total = len(self.study.trials)
        if done := total - len(self.waiting):
            say(f"{done} of {total} encoders are done already")
        with Progress(total, title="compare", unit="encoders", done=self.done()) as bar:
            try:
                while self.waiting or self.running:
                    self.fill()
                    time.sleep(POLL_S)
                    for ended in [p for p in self.running if p.poll() is not None]:
                        self.collect(ended)
                    bar.advance(max(0.0, self.done() - bar.done), self.note())
            except BaseException:
                self.stop()
                raise
        found = (self.results.get(trial.key) for trial in self.study.trials)
        return list(filter(None, found))

    def fill(self) -> None:
        """Starts trials in the free slots."""
        ready = (trial for trial in list(self.waiting) if not self.must_wait(trial))
        while self.free and (trial := next(ready, None)):
            self.waiting.remove(trial)
            slot = self.free.pop(0)
            folder, work = self.study.folder(trial), work_of(self.study, trial)
            process = spawn(folder, self.study.config, slot, **work)
            self.running[process] = trial, slot

    def must_wait(self, trial: Trial) -> bool:
        """Whether the checkpoint from which a trial starts is still to come."""
        comes = self.study.longest[trial.entry, trial.seed] in self.unfinished
        return trial.starts_at is not None and comes and not start_of(self.study, trial)

    def collect(self, ended: subprocess.Popen[bytes]) -> None:
        """Writes the line of a trial whose process has ended."""
        trial, slot = self.running.pop(ended)
        ended.communicate()  # closes its pipe
        self.free.append(slot)
        new = result_of(self.study, trial, ended.returncode)
        record(self.study.out, self.results, new)
        found = [f"{task} {100 * new.median(task):.1f}" for task in new.scores]
        found += [f"{what} failed ({why})" for what, why in new.failed.items()]
        say(f"{self.study.folder(trial).name}: {', '.join(found)}")

    def baselines(self) -> list[Result]:
        """The line of the tasks without an encoder, if baselines are asked for and have any."""
        study = self.study
        line = Result(NO_ENCODER, 0.0, 0, digest(study.fixed))
        if study.config.baselines and line.key not in self.results:
            found = ((m.name, without_encoder(m, study.config)) for m in study.measures)
            scores = {name: score for name, score in found if score is not None}
            if scores:
                record(study.out, self.results, replace(line, scores=scores))
        known = self.results.get(line.key)
        return [known] if known and study.config.baselines else []

    def stop(self) -> None:
        """Tells every process to save and end, and waits for them."""
        for process in self.running:
            process.terminate()
        for process in self.running:
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()

    @property
    def unfinished(self) -> list[Trial]:
        return [*self.waiting, *(trial for trial, _ in self.running.values())]

    def done(self) -> float:
        """How many encoders are done; those in training count in part. An encoder's training, by
        its FLOPs, is half of the work on average, and its tasks are the other half."""
        left = 0.0
        for trial in self.unfinished:
            left += 1 + trial.flops * trial.own_share / self.mean_flops
        for trial, _ in self.running.values():
            start = trial.starts_at or 0
            made = max(0, step_in(self.study.folder(trial) / RUN) - start) / (trial.steps - start)
            left -= made * trial.flops * trial.own_share / self.mean_flops
        return max(0.0, len(self.study.trials) - 0.5 * left)

    def note(self) -> str:
        """The encoders at work, each with its update."""
        return ", ".join(
            f"{trial.entry.partition(':')[0]} seed {trial.seed}: step "
            f"{step_in(self.study.folder(trial) / RUN)}/{trial.steps}"
            for trial, _ in self.running.values()
        )


def step_in(run: Path) -> int:
    """The last update that a run's log names."""
    found = re.findall(r'"step": ?(\d+)', (last_line(run / METRICS)))
    return int(found[-1]) if found else 0


def result_of(study: Study, trial: Trial, status: int) -> Result:
    """The line of a trial whose process has ended. Tasks to which it did not come failed with
    it."""
    folder, key = study.folder(trial), trial.key
    why = last_line(folder / LOG) or "no message"
    if status < 0:
        memory = ", perhaps because memory ran out" if -status == signal.SIGKILL else ""
        why = f"killed by signal {-status}{memory}. Its last line: {why}"
    if not (folder / OUTCOME).is_file():
        return Result(*key, failed={PRETRAIN: why})
    result = Result(*key, **read_json(folder / OUTCOME))
    missing = set(study.tasks) - result.scores.keys() - result.failed.keys()
    return replace(result, failed=result.failed | dict.fromkeys(sorted(missing), why))


def write_report(table: Table, folder: Path) -> None:
    """Writes the report."""
    write(folder / "report.md", markdown(table))
    write(folder / "report.csv", in_csv(table))
    write(folder / "report.json", in_json(table))
    if table.tasks and (png := drawn(table)):
        write(folder / "report.png", png)
