"""Shows foreign text safely: file names, labels and words of a corpus may contain sequences that
control a terminal or a browser."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Sequence

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
    line = "".join(c if c.isprintable() else " " for c in text)
    return html.escape(line, quote=False).replace("|", "\\|").replace("`", "'")


def size(n: float) -> str:
    """A number of bytes in GB, or in the next smaller unit in which it is not 0."""
    for unit, one in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= one / 10:
            return f"{n / one:,.1f} {unit}"
    return f"{n:,.0f} bytes"
