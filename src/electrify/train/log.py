"""The record of a run: metrics.jsonl, with one JSON object per line; TensorBoard and Weights &
Biases, which show the same numbers; and what is in a line: sums of metrics, and how fast the run
is, in tokens and FLOPs per second and as a share of the machine's peak rate (MFU).

Every record is {"kind": "train" | "valid" | "event", "step": ..., ...}. The log of a run that was
interrupted and resumed equals that of an uninterrupted one, except for events and for fields that
depend on the machine's speed.
"""

from __future__ import annotations

import json
import math
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from ..files import write
from ..progress import say
from ..recipe import Recipe, values_of
from ..terms import Terms
from . import BOARD, METRICS, WANDB
from .dist import sum_across
from .machine import peak_memory_bytes


class MetricsLog:
    """Appends records to RUN/metrics.jsonl and to the trackers in the recipe's `report_to`. Only
    rank 0 writes; elsewhere every method does nothing.

    resume_step: the step of the checkpoint from which the run continues; later records are dropped
    first, because they will be written again. None begins a new log.
    """

    def __init__(self, run: Path, recipe: Recipe, *, resume_step: int | None, rank: int) -> None:
        self._file: BinaryIO | None = None
        self._boards: list[Any] = []
        if rank != 0:
            return
        self._path, self._recipe = run / METRICS, recipe
        self._open(-1 if resume_step is None else resume_step)

    def _open(self, step: int) -> None:
        """Drops what was written after `step`, and opens the file and the trackers behind it."""
        _keep(self._path, step)
        self._file = self._path.open("ab")
        run, trackers = self._path.parent, self._recipe.train.report_to
        if BOARD in trackers:
            from torch.utils.tensorboard import SummaryWriter

            self._boards.append(SummaryWriter(run / BOARD, purge_step=step + 1))
        if WANDB in trackers:
            self._boards.append(WandbWriter(run / WANDB, self._recipe))

    def write(self, record: Mapping[str, Any]) -> None:
        """Writes one record with "kind" and "step". Numbers that are not finite become the strings
        "nan", "inf", "-inf"."""
        if self._file is None:
            return
        finite = {
            name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in record.items()
        }
        line = json.dumps(finite, ensure_ascii=False, allow_nan=False) + "\n"
        self._file.write(line.encode())
        self._file.flush()
        for board in self._boards if record["kind"] != "event" else ():
            for name, value in finite.items():
                if isinstance(value, int | float) and name != "step":
                    board.add_scalar(f"{record['kind']}/{name}", value, record["step"])
            board.flush()

    def warn(self, step: int, topic: str, warning: str, **more: Any) -> None:
        """Records an event of the run, and also shows it to the user.

        topic: What the warning is about, for programs: its words may change.
        """
        if self._file is not None:
            event = {"kind": "event", "step": step, "warning": warning, "topic": topic}
            self.write(event | more)
            say(f"warning: {warning}")

    def rewind(self, step: int) -> None:
        """Drops the records after `step`, because the run has gone back to it."""
        if self._file is not None:
            self.close()
            self._open(step)

    def sync(self) -> None:
        """Forces the records to the disk. Called before a checkpoint, so that the log is never
        behind the checkpoint."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        while self._boards:
            self._boards.pop().close()

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class WandbWriter:
    """Weights & Biases, as torch's SummaryWriter is used here. A run that resumes continues its own
    curves, by the id in its folder. Of a step that is trained again, W&B keeps the first numbers.
    """

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        import wandb  # pyright: ignore[reportMissingImports]

        own = folder / "id"
        if not own.exists():
            folder.mkdir(exist_ok=True)
            write(own, uuid.uuid4().hex)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "electrify"),
            name=folder.parent.name,
            id=own.read_text(encoding="utf-8"),
            resume="allow",
            dir=folder.parent,
            config=values_of(recipe),
        )

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self._run.log({name: value}, step=step)

    def flush(self) -> None:
        """W&B sends by itself."""

    def close(self) -> None:
        self._run.finish()


def begin_log(run: Path, *, prefix: Path, step: int) -> None:
    """Gives a run that starts after `step` of another one, in the folder `prefix`, the records up
    to there, as if it had trained that far itself."""
    write(run / METRICS, (prefix / METRICS).read_bytes())
    _keep(run / METRICS, step)


def _keep(path: Path, step: int) -> None:
    """Drops every record after `step`, and the line at which a process ended."""
    if path.exists():
        write(path, b"".join(line for line, record in _lines(path) if record["step"] <= step))


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Each line that is complete and undamaged, ended as it should be, and its record."""
    with path.open("rb") as file:
        for line in file:
            with suppress(ValueError):
                yield line.rstrip(b"\n") + b"\n", json.loads(line)


def read(path: Path) -> list[dict[str, Any]]:
    """The complete records of a metrics.jsonl, in order."""
    return [record for _, record in _lines(path)]


