"""The text of one row of a file, checked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from ..config.prepare import PrepareConfig
from ..errors import UserError

_HALF = re.compile("[\ud800-\udfff]")
Advance = Callable[[int], None] | None


def valid_text(text: Any, where: str, options: PrepareConfig, counts: Counter[str]) -> str | None:
    """The text of a row; None if it is to be dropped. Raises UserError if it is not text."""
    if text is None:
        counts["blank"] += 1
        return None
    if not isinstance(text, str):
        raise UserError(
            f"{where}: {options.text_column!r} is of type {type(text).__name__}, not text"
        )
    try:
        text.encode("utf-8")
    # Half a surrogate pair (JSON can write one), or a byte that was not UTF-8.
    except UnicodeEncodeError as e:
        if options.encoding_errors == "strict":
            raise UserError(
                f"{where}: {options.text_column!r} is not valid Unicode; choose encoding_errors "
                "replace or skip"
            ) from e
        counts["encoding_errors"] += 1
        return _whole(text) if options.encoding_errors == "replace" else None
    return text


def no_column(where: str, options: PrepareConfig, found: Any) -> UserError:
    return UserError(
        f"{where} has no {options.text_column!r}; it has "
        f"{', '.join(map(str, found)) or 'nothing'}; choose one with text_column"
    )


def _whole(text: str) -> str:
    """The text with U+FFFD for what is not a character: for bytes that were not UTF-8, as
    elsewhere, and for half a surrogate pair."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:
        return _HALF.sub("\ufffd", text)
