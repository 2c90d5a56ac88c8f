"""The record of a run: metrics.jsonl, with one JSON object per line, and trackers that show the
same numbers.

Every record is {"kind": "train" | "valid" | "event", "step": ..., ...}. The log of a run that was
interrupted and resumed equals that of an uninterrupted one, except for TIMING_FIELDS and events:
see `comparable`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal

from ..config.checks import TRACKERS
from ..errors import UserError, nearest
from ..oldfiles.folders import aside
from ..oldfiles.reading import open_regular
from ..oldfiles.run_folder import BOARD, METRICS
from ..oldfiles.schema import is_count
from ..oldfiles.whole import write_atomically
from ..progress import say
from .board import Board, numbers, open_board

MAX_LINE = 1 << 20  # bytes; a record has a few hundred
KINDS = ("train", "valid", "event")
# What a warning is about, for programs: its words may change.
Topic = Literal[
    "all_original",
    "all_replaced",
    "data",
    "epochs",
    "folder",
    "frequencies",
    "log",
    "non_finite",
    "save",
    "slow",
    "spike",
    "went_back",
]
# Fields that depend on the machine's speed, and so differ between two runs with the same numbers.
TIMING_FIELDS = frozenset(
    {"time", "seconds", "tokens_per_s", "flops_per_s", "mfu", "peak_memory_bytes", "joules"}
)


class MetricsLog:
    """Appends records to RUN/metrics.jsonl and to the trackers of `report_to`. Only rank 0 writes;
    elsewhere every method does nothing.

    resume_step: the step of the checkpoint from which the run continues; later records are dropped
    first, because they will be written again. None begins a new log. Raises UserError if
    `report_to` names an unknown or missing tracker or the file cannot be written.
    """

    def __init__(
        self, run: Path, *, resume_step: int | None, report_to: tuple[str, ...], rank: int
    ) -> None:
        for name in report_to:
            if name not in TRACKERS:
                raise UserError(f"report_to has no tracker {name!r}{nearest(name, TRACKERS)}")
        self._file: BinaryIO | None = None
        self._board: Board | None = None
        self._failing = False
        self.last: dict[str, dict[str, Any]] = {}
        """The last record of each kind, the latest at the end."""
        if rank != 0:
            return
        self._path = path = run / METRICS
        try:
            run.mkdir(parents=True, exist_ok=True)
            for record in rewind(path, resume_step):
                self._keep(record)
            self._file = path.open("a+b")  # readable too, in case the file loses its name
        except OSError as e:
            raise UserError(f"{path} cannot be written ({e.strerror})") from e
        if "tensorboard" in report_to:
            self._board = open_board(run / BOARD, resume_step)

    def write(self, record: Mapping[str, Any]) -> None:
        """Writes one record with "kind" and "step". Numbers that are not finite become the strings
        "nan", "inf", "-inf"; 0-dim tensors become numbers."""
        if self._file is None:
            return
        assert record["kind"] in KINDS, record
        plain = _plain(record)
        self._keep(plain)
        try:
            self._file.write(
                (json.dumps(plain, ensure_ascii=False, allow_nan=False) + "\n").encode()
            )
            self._file.flush()
            self._failing = False
        except OSError as e:
            # A full disk must not end the training: the buffer keeps what it could not write and
            # tries again with the next record.
            if not self._failing:
                say(f"warning: {METRICS} cannot be written ({e.strerror}); the run goes on")
            self._failing = True
        if record["kind"] != "event":
            figures = {k: v for k, v in record.items() if k not in ("kind", "step")}
            drawn = numbers(figures, f"{record['kind']}/")
            self._show(lambda board: board.add(record["step"], drawn))

    def _keep(self, record: dict[str, Any]) -> None:
        self.last.pop(record["kind"], None)
        self.last[record["kind"]] = record

    def _show(self, call: Callable[[Board], None]) -> None:
        if self._board is None:
            return
        try:
            call(self._board)
        # A tracker may fail in any way, and no tracker is worth losing the run.
        except Exception as e:  # noqa: BLE001
            say(
                f"warning: TensorBoard failed ({type(e).__name__}: {e}) and is switched off; "
                f"{METRICS} goes on"
            )
            self._board = None

    def warn(self, step: int, topic: Topic, warning: str, **more: Any) -> None:
        """Records an event of the run, and also shows it to the user."""
        if self._file is None:
            return
        event = {"kind": "event", "step": step, "warning": warning, "topic": topic}
        self.write(event | more)
        say(f"warning: {warning}")

    def rewind(self, step: int) -> None:
        """Drops the records after `step`, because the run has gone back to it."""
        if self._file is None:
            return
        try:
            self._file.flush()
            self.last.clear()
            for record in rewind(self._path, step):
                self._keep(record)
            self._file.close()
            self._file = self._path.open("a+b")
        except OSError as e:
            say(
                f"warning: {METRICS} cannot be rewritten ({e.strerror}): its lines after step "
                f"{step} stay, and these steps follow again"
            )
        self._show(lambda board: board.forget(step + 1))

    def sync(self) -> None:
        """Forces the records to the disk. Called before a checkpoint, so that the log is never
        behind the checkpoint."""
        if self._file is not None:
            try:
                self._file.flush()
                os.fsync(self._file.fileno())
            except OSError:
                self._failing = True  # `write` has warned or will

    def close(self) -> None:
        try:
            if self._file is not None:
                self._file.close()
        except OSError as e:
            say(f"warning: the end of {METRICS} could not be written ({e.strerror})")
        self._file = None
        if self._board is not None:
            try:
                self._board.close()
            except Exception as e:  # noqa: BLE001 - as above
                say(f"warning: TensorBoard failed while closing ({type(e).__name__}: {e})")
            self._board = None

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def rewind(path: Path, resume_step: int | None) -> list[dict[str, Any]]:
    """Drops every record after `resume_step` (all of them for None) and the line at which a process
    ended. If other lines are not records either, the file as it was is kept beside it. Returns the
    records that stay."""
    if not os.path.lexists(path):
        return []
    kept: list[bytes] = []
    records: list[dict[str, Any]] = []
    odd = 0
    for line, record in _lines(path):
        if record is None:
            odd += line.endswith(b"\n") and bool(line.strip())
        elif resume_step is not None and record["step"] <= resume_step:
            kept.append(line.rstrip(b"\n") + b"\n")
            records.append(record)
    if odd and (where := aside(path)) is not None:
        say(
            f"warning: {odd} lines of {path} are not records of a run; the file as it was is now "
            f"{where.name}"
        )
    write_atomically(path, b"".join(kept))
    return records


def begin_log(run: Path, *, trunk: Path, step: int) -> None:
    """Gives a run that starts after `step` of another one, in the folder `trunk`, the records up to
    there, if they exist, as if it had trained that far itself."""
    earlier = trunk / METRICS
    if earlier.is_file():
        kept = (line for line, record in _lines(earlier) if record and record["step"] <= step)
        write_atomically(run / METRICS, b"".join(line.rstrip(b"\n") + b"\n" for line in kept))


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """Each line, with its line end if it has one, and its record, which is None if the line is
    incomplete or damaged."""
    with open_regular(path, within=path.parent) as f:
        while line := f.readline(MAX_LINE):
            if len(line) == MAX_LINE and not line.endswith(b"\n"):
                while (rest := f.readline(MAX_LINE)) and not rest.endswith(b"\n"):
                    pass
                yield b"..." + rest[-1:], None
                continue
            yield line, _record(line)


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    sound = (
        isinstance(found, dict)
        and is_count(found.get("step"))
        and isinstance(found.get("kind"), str)
    )
    return found if sound else None


def read(path: Path) -> list[dict[str, Any]]:
    """The complete records of a metrics.jsonl, in order."""
    return [record for _, record in _lines(path) if record is not None]


def torn(path: Path) -> list[int]:
    """The numbers, counted from 1, of the lines that are not a complete record."""
    return [number for number, (_, record) in enumerate(_lines(path), start=1) if record is None]


def comparable(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The part of a log that must be equal for two identical runs: without events and
    TIMING_FIELDS."""
    return [
        {k: v for k, v in r.items() if k not in TIMING_FIELDS}
        for r in records
        if r["kind"] != "event"
    ]


def _plain(value: Any) -> Any:
    """`value` as strict JSON."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return _plain(value.item())  # a number of torch or numpy
