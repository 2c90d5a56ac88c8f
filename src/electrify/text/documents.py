"""Sources -> documents: text in memory-bounded pieces, whatever the file looks like.

A document is the text between blank lines, a line, a file, or a record (a row of a table, a
sequence of FASTA, a molecule of a SMILES file). Newlines become \\n. Byte order marks, NUL
characters, white space at both ends and empty documents are removed. A document longer than
MAX_DOCUMENT is cut at white space into several.

Reading is strict: a row that lacks the text or holds something else is named and stops the run,
because otherwise a "5" or None would silently be trained on.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from .options import PrepareConfig
from .sources import Source, column_of, rows_of
from .streams import Advance, text_chunks, whole
from .tables import sequences

# In characters (in bytes while a file is being cut). It bounds memory; no work in the usual corpora
# comes near it.
MAX_DOCUMENT = 1 << 23
EMPTY_ROWS = "empty_rows"
"""The count of rows without text: null, empty, or nothing but white space."""
_BLANK_LINE = re.compile(rb"\n[^\S\n]*\n")
_LINE = re.compile(rb"\n")


def documents(
    source: Source, options: PrepareConfig, *, counts: Counter[str], advance: Advance = None
) -> Iterator[str]:
    """The documents of one source in order. `counts` receives blank, empty_rows (those of the
    blank ones that are rows), encoding_errors, nul_characters and cuts.

    advance: called with the number of bytes consumed. Raises UserError, naming file and line, for
    input that cannot be right.
    """
    readers = {"txt": _of_text, "md": _of_text, "fasta": _of_fasta}
    reader = readers.get(source.format, _of_rows)
    for text in reader(source, options, counts, advance):
        yield from _cleaned(text, counts)


def _of_text(
    source: Source, options: PrepareConfig, counts: Counter[str], advance: Advance
) -> Iterator[str]:
    boundary = options.document_boundary
    if boundary == "auto":
        boundary = "file" if source.format == "md" else "blank-line"
    separator = {"blank-line": _BLANK_LINE, "line": _LINE, "file": None}[boundary]
    for raw in split(text_chunks(source.path, advance), separator, counts):
        text = _whole(raw.decode("utf-8", "surrogateescape"), source, options, counts)
        if text is not None:
            yield text


def _of_fasta(
    source: Source, options: PrepareConfig, counts: Counter[str], advance: Advance
) -> Iterator[str]:
    """What follows `>` is not text. A sequence longer than MAX_DOCUMENT comes in pieces."""
    raw = split(text_chunks(source.path, advance), _LINE, counts)
    lines = (line.decode("utf-8", "surrogateescape") for line in raw)
    before = 0
    for number, _, letters in sequences(source.path, lines, longest=MAX_DOCUMENT):
        if number == before:
            counts["cuts"] += 1
        before = number
        text = _whole(letters, source, options, counts) if letters else None
        if text is not None:
            yield text


def _of_rows(
    source: Source, options: PrepareConfig, counts: Counter[str], advance: Advance
) -> Iterator[str]:
    column = source.column or column_of(source, options)
    for row in rows_of(source, options, advance=advance, only=column):
        where = f"{row.where}: {column!r}"
        text = whole(row.text(column), options.encoding_errors, counts, lambda where=where: where)
        if text is not None:
            if not text.strip():
                counts[EMPTY_ROWS] += 1
            yield text


def split(
    chunks: Iterable[bytes], separator: re.Pattern[bytes] | None, counts: Counter[str]
) -> Iterator[bytes]:
    """The pieces between separators; a piece longer than MAX_DOCUMENT is cut at white space, or
    between characters if it has no white space."""
    rest = b""
    for chunk in chunks:
        *whole, rest = separator.split(rest + chunk) if separator else (rest + chunk,)
        yield from whole
        while len(rest) > MAX_DOCUMENT:
            counts["cuts"] += 1
            cut = max(rest.rfind(b" ", 1, MAX_DOCUMENT), rest.rfind(b"\n", 1, MAX_DOCUMENT))
            if cut < 1:
                cut = MAX_DOCUMENT
                # The place is inside a UTF-8 character.
                while cut > MAX_DOCUMENT - 4 and rest[cut] & 0xC0 == 0x80:
                    cut -= 1
            yield rest[:cut]
            rest = rest[cut:]
    if rest:
        yield rest


def _cleaned(text: str, counts: Counter[str]) -> Iterator[str]:
    if "\0" in text:
        counts["nul_characters"] += text.count("\0")
        text = text.replace("\0", "")
    rest = text.strip()
    if not rest:
        counts["blank"] += 1
    while len(rest) > MAX_DOCUMENT:
        counts["cuts"] += 1
        space = max(rest.rfind(" ", 1, MAX_DOCUMENT), rest.rfind("\n", 1, MAX_DOCUMENT))
        stop = space if space > 0 else MAX_DOCUMENT
        if piece := rest[:stop].strip():
            yield piece
        rest = rest[stop:]
    if rest := rest.strip():
        yield rest


# ------------------------------------------------------------------ what is not UTF-8


def _whole(text: str, source: Source, options: PrepareConfig, counts: Counter[str]) -> str | None:
    return whole(text, options.encoding_errors, counts, lambda: _first_bad_line(source.path))


def _first_bad_line(path: Path) -> str:
    """`FILE, line N`: the place of the first byte that is not UTF-8. Reads the file once more."""
    number = 1
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for chunk in text_chunks(path):
            number += decoder.decode(chunk).count("\n")
    except UnicodeDecodeError as e:
        number += e.object[: e.start].count(b"\n")
    return f"{path}, line {number},"