def with_numbers(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with numbers in place of "nan", "inf" and "-inf"."""
    return {k: float(v) if v in ("nan", "inf", "-inf") else v for k, v in record.items()}


# ------------------------------------------------------------------ sums between two lines


def numbers_of(terms: Terms) -> Tensor:
    """[N, 2] float64: the sum and the count of each term, of scalars."""
    rows = [torch.stack([t.sum.detach().double(), t.count.double()]) for t in terms.values()]
    return torch.stack(rows)


def arranged(names: Sequence[str], numbers_N2: Tensor, wanted: Sequence[str]) -> Tensor:
    """The rows of numbers in another order; zeros for names without a row."""
    rows = dict(zip(names, numbers_N2, strict=True))
    nothing = numbers_N2.new_zeros(2)
    return torch.stack([rows.get(name, nothing) for name in wanted])


class MetricSums:
    """Sums and counts of the terms since the last log line, on the device, in float64. A checkpoint
    holds them exactly, so the log of a resumed run equals that of an uninterrupted one."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.names: list[str] = []
        self.numbers_N2 = torch.zeros(0, 2, dtype=torch.float64, device=device)

    def add(self, names: list[str], numbers_N2: Tensor) -> None:
        """Adds terms as `numbers_of` gives them: one operation, if the names are those that are
        there, in their order."""
        if names != self.names:
            every = [*names, *(name for name in self.names if name not in names)]
            self.numbers_N2 = arranged(self.names, self.numbers_N2, every)
            numbers_N2 = arranged(names, numbers_N2, every)
            self.names = every
        self.numbers_N2 += numbers_N2

    def save(self) -> dict[str, list[float]]:
        """The sum and the count of each term over all ranks, as JSON that `load` reads back to the
        bit."""
        numbers_N2 = self.numbers_N2.clone()
        sum_across([numbers_N2])
        return dict(sorted(zip(self.names, numbers_N2.tolist(), strict=True)))

    def load(self, saved: dict[str, list[float]], *, rank: int) -> None:
        """Loads global sums: rank 0 takes them, and the other ranks get zeros under the same names,
        because all ranks must add up the same list."""
        self.names = list(saved)
        numbers_N2 = torch.tensor(list(saved.values()), dtype=torch.float64).view(-1, 2)
        self.numbers_N2 = (numbers_N2 if rank == 0 else 0 * numbers_N2).to(self.device)

    def means(self) -> dict[str, float]:
        return {name: total / count for name, (total, count) in self.save().items() if count > 0}


# ------------------------------------------------------------------ rates


class Meter:
    """Counts over all legs of a run (a leg is one start of the command). flops: gives the FLOPs of
    the run before an update."""

    def __init__(self, device: torch.device, *, flops: Callable[[int], float]) -> None:
        self.device = device
        self.flops = flops
        self.seconds_before = 0.0  # in earlier legs
        self.start(step=0, tokens=0)

    def start(self, *, step: int, tokens: int, peak: float = math.inf) -> None:
        """Begins to measure now, after that many updates and tokens. peak: the most FLOP/s that all
        devices together can do."""
        self.peak = peak
        self._began = time.monotonic()
        self.begin_line(step=step, tokens=tokens)

    def begin_line(self, *, step: int, tokens: int) -> None:
        """The next line counts from here. If the run has gone back, the time that it used still
        counts."""
        self._line = (step, tokens)
        self._line_began = time.monotonic()

    def seconds(self) -> float:
        """Wall time of the run."""
        return self.seconds_before + time.monotonic() - self._began

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Time spent inside (a validation, a checkpoint) counts for the run but not for its
        rate."""
        began = time.monotonic()
        yield
        self._line_began += time.monotonic() - began

    def line(self, *, step: int, tokens: int) -> dict[str, Any]:
        """The fields of a log line. Rates are those of the updates since the last line."""
        step_before, tokens_before = self._line
        worked = max(time.monotonic() - self._line_began, 1e-9)
        self.begin_line(step=step, tokens=tokens)
        more = tokens - tokens_before
        flops = self.flops(step) - self.flops(step_before)
        return {
            "flops": self.flops(step),
            "seconds": self.seconds(),
            "tokens_per_s": more / worked,
            "flops_per_s": flops / worked,
            "mfu": flops / worked / self.peak,
            "peak_memory_bytes": peak_memory_bytes(self.device),
        }


def shown_rate(line: dict[str, Any]) -> str:
    """`20.6 k tokens/s, 0.155 TFLOP/s (34 % of peak)`."""
    return (
        f"{line['tokens_per_s'] / 1e3:.1f} k tokens/s, {line['flops_per_s'] / 1e12:.3g} TFLOP/s "
        f"({100 * line['mfu']:.0f} % of peak)"
    )
