"""Finding: one thing that was seen in a folder, how bad it is, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ..errors import ADVICE, UserError, code_of, is_of_memory

Level = Literal["ok", "note", "warning", "error"]
Kind = Literal["DATA", "RUN", "MODEL"]
LEVELS: tuple[Level, ...] = ("ok", "note", "warning", "error")


CORRECT = "Correct that in the file, or restore the folder from a copy."


@dataclass(frozen=True)
class Finding:
    """One line of the report. code: a stable name for programs; fact: what was seen, with numbers;
    advice: what to do, in one or two sentences."""

    level: Level
    code: str
    fact: str
    advice: str = ""


def ok(code: str, fact: str) -> Finding:
    return Finding("ok", code, fact)


def note(code: str, fact: str, advice: str = "") -> Finding:
    return Finding("note", code, fact, advice)


def warning(code: str, fact: str, advice: str) -> Finding:
    return Finding("warning", code, fact, advice)


def error(code: str, fact: str, advice: str) -> Finding:
    return Finding("error", code, fact, advice)


class DamageError(Exception):
    """Raised if a check cannot go on because something is damaged. It becomes a finding and is
    never raised outside this room."""

    def __init__(self, code: str, fact: str, advice: str) -> None:
        super().__init__(fact)
        self.finding = error(code, fact, advice)


@dataclass
class Diagnosis:
    """A folder and the findings about it."""

    path: Path
    kind: Kind
    findings: list[Finding] = field(default_factory=list)
    traits: dict[str, Any] = field(default_factory=dict)
    """The facts that are needed to compare it with other folders."""

    def run(self, check: Callable[[], Iterable[Finding]]) -> None:
        """Adds the findings of a check. If a damaged folder breaks the check, that is a finding,
        too."""
        self.findings += guarded(check)

    def look(self, checks: Callable[[], None]) -> None:
        """Runs code that makes several checks. If an unreadable folder breaks it, that is a
        finding, too."""
        try:
            checks()
        except (DamageError, UserError, OSError) as e:
            self.findings += guarded(partial(_raised, e))

    def count(self, level: Level) -> int:
        return sum(f.level == level for f in self.findings)


def as_sentence(advice: str) -> str:
    """The advice of a message (`do this`) as a sentence of its own (`Do this.`)."""
    return f"{advice[:1].upper()}{advice[1:]}."


def _raised(error: Exception) -> Iterator[Finding]:
    raise error
    yield


def guarded(check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """The findings of a check; an exception ends it, not the report. Memory that runs out ends the
    report, because it says nothing about the folder."""
    try:
        yield from check()
    except DamageError as e:
        yield e.finding
    except UserError as e:
        yield error("refused", e.fact, as_sentence(e.advice) if e.advice else CORRECT)
    except OSError as e:
        if is_of_memory(e):
            raise
        name = Path(e.filename).name if isinstance(e.filename, str) else "a file"
        yield error(
            "unreadable",
            f"{name} cannot be read ({e.strerror or e})",
            as_sentence(
                ADVICE.get(code_of(e), "look at the disk and at the permissions of the file")
            ),
        )
    # Damage can break a check in any way; the rest of the folder is checked all the same.
    except Exception as e:
        if is_of_memory(e):
            raise
        said = " ".join(str(e).split())[:200]
        yield error(
            "damaged",
            f"a check broke on what it read ({type(e).__name__}: {said})",
            "A file here is damaged; restore the folder from a copy.",
        )
