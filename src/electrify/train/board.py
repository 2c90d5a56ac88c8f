"""TensorBoard as a tracker of a run: the numbers of the log, in TensorBoard's own file format."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..oldfiles.inside import make_inside


class Board:
    """TensorBoard's file format, written record by record. Not torch's SummaryWriter: that puts the
    host's name into the file name and writes from a thread, whose failures would appear somewhere
    else."""

    def __init__(self, folder: Path, resume_step: int | None) -> None:
        self._event, start, self._summary, writer = _tensorboard()
        make_inside(folder, folder.parent)
        # Numbered, not dated: TensorBoard reads in the order of names, and clocks jump.
        number = 1 + max(
            (
                int(p.suffix[1:])
                for p in folder.glob("events.out.tfevents.*")
                if p.suffix[1:].isdecimal()
            ),
            default=0,
        )
        self._writer = writer((folder / f"events.out.tfevents.{number:06d}").open("xb"))
        self._write(self._event(wall_time=time.time(), file_version="brain.Event:2"))
        self._start = start(status=start.START)
        self.forget(0 if resume_step is None else resume_step + 1)

    def _write(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())
        self._writer.flush()

    def forget(self, first: int) -> None:
        """Hides what was written from step `first` on, in this file or in earlier ones."""
        self._write(self._event(wall_time=time.time(), step=first, session_log=self._start))

    def add(self, step: int, numbers: Iterable[tuple[str, float]]) -> None:
        values = [self._summary.Value(tag=tag, simple_value=number) for tag, number in numbers]
        self._write(
            self._event(wall_time=time.time(), step=step, summary=self._summary(value=values))
        )

    def close(self) -> None:
        self._writer.close()


def _tensorboard() -> tuple[Any, Any, Any, Any]:
    """Event, SessionLog, Summary and RecordWriter. Raises UserError without the package."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # pyright: ignore
        from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError as e:
        raise UserError(
            "report_to tensorboard needs the package tensorboard; install it or say --report-to "
            "none"
        ) from e
    return Event, SessionLog, Summary, RecordWriter


def must_have_tensorboard() -> None:
    """Raises UserError without the package. This is checked before a corpus is prepared."""
    _tensorboard()


def open_board(folder: Path, resume_step: int | None) -> Board:
    try:
        return Board(folder, resume_step)
    except OSError as e:
        raise UserError(f"{folder} cannot be written ({e.strerror})") from e


def numbers(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """What a tracker can plot: the numbers, with nested names joined by a slash."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from numbers(value, f"{prefix}{name}/")
        elif not isinstance(value, (str, bool, list, tuple)) and value is not None:
            yield prefix + name, float(value)
