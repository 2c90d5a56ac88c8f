"""What a study will take, before it is run: updates, tokens, passes over the corpus, minutes, disk.

The rates come from encoders of the study that are already trained, or else from a few seconds of
training each.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..console import size
from ..errors import UserError
from ..files import read_json
from ..progress import Progress, aligned, duration
from ..recipe import dump, override
from ..train import FACTS, METRICS, log
from .cell import LOG, RUN, Work, last_words, tail
from .cost import tokens_of
from .options import Equal
from .plan import Cell, as_started
from .processes import slots, spawn
from .results import Result, read_results
from .shares import trained_share
from .study import Study, finished, key_of
from .table import short_names
from .trunks import as_it_comes, home_of

PROBE_S = 5.0
"""How long a recipe is trained after its first update, which may be a long time in coming: the
corpus is opened and words are counted first."""
FEW = 3
"""Updates that are not counted, because the first ones are slower."""
FEWEST = 5
"""The least number of updates that are counted, unless they take LONGEST_S."""
LONGEST_S = 60.0
POLL_S = 0.1


@dataclass(frozen=True)
class Rate:
    """How fast a recipe trains, and how large it is."""

    per_flop: float
    """Seconds. The updates of a run may differ, if rows or batches grow or a first stage comes
    first: their FLOPs say by how much."""
    parameters: int


@dataclass(frozen=True)
class Line:
    """One recipe and budget of a plan; numbers are those of one seed."""

    recipe: str
    budget: float
    flops: float
    """The FLOPs of the whole run."""
    updates: int
    tokens: int
    """Places for tokens, padding included."""
    epochs: float
    starts_at: int | None
    """The update at which it starts from a longer run; None where it is run whole."""
    minutes: float
    """Minutes of pre-training, for the updates that are computed for this run alone."""
    parameters: int
    seeds: int
    done: int
    """Seeds that are finished already."""


@dataclass(frozen=True)
class Forecast:
    """The plan of a study."""

    lines: list[Line]
    minutes: float
    """Minutes of pre-training, for everything that is still to be run, without the updates of runs
    that have begun."""
    disk_bytes: int
    processes: int
    equal: Equal
    """What budgets count."""

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    def text(self) -> str:
        """The plan as a table, and two sentences."""
        head = ["recipe", "FLOPs", "updates", "M tokens", "epochs", "starts at", "minutes", "to do"]
        if self.equal != "flops":
            head.insert(1, "budget")
        shown = short_names(dict.fromkeys(line.recipe for line in self.lines))
        cells = [
            [
                shown[line.recipe],
                *([] if self.equal == "flops" else [f"{line.budget:.3g}"]),
                f"{line.budget if self.equal == 'flops' else line.flops:.3g}",
                f"{line.updates:,}",
                f"{line.tokens / 1e6:,.1f}",
                f"{line.epochs:.2f}",
                f"{line.starts_at:,}" if line.starts_at else "",
                f"{line.minutes:,.1f}",
                f"{line.seeds - line.done} of {line.seeds}",
            ]
            for line in self.lines
        ]
        processes = "process" if self.processes == 1 else "processes"
        total = duration(60 * self.minutes / self.processes)
        return "\n".join(
            [
                *aligned([head, *cells], names=1),
                (
                    f"pre-training: about {total} with {self.processes} "
                    f"{processes}, and the tasks' own time; "
                    f"disk: about {size(self.disk_bytes)}"
                ),
            ]
        )


def forecast(study: Study) -> Forecast:
    """The plan of a study."""
    results = read_results(study.out)
    done = finished(study, results)
    rates = rates_of(study, results)
    grouped: dict[tuple[str, float], list[Cell]] = {}
    for cell in study.cells:
        grouped.setdefault((cell.entry, cell.budget), []).append(cell)
    lines, minutes, disk = [], 0.0, 0
    for (entry, budget), cells in grouped.items():
        ready = sum(key_of(c) in done for c in cells)
        left = [as_it_comes(study, c, done) for c in cells if key_of(c) not in done]
        cell = (left or cells)[0]
        rate = rates.get(entry) or Rate(0.0, rates[study.recipes[0]].parameters)
        tokens = tokens_of(cell.config)
        own = minutes_of(study, cell, rate)
        minutes += sum(minutes_left(study, c, rate) for c in left)
        # Weights and two moments of the last checkpoint, of the one being written, and of the one
        # that a trunk keeps for this cell; the models.
        checkpoints = 3 if cell.starts_at else 2
        disk += (12 * checkpoints + 8) * rate.parameters * len(left)
        lines.append(
            Line(
                entry,
                budget,
                cell.flops,
                cell.steps,
                tokens,
                study.cost.passes(cell.config),
                cell.starts_at,
                own,
                rate.parameters,
                len(cells),
                ready,
            )
        )
    c = study.config
    return Forecast(lines, minutes, disk, c.processes, c.equal)


def minutes_of(study: Study, cell: Cell, rate: Rate) -> float:
    """Minutes of pre-training for the updates that are computed for a cell alone."""
    return hardware_flops(study, cell) * rate.per_flop / 60


def minutes_left(study: Study, cell: Cell, rate: Rate) -> float:
    """The same for those that are still to be computed."""
    return minutes_of(study, cell, rate) * (1 - trained_share(cell, home_of(study, cell)))


def hardware_flops(study: Study, cell: Cell) -> float:
    """The FLOPs that are computed for a cell alone, in the convention of a run's log."""
    if study.cost.convention != "hardware" and cell.flops:
        started = as_started(cell.config, study.cost.vocab_size)
        cell = replace(cell, flops=replace(study.cost, convention="hardware").flops(started))
    return cell.own_flops


