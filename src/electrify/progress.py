"""Messages and progress: the logger `electrify`, and a bar with rate and ETA on a terminal, or one
line about every ten seconds elsewhere.

From Python it is shown on a terminal and in notebooks, unless the program configures logging before
its first call; elsewhere after `show_progress`, as in the command line. It all goes to stderr,
because standard output belongs to results. A closed or full stderr must not stop a run, so writing
to it never raises. File names, labels and words of a corpus may contain sequences that control a
terminal or a browser, so they are shown by `harmless` and `inert`.
"""

from __future__ import annotations

import html
import logging
import sys
import threading
import time
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self

PLAIN_LINE_EVERY_S = 10.0
PER_HOUR_BELOW = 0.01  # units per second below which the rate is shown per hour
_logger = logging.getLogger("electrify")
_STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_JOINERS = "\u200c\u200d"  # Persian and emoji need them, and they control nothing


class _Stderr(logging.Handler):
    """Standard error: prints messages above a bar, and is the stream of bars. After a terminal is
    closed, every write would be an error; and a program or a notebook may have made sys.stderr
    None, or something that can only write."""

    bar: Any = None
    """The bar that is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        if self.bar is not None:
            self.bar.clear()
        self.write(f"{record.getMessage()}\n")
        self.flush()

    def write(self, text: str) -> None:
        with suppress(AttributeError, OSError, ValueError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(AttributeError, OSError, ValueError):
            sys.stderr.flush()

    def isatty(self) -> bool:
        with suppress(AttributeError, OSError, ValueError):
            return bool(sys.stderr.isatty())
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


_stderr = _Stderr()


def show_progress(level: int = logging.INFO) -> None:
    """Prints messages and progress on stderr, as the command line does.

    Args:
        level: Of the messages: logging.WARNING leaves only warnings, without progress.
    """
    _logger.setLevel(level)
    _logger.addHandler(_stderr)
    _logger.propagate = False


def show_on_terminals() -> None:
    """`show_progress` on a terminal and in notebooks, unless logging is configured."""
    somebody = _stderr.isatty() or "ipykernel" in sys.modules
    if somebody and not (_logger.handlers or _logger.level or logging.root.handlers):
        show_progress()


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


class Progress:
    """Shows how far a piece of work has come: a bar on a terminal, unless another one is shown
    there, and plain lines elsewhere. A context manager.

    total: how much there is in `unit` (e.g. "MB", "steps"), or None if unknown. done: how much of
    it an earlier process did, which counts for the share but not for the rate. bar: False where
    results are printed on the same terminal.
    """

    def __init__(
        self,
        total: float | None,
        *,
        title: str,
        unit: str,
        done: float = 0.0,
        bar: bool = True,
    ) -> None:
        self.title = title
        self._may_be_bar = bar
        self.total = total
        self.unit = unit
        self.done = done
        self.note = ""
        self._bar: Any = None
        self._first = done
        self._since: tuple[float, float] | None = None
        """When the first units were done, and how many: what came before is not in the rate."""
        self._said: float | None = None  # how much was done at the last line
        self._began = self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        self._began = self._last_line = time.monotonic()
        shown = _stderr in _logger.handlers and _logger.isEnabledFor(logging.INFO)
        if self._may_be_bar and shown and _stderr.isatty() and _stderr.bar is None:
            from tqdm import tqdm

            tqdm.set_lock(threading.RLock())  # its own is also a lock of processes
            tqdm.monitor_interval = 0  # without its thread
            how: Any = {"initial": self.done, "file": _stderr, "leave": False}
            how |= {"dynamic_ncols": True, "bar_format": "{desc} {bar:12} {unit}"}
            self._bar = tqdm(total=self.total, desc=self.title, unit=self._rest(), **how)
            _stderr.bar = self._bar
        return self

    def advance(self, n: float = 1, note: str = "") -> None:
        """`n` more units are done. note: short text after the rest, e.g. "loss 1.23"; an empty one
        keeps the last note."""
        self.done += n
        self._since = self._since or (time.monotonic(), self.done)
        self.note = note or self.note
        if self._bar is not None:
            self._bar.unit = self._rest()
            self._bar.update(n)
        elif time.monotonic() - self._last_line >= PLAIN_LINE_EVERY_S:
            self._say()

    def _say(self) -> None:
        self._last_line, self._said = time.monotonic(), self.done
        say(f"{self.title}: {self._rest()}")

    @property
    def rate(self) -> float:
        """Units per second since the first of them. A sum of shares that is off by its rounding is
        no progress yet."""
        at, before = self._since or (self._began, self._first)
        if self.done == before:
            at, before = self._began, self._first
        moved = self.done - before
        far = moved > 1e-9 * abs(self.done)
        return moved / max(time.monotonic() - at, 1e-9) if far else 0.0

    def _amount(self) -> str:
        of = f"/{_short(self.total)}" if self.total is not None else ""
        rate, per = (self.rate * 3600, "h") if 0 < self.rate < PER_HOUR_BELOW else (self.rate, "s")
        return f"{_short(self.done)}{of} {self.unit}, {_short(rate)} {self.unit}/{per}"

    def _rest(self) -> str:
        """How much, rate, time left, note."""
        left = ""
        if self.total is not None and self.done < self.total and self.rate:
            left = f", {duration((self.total - self.done) / self.rate)} left"
        return self._amount() + left + (f", {self.note}" if self.note else "")

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = _stderr.bar = None
        elif time.monotonic() - self._began >= PLAIN_LINE_EVERY_S and self._said != self.done:
            self._say()


class Waiting(Progress):
    """Shows that work in a library, whose progress is unknown, goes on: the time that it takes."""

    def __init__(self, title: str) -> None:
        super().__init__(None, title=title, unit="s")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="electrify-waiting", daemon=True)

    def __enter__(self) -> Self:
        super().__enter__()
        self._thread.start()
        return self

    def _tick(self) -> None:
        while not self._ended.wait(1):
            self.advance(1)

    def _amount(self) -> str:
        return duration(time.monotonic() - self._began)

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()  # no line comes after the end
        super().__exit__(*error)


def _short(x: float) -> str:
    return f"{x:,.0f}" if x == int(x) or abs(x) >= 100 else f"{x:.3g}"


def show(text: object) -> None:
    """Prints a result to standard output."""
    print(harmless(str(text), keep="\n"))  # noqa: T201


# ------------------------------------------------------------------ foreign text


def harmless(text: str, *, keep: Sequence[str] = ()) -> str:
    """The text with control characters, escapes and characters that reorder or hide text written
    out visibly (\\x1b), and also bytes that could not be decoded."""

    def shown(c: str) -> str:
        plain = c in keep or c in _JOINERS or unicodedata.category(c) not in _STEERING
        return c if plain else c.encode("unicode_escape").decode("ascii")

    return text if text.isascii() and text.isprintable() else "".join(map(shown, text))


def inert(text: str) -> str:
    """Foreign text as one line that Markdown and HTML leave alone."""
    line = "".join(c if c.isprintable() else " " for c in text)
    return html.escape(line, quote=False).replace("|", "\\|").replace("`", "'")


def size(n: float) -> str:
    """A number of bytes in GB, or in the next smaller unit in which it is not 0."""
    for unit, one in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= one / 10:
            return f"{n / one:,.1f} {unit}"
    return f"{n:,.0f} bytes"
