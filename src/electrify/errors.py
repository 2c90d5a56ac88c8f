"""The one exception that is a message to the user.

`UserError` means: the input (file, configuration, checkpoint, request) is wrong, and the text says what is wrong, where, and what to do.
The command line prints it as one sentence and exits with status 2. Anything else that escapes is our own fault and keeps its stack trace.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """One clear sentence for the user: what is wrong, where, and what to do."""


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for a name close to a known one, else the list of what is known."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(names)}"