def rates_of(study: Study, results: Iterable[Result]) -> dict[str, Rate]:
    """The rate of each recipe: from its encoders that are already trained, or else measured."""
    firsts = {cell.entry: cell for cell in reversed(study.cells)}
    found = {}
    for entry in study.recipes:
        trained = [r for r in results if r.entry == entry and r.seconds and r.flops]
        if trained:
            per_flop = statistics.median(r.seconds / r.flops for r in trained)
            found[entry] = Rate(per_flop, trained[0].parameters)
    unknown = [entry for entry in study.recipes if entry not in found]
    with Progress(len(unknown), title="measuring the rates", unit="recipes") as bar:
        for entry in unknown:
            found[entry] = probed(study, firsts[entry])
            bar.advance(1)
    return found


def probed(study: Study, cell: Cell) -> Rate:
    """Trains a recipe for a few seconds in a folder that is removed again. Raises UserError if it
    cannot be trained."""
    with tempfile.TemporaryDirectory(prefix="electrify-") as folder:
        run = Path(folder) / RUN
        said = Path(folder) / LOG
        with said.open("wb") as errors:
            slot = slots(1, study.config.device)[0]
            process = spawn(probe_of(study, cell, folder), errors, slot, study.config.device)
        try:
            while process.poll() is None and not enough(updates_of(run)):
                time.sleep(POLL_S)
            process.terminate()
            process.wait()
        finally:
            process.kill()
            process.wait()
        rates = [1 / r["flops_per_s"] for r in updates_of(run)]
        if not rates:
            raise UserError(f"{cell.entry} cannot be trained: {last_words(tail(said))}")
        parameters = read_json(run / FACTS)["parameters"]
        return Rate(statistics.median(rates[FEW:] or rates), parameters)


def probe_of(study: Study, cell: Cell, folder: str) -> Work:
    """A few seconds of a cell's training."""
    recipe = override(
        cell.config,
        {
            "max_steps": max(cell.steps, 1000),
            "max_minutes": None,
            "logging_steps": 1,
            "eval_steps": 0,
            "report_to": (),
            "device": study.config.device,
            # A frozen generator must have been trained, if only for one update.
            "generator_steps": min(1, cell.config.train.generator_steps),
        },
    )
    return Work(data=study.config.data, folder=folder, recipe=dump(recipe), parent=os.getpid())


def updates_of(run: Path) -> list[dict[str, Any]]:
    """The records of a log that has a record for each update."""
    if not (run / METRICS).is_file():
        return []
    return [r for r in log.read(run / METRICS) if r["kind"] == "train"]


def enough(updates: list[dict[str, Any]]) -> bool:
    """Whether the rate can be computed from these."""
    if len(updates) < 2:
        return False
    took = updates[-1]["seconds"] - updates[0]["seconds"]
    return took >= (PROBE_S if len(updates) >= FEW + FEWEST else LONGEST_S)
