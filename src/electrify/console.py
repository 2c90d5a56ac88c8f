"""Shows foreign text safely: file names, labels and words of a corpus may contain sequences that
control a terminal, a browser or a spreadsheet."""

from __future__ import annotations

import reprlib
import unicodedata
from collections.abc import Sequence
from typing import Any

_STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_JOINERS = "\u200c\u200d"  # Persian and emoji need them, and they control nothing


def harmless(text: str, *, keep: Sequence[str] = ()) -> str:
    """The text with control characters, escapes and characters that reorder or hide text written
    out visibly (\\x1b), and also bytes that could not be decoded."""

    def shown(c: str) -> str:
        plain = c in keep or c in _JOINERS or unicodedata.category(c) not in _STEERING
        return c if plain else c.encode("unicode_escape").decode("ascii")

    return text if text.isascii() and text.isprintable() else "".join(map(shown, text))


def inert(text: str) -> str:
    """Foreign text as one line that Markdown and HTML leave alone."""
    safe = "".join(c if c.isprintable() else " " for c in text)
    for sign, shown in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("`", "'")):
        safe = safe.replace(sign, shown)
    return safe


def uncalculated(cell: str) -> str:
    """Foreign text as a CSV cell that a spreadsheet shows and does not calculate."""
    return "'" + cell if cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def size(n: float, *, digits: int = 1) -> str:
    """A number of bytes in GB, or in the next smaller unit in which it is not 0."""
    for unit, one in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= one / 10**digits:
            return f"{n / one:,.{digits}f} {unit}"
    return f"{n:,.0f} bytes"


def brief(value: Any) -> str:
    """A value for a message, shortened however large or deep it is."""
    shown = reprlib.Repr()
    shown.maxstring = shown.maxlong = shown.maxother = 60
    try:
        return shown.repr(value)
    except ValueError:  # Python refuses to print numbers of thousands of digits
        return "a number of thousands of digits"
