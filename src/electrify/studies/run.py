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
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..errors import need
from ..files import claim, json_text, read_json, write
from ..flop_counts import outline
from ..process import SAVED_EXIT
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
from .study import (
    PRETRAIN,
    RESULTS,
    STUDY,
    Result,
    Study,
    digest,
    merged,
    read_results,
    write_results,
    write_study,
)

LOG = "log.txt"
POLL_S = 0.5
GRACE_S = 120.0
"""How long a process that was told to stop may take for its checkpoint."""
SAVES = 20
"""Checkpoints during a run."""
VALIDATIONS = 4
TAIL = 1 << 14
"""Bytes at the end of a log that are read."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
PROBE_S = 5.0
"""How long a recipe is trained to measure its rate."""


def compare(study: Study) -> Table:
    """Runs what is left of a study and writes its report. Raises UserError for a folder that cannot
    be used; an encoder that fails is a result with its reason."""
    c = study.config
    with claim(study.out, STUDY, RESULTS):
        write_study(study)
        runner = Runner(study)
        results = [*runner.run(), *runner.baselines()]
        table = table_of(
            results,
            recipes=study.recipes,
            tasks=study.tasks,
            equal=c.equal,
            score=study.score,
        )
        write_report(table, study.out, against=c.against or c.equal)
    return table


# ------------------------------------------------------------------ processes


def slots(processes: int, device: str) -> list[int | None]:
    """A core or a GPU for each process that runs side by side; None leaves the core to the system.
    Raises UserError for more than there are."""
    number, cores = gpus(device), list[int]()
    # A single process needs no core of its own, and on the first one it would meet those of other
    # studies.
    if processes > 1 and hasattr(os, "sched_getaffinity"):
        cores = sorted(os.sched_getaffinity(0))
    places, what = (list(range(number)), "GPUs") if number else (cores, "cores")
    if not places:
        return [None] * processes
    need(processes <= len(places), f"processes: there are {len(places)} {what}, not {processes}")
    return [*places[:processes]]


def gpus(device: str) -> int:
    """The number of GPUs that `device` allows."""
    if device == "cpu":
        return 0
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def spawn(
    folder: Path, config: CompareConfig, slot: int | None, **work: Any
) -> subprocess.Popen[bytes]:
    """Starts the process of one encoder, with one thread on its core, or on its GPU. work: see
    `pretrain_and_measure`."""
    own = {"OMP_NUM_THREADS": "1"}
    if gpus(config.device):
        ours = list(filter(None, os.environ.get(VISIBLE, "").split(",")))
        own, slot = {VISIBLE: ours[slot or 0] if ours else str(slot)}, None
    package = str(Path(__file__).parents[2])
    own["PYTHONPATH"] = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / OUTCOME).unlink(missing_ok=True)
    write(folder / WORK, json_text(work | {"config": asdict(config), "core": slot}, indent=1))
    with (folder / LOG).open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "electrify.studies.one_run", str(folder)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=os.environ | own,
            start_new_session=True,  # Ctrl-C reaches this process only, which passes it on
        )


def tail(path: Path) -> list[str]:
    """The last lines of a file, the first of them perhaps cut; none if there is no file."""
    if not path.is_file():
        return []
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - TAIL))
        return stream.read().decode("utf-8", "replace").splitlines()


def last_words(folder: Path) -> str:
    """The last line that a process wrote, as the reason of its failure."""
    said = [line.strip() for line in tail(folder / LOG) if line.strip()]
    return said[-1] if said else "no reason given"


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
    rates = rates_of(study, results.values())
    grouped = defaultdict[tuple[str, float], list[Trial]](list)
    for trial in study.trials:
        grouped[trial.entry, trial.budget].append(trial)
    rows, minutes = [], 0.0
    for (entry, budget), trials in grouped.items():
        waiting = [trial for trial in trials if trial.key not in done]
        left, first = len(waiting), (waiting or trials)[0]
        # The longest run may be over without having kept a checkpoint for a budget of today.
        if study.longest[first.entry, first.seed].key in done and not start_of(study, first):
            first = replace(first, starts_at=None)
        counted = as_started(first.recipe, study.cost.vocab_size)
        own = first.own_share * hardware_flops(study, counted) * rates.get(entry, 0.0) / 60
        objective = outline(counted, vocab_size=study.cost.vocab_size).objective
        minutes += own * left
        row = {"recipe": entry, "budget": budget, "flops": first.flops, "updates": first.steps}
        row |= {"tokens": tokens_of(first.recipe), "epochs": study.cost.epochs(first.recipe)}
        row |= {"starts_at": first.starts_at, "minutes": own}
        row |= {"parameters": sum(p.numel() for p in objective.parameters())}
        rows.append(row | {"seeds": len(trials), "done": len(trials) - left})
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
    return replace(study.cost, convention="hardware").flops(recipe)


def rates_of(study: Study, results: Iterable[Result]) -> dict[str, float]:
    """Recipe -> seconds per FLOP (tokens of a run may differ in cost): from its encoders that are
    already trained, or else measured."""
    found = {}
    with Progress(len(study.recipes), title="measuring the rates", unit="recipes") as bar:
        for entry in study.recipes:
            trained = [r.seconds / r.flops for r in results if r.entry == entry and r.flops]
            trial = next(t for t in study.trials if t.entry == entry)
            found[entry] = statistics.median(trained) if trained else probed(study, trial)
            bar.advance(1)
    return found


def probed(study: Study, trial: Trial) -> float:
    """The seconds per FLOP of a run with its validations, from a few seconds of training that leave
    nothing behind. Raises UserError if it cannot be trained."""
    c, t = study.config, trial.recipe.train
    # The second of two stages needs the generator of the first.
    stage = override(stages_of(trial.recipe)[0], {"device": c.device, "threads": "1"})
    per_slot, rows = probe(Path(c.data), study.out / "probe", stage, limit_s=PROBE_S)
    validated = FORWARD * VALIDATIONS * rows / (trial.steps * t.train_batch_size)
    counted = as_started(stage, study.cost.vocab_size)
    return (1 + validated) * per_slot * tokens_of(stage) / hardware_flops(study, counted)


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
        self.running: dict[Any, tuple[Trial, int | None]] = {}
        """Process -> its trial, and its core or GPU."""
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
        self.results[new.key] = merged(self.results.get(new.key), new)
        write_results(self.study.out, self.results.values())
        found = [f"{task} {100 * new.median(task):.1f}" for task in new.scores]
        found += [f"{what} failed ({why})" for what, why in new.failed.items()]
        say(f"{self.study.folder(trial).name}: {', '.join(found)}")

    def baselines(self) -> list[Result]:
        """The line of the tasks without an encoder, if baselines are asked for and have any."""
        study = self.study
        if not study.config.baselines:
            return []
        line = Result(NO_ENCODER, 0.0, 0, digest(study.fixed))
        if line.key not in self.results:
            found = ((m.name, without_encoder(m, study.config)) for m in study.measures)
            scores = {name: score for name, score in found if score is not None}
            if not scores:
                return []
            self.results[line.key] = replace(line, scores=scores)
            write_results(study.out, self.results.values())
        return [self.results[line.key]]

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
    """The last update that the end of a run's log names."""
    found = re.findall(r'"step": ?(\d+)', "\n".join(tail(run / METRICS)))
    return int(found[-1]) if found else 0


def result_of(study: Study, trial: Trial, status: int) -> Result:
    """The line of a trial whose process has ended. Tasks to which it did not come failed with
    it."""
    folder, key = study.folder(trial), trial.key
    why = last_words(folder)
    if status == SAVED_EXIT:
        why = f"stopped ({why})"
    if status < 0:
        memory = ", perhaps because memory ran out" if -status == signal.SIGKILL else ""
        why = f"killed by signal {-status}{memory}. Its last line: {why}"
    if not (folder / OUTCOME).is_file():
        return Result(*key, failed={PRETRAIN: why})
    result = Result(*key, **read_json(folder / OUTCOME))
    missing = set(study.tasks) - result.scores.keys() - result.failed.keys()
    return replace(result, failed=result.failed | dict.fromkeys(sorted(missing), why))


def write_report(table: Table, folder: Path, *, against: str) -> None:
    """Writes the report. against: the cost on the horizontal axis of the plot."""
    write(folder / "report.md", markdown(table))
    write(folder / "report.csv", in_csv(table))
    write(folder / "report.json", in_json(table))
    if table.tasks and (png := drawn(table, against=against)):
        write(folder / "report.png", png)
