"""The text of one row of a file, checked, and the column that holds it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..errors import UserError
from .options import PrepareConfig
from .source import Source

# The names of columns that hold texts, in the order in which they are looked for.
TEXT_COLUMNS = ("text", "sentence", "sentence1", "content", "document", "sequence", "seq", "smiles")
TEXT_COLUMNS += ("code", "review", "utterance", "tweet", "body")
# What may separate the columns of a table, by its format, in place of its own separator.
_SEPARATORS = {
    "csv": {
        "\t": "tabs: name the file .tsv",
        ";": "';': save it with commas",
        "|": "'|': save it with commas",
    },
    "tsv": {
        ",": "commas: name the file .csv",
        ";": "';': save it with tabs",
        "|": "'|': save it with tabs",
    },
}
_HALF = re.compile("[\ud800-\udfff]")
Advance = Callable[[int], None] | None


def column_of(source: Source, options: PrepareConfig) -> str:
    """The column that holds the texts of a source."""
    return source.column or options.text_column


def separator_hint(columns: Sequence[str], kind: str) -> str:
    """What to say about a table that seems to have one column because another sign separates them;
    empty if it does not seem so. kind: csv or tsv; nothing is said of others."""
    only = columns[0] if len(columns) == 1 else ""
    signs = _SEPARATORS.get(kind.removeprefix("."), {})
    found = next((said for sign, said in signs.items() if sign in only), "")
    return f"; the columns seem to be separated by {found}" if found else ""


def valid_text(
    text: Any, where: str, column: str, options: PrepareConfig, counts: Counter[str]
) -> str | None:
    """The text of a row; None if it is to be dropped. Raises UserError if it is not text."""
    if text is None:
        counts["blank"] += 1
        return None
    if not isinstance(text, str):
        raise UserError(f"{where}: {column!r} is of type {type(text).__name__}, not text")
    try:
        text.encode("utf-8")
    # Half a surrogate pair (JSON can write one), or a byte that was not UTF-8.
    except UnicodeEncodeError as e:
        if options.encoding_errors == "strict":
            raise UserError(
                f"{where}: {column!r} is not valid Unicode; choose encoding_errors replace or skip"
            ) from e
        counts["encoding_errors"] += 1
        return _whole(text) if options.encoding_errors == "replace" else None
    return text


def no_column(where: str, column: str, found: Iterable[Any], kind: str = "") -> UserError:
    """kind: csv or tsv, of a table."""
    names = list(map(str, found))
    hint = separator_hint(names, kind) or "; choose one with text_column"
    return UserError(f"{where} has no {column!r}; it has {', '.join(names) or 'nothing'}{hint}")


def _whole(text: str) -> str:
    """The text with U+FFFD for what is not a character: for bytes that were not UTF-8, as
    elsewhere, and for half a surrogate pair."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:
        return _HALF.sub("\ufffd", text)
