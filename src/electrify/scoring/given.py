"""The text that `electrify detect` is to judge: TEXT, a file, or standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import BinaryIO

from ..errors import UserError
from ..text.streams import decoded, must_be_characters, read_text
from .options import DetectConfig


def given_text(options: DetectConfig, stdin: BinaryIO | None = None) -> str:
    """The text to judge. Raises UserError if it is empty, binary or badly encoded, or if there is
    none."""
    if options.text is not None:
        try:
            data = options.text.encode("utf-8")
        except UnicodeEncodeError:
            raise UserError("TEXT on the command line is not UTF-8") from None
        name = "TEXT"
        text = decoded(data, "TEXT")
    elif options.file is not None:
        name = options.file
        text = read_text(options.file)
    else:
        name = "standard input"
        text = decoded(_piped(stdin), "standard input")
    if not text.strip():
        raise UserError(f"{name} is empty")
    return text


def given_texts(texts: Iterable[str]) -> list[str]:
    """The texts that a caller in Python gives. Raises UserError for a single text, which would be
    read letter by letter."""
    if isinstance(texts, str):
        raise UserError("texts must be a list, not one text")
    found = list(texts)
    for i, text in enumerate(found, 1):
        must_be_characters(text, f"text {i}")
    return found


def _piped(stdin: BinaryIO | None) -> bytes:
    """The content of standard input. It may be a terminal, closed (`<&-`), or something that cannot
    be read (`< folder`)."""
    stream = stdin or (sys.stdin.buffer if sys.stdin is not None else None)
    if stream is None:
        raise UserError("no text: standard input is closed; give TEXT or --file")
    try:
        if stream.isatty():
            raise UserError("no text: give TEXT or --file, or pipe a text into standard input")
        return stream.read()
    except OSError as e:
        raise UserError(f"standard input cannot be read ({e.strerror}); give TEXT or --file") from e
