"""Sources -> documents: text in memory-bounded pieces, whatever the file looks like.

A document is the text between blank lines, a line, a file, or a record (a row of a table, a
sequence of FASTA, a molecule of a SMILES file). Newlines become \\n. Byte order marks, NUL
characters, white space at both ends and empty documents are removed. A document longer than
MAX_DOCUMENT is cut at white space into several.

Reading is strict: a row that lacks the text or holds something else is named and stops the run,
because otherwise a "5" or None would silently be trained on.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from ..errors import need
from .options import PrepareConfig
from .sources import Source, column_of, rows_of
from .streams import NOT_UTF8, Advance, text_chunks
from .tables import sequences

# In characters. It bounds memory; no work in the usual corpora comes near it.
MAX_DOCUMENT = 1 << 23
BLANK_LINE = re.compile(r"\n[^\S\n]*\n", re.ASCII)
_LINE = re.compile("\n")
# Halves of surrogate pairs that are not Python's way to keep bytes that are not UTF-8.
_HALF = re.compile("[\ud800-\udc7f\udd00-\udfff]")


def documents(
    source: Source, options: PrepareConfig, *, counts: Counter[str], advance: Advance = None
) -> Iterator[str]:
    """The documents of one source in order. `counts` receives blank (nothing but white space),
    empty_rows (those that are rows, or null), encoding_errors, nul_characters and cuts.

    advance: called with the number of bytes consumed. Raises UserError, naming file and line, for
    input that cannot be right.
    """
    for where, given in _placed(source, options, counts, advance):
        text = _encodable(given, options.encoding_errors, counts, where)
        if text is None:
            continue
        if "\0" in text:
            counts["nul_characters"] += text.count("\0")
            text = text.replace("\0", "")
        text = text.strip()
        counts["blank"] += not text
        yield from filter(None, map(str.strip, _cut(text, counts)))


def _placed(
    source: Source, options: PrepareConfig, counts: Counter[str], advance: Advance
) -> Iterator[tuple[str, str]]:
    """The texts of a source, each behind its place, which is for messages."""
    path, boundary = source.path, options.document_boundary
    if source.format in ("txt", "md"):
        if boundary == "auto":
            boundary = "file" if source.format == "md" else "blank-line"
        separator = {"blank-line": BLANK_LINE, "line": _LINE, "file": None}[boundary]
        errors = "strict" if options.encoding_errors == "strict" else "surrogateescape"
        for text in split(text_chunks(path, advance, errors=errors), separator, counts):
            yield str(path), text
    elif source.format == "fasta":
        lines = split(text_chunks(path, advance, errors="surrogateescape"), _LINE, counts)
        before = 0
        for number, _, letters in sequences(path, lines, longest=MAX_DOCUMENT):
            counts["cuts"] += number == before
            before = number
            if letters:
                yield f"{path}, line {number}: its sequence", letters
    else:
        column = source.column or column_of(source, options)
        for row in rows_of(source, options, advance=advance, only=column):
            text = row.text(column)
            counts["empty_rows"] += not text.strip()
            yield f"{row.where}: {column!r}", text


def split(
    chunks: Iterable[str], separator: re.Pattern[str] | None, counts: Counter[str]
) -> Iterator[str]:
    """The pieces between separators, those that are too long in several."""
    rest = ""
    for chunk in chunks:
        *whole, rest = separator.split(rest + chunk) if separator else (rest + chunk,)
        *parts, rest = _cut(rest, counts)
        yield from whole
        yield from parts
    if rest:
        yield rest


def _cut(text: str, counts: Counter[str]) -> list[str]:
    """The text in parts of at most MAX_DOCUMENT characters, cut at white space, or between
    characters where there is none."""
    parts = []
    while len(text) > MAX_DOCUMENT:
        counts["cuts"] += 1
        space = max(text.rfind(" ", 1, MAX_DOCUMENT), text.rfind("\n", 1, MAX_DOCUMENT))
        end = space if space > 0 else MAX_DOCUMENT
        parts.append(text[:end])
        text = text[end:]
    return [*parts, text]


def _encodable(text: str, errors: str, counts: Counter[str], where: str) -> str | None:
    """A text by the policy for what is no character: bytes that are not UTF-8, which are halves of
    surrogate pairs here, and others, which JSON may hold. None if it is to be skipped. errors:
    strict, replace or skip. Raises UserError under `strict`."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        need(errors != "strict", f"{where} {NOT_UTF8}")
    counts["encoding_errors"] += 1
    if errors == "skip":
        return None
    return _HALF.sub("\ufffd", text).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
