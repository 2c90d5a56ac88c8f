"""Messages and progress: the logger `electrify`, and a bar with rate and ETA on a terminal, or one
line about every ten seconds elsewhere.

From Python nothing is shown unless a program configures logging or calls `show_progress`, as the
command line does. It all goes to stderr then, because standard output belongs to results. A closed
or full stderr must not stop a run, so writing to it never raises.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from types import TracebackType
from typing import IO, Any, Self, cast

from .console import harmless

PLAIN_LINE_EVERY_S = 10.0
PER_HOUR_BELOW = 0.01  # units per second below which the rate is shown per hour
_live: list[Any] = []  # consoles of the bars now shown, so that messages are printed above them
_logger = logging.getLogger("electrify")


def _write(text: str) -> None:
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def _is_terminal() -> bool:
    """Whether stderr is a terminal. A program or a notebook may have made it None, or something
    that can only write."""
    try:
        return bool(sys.stderr.isatty())
    except (AttributeError, OSError, ValueError):
        return False


class _Stderr(logging.Handler):
    """Prints messages on stderr without breaking a live bar."""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if _live:
            _live[-1].print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            _write(text)


_stderr = _Stderr()


def show_progress(level: int = logging.INFO) -> None:
    """Prints messages and progress on stderr, as the command line does.

    Args:
        level: Of the messages: logging.WARNING leaves only warnings, without progress.
    """
    _logger.setLevel(level)
    _logger.addHandler(_stderr)
    _logger.propagate = False


def say(text: str, level: int = logging.INFO) -> None:
    """Logs one line, as a warning if it begins with `warning:`. Characters that would control the
    terminal are written out."""
    if text[:8].lower() == "warning:":
        level = logging.WARNING
    _logger.log(level, "%s", harmless(text))


def duration(seconds: float) -> str:
    """`7 s`, `3:05`, `2:03:05`."""
    s = round(seconds)
    if s < 60:
        return f"{s} s"
    return (
        f"{s // 3600}:{s // 60 % 60:02d}:{s % 60:02d}" if s >= 3600 else f"{s // 60}:{s % 60:02d}"
    )


def aligned(cells: list[list[str]], *, names: int) -> list[str]:
    """The rows of a table as lines: the first `names` columns to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = (
        "  ".join(
            c.ljust(w) if i < names else c.rjust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    )
    return [line.rstrip() for line in lines]


class _Unfailing:
    """A stream whose writes never raise: after a terminal is closed, every write would be an
    error."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Shown:
    """Something shown on the terminal while a block runs; nothing where there is no terminal, or
    where another one is shown. A context manager."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._bar: Any = None
        self._task: Any = None
        self._began = time.monotonic()

    def _columns(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def _start(self, **task: Any) -> None:
        self._began = time.monotonic()
        shown = _stderr in _logger.handlers and _logger.isEnabledFor(logging.INFO)
        if not shown or not _is_terminal() or _live:
            return
        from rich.console import Console
        from rich.progress import Progress as RichProgress

        with contextlib.suppress(OSError, ValueError):
            # Its writes never raise.
            console = Console(file=cast("IO[str]", _Unfailing(sys.stderr)))
            bar = RichProgress(*self._columns(), console=console, transient=True)
            self._task = bar.add_task(self.title, **task)
            bar.start()
            self._bar = bar
            _live.append(console)

    def _stop(self) -> bool:
        """Whether anything was shown."""
        if self._bar is None:
            return False
        _live.pop()
        self._bar.stop()
        self._bar = None
        return True


class Progress(_Shown):
    """Shows how far a piece of work has come. A context manager.

    total: how much there is in `unit` (e.g. "MB", "steps"), or None if unknown. done: how much of
    it an earlier process did, which counts for the share but not for the rate.
    """

    def __init__(self, total: float | None, *, title: str, unit: str, done: float = 0.0) -> None:
        super().__init__(title)
        self.total = total
        self.unit = unit
        self.done = done
        self.note = ""
        self._first = done
        self._since: tuple[float, float] | None = None
        """When the first units were done, and how many: what came before is not in the rate."""
        self._last_line = self._began

    def __enter__(self) -> Self:
        self._start(total=self.total, completed=self.done, note="", amount=self._amount())
        self._last_line = self._began
        return self

    def _columns(self) -> tuple[Any, ...]:
        from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeRemainingColumn
        from rich.text import Text

        class Note(ProgressColumn):
            """What a narrow terminal cuts first; it begins with the loss."""

            def render(self, task: Any) -> Text:
                return Text(task.fields["note"], no_wrap=True, overflow="ellipsis")

        return (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=12),
            TextColumn("{task.fields[amount]}", markup=False),
            TimeRemainingColumn(compact=True),
            Note(),
        )

    def advance(self, n: float = 1, note: str = "") -> None:
        """`n` more units are done. note: short text after the bar, e.g. "loss 1.23"; an empty one
        keeps the last note."""
        self.done += n
        self._since = self._since or (time.monotonic(), self.done)
        self.note = note or self.note
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, note=self.note, amount=self._amount())
            return
        now = time.monotonic()
        if now - self._last_line >= PLAIN_LINE_EVERY_S:
            self._last_line = now
            say(self.line())

    @property
    def rate(self) -> float:
        """Units per second since the first of them. A sum of shares that is off by its rounding is
        no progress yet."""
        start = self._began, self._first
        if self._since is not None and self.done > self._since[1]:
            start = self._since
        moved = self.done - start[1]
        if moved <= 1e-9 * abs(self.done):
            return 0.0
        return moved / max(time.monotonic() - start[0], 1e-9)

    def _amount(self) -> str:
        of = f"/{_short(self.total)}" if self.total is not None else ""
        rate, per = (self.rate * 3600, "h") if 0 < self.rate < PER_HOUR_BELOW else (self.rate, "s")
        return f"{_short(self.done)}{of} {self.unit}, {_short(rate)} {self.unit}/{per}"

    def line(self) -> str:
        """The state as one plain line: what, how much, rate, time left, note."""
        left = ""
        if self.total is not None and self.done < self.total and self.rate:
            left = f", {duration((self.total - self.done) / self.rate)} left"
        return f"{self.title}: {self._amount()}{left}" + (f", {self.note}" if self.note else "")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._stop() and time.monotonic() - self._began >= PLAIN_LINE_EVERY_S:
            say(self.line())


class Waiting(_Shown):
    """Shows that work in a library, whose progress is unknown, goes on: a clock on a terminal,
    elsewhere a line every ten seconds. A context manager."""

    def __init__(self, title: str) -> None:
        super().__init__(title)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._start(total=None)
        if self._bar is None:
            self._thread = threading.Thread(
                target=self._tell, name="electrify-waiting", daemon=True
            )
            self._thread.start()
        return self

    def _columns(self) -> tuple[Any, ...]:
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

        return SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()

    def _tell(self) -> None:
        while not self._ended.wait(PLAIN_LINE_EVERY_S):
            say(f"{self.title}: {duration(time.monotonic() - self._began)} so far")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()  # no line comes after the end
        self._stop()


def _short(x: float) -> str:
    return f"{x:,.0f}" if x == int(x) or abs(x) >= 100 else f"{x:.3g}"


def show(text: object) -> None:
    """Prints a result to standard output."""
    print(harmless(str(text), keep="\n"))  # noqa: T201
