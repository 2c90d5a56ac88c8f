"""Sources -> documents: text in memory-bounded pieces, whatever the file looks like.

A document is the text between blank lines, a line, a file, or a record (a row of a table, a
sequence of FASTA, a molecule of a SMILES file). Newlines become \\n. Byte
order marks, NUL characters, white space at both ends and empty documents are removed. A document
longer than MAX_DOCUMENT is cut at white space into several.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

from ..errors import UserError
from . import records, sequences
from .decoding import MAX_DOCUMENT, decode, first_bad_line, split, text_chunks
from .options import PrepareConfig
from .source import Source

_BLANK_LINE = re.compile(rb"\n[^\S\n]*\n")
_LINE = re.compile(rb"\n")


def documents(
    source: Source,
    options: PrepareConfig,
    *,
    counts: Counter[str],
    advance: Callable[[int], None] | None = None,
) -> Iterator[str]:
    """The documents of one source in order. `counts` receives blank, encoding_errors,
    nul_characters and cuts.

    advance: called with the number of bytes consumed. Raises UserError, naming file and line, for
    input that cannot be right.
    """
    read = READERS.get(source.format, records.texts)
    for text in read(source, options, counts, advance):
        yield from _cleaned(text, counts)


def _cleaned(text: str, counts: Counter[str]) -> Iterator[str]:
    if "\0" in text:
        counts["nul_characters"] += text.count("\0")
        text = text.replace("\0", "")
    text = text.strip()
    if len(text) <= MAX_DOCUMENT:
        if text:
            yield text
        else:
            counts["blank"] += 1
        return
    start = 0
    while start < len(text):
        stop = min(start + MAX_DOCUMENT, len(text))
        if stop < len(text):
            stop = (
                max(text.rfind(" ", start + 1, stop), text.rfind("\n", start + 1, stop), start)
                or stop
            )
            stop = stop if stop > start else start + MAX_DOCUMENT
            counts["cuts"] += 1
        if piece := text[start:stop].strip():
            yield piece
        start = stop


def _of_text(
    source: Source,
    options: PrepareConfig,
    counts: Counter[str],
    advance: Callable[[int], None] | None,
) -> Iterator[str]:
    boundary = options.document_boundary
    if boundary == "record":
        raise UserError(
            f"{source.path} has no records: document_boundary must be blank-line, line or file for "
            "txt and md"
        )
    if boundary == "auto":
        boundary = "file" if source.format == "md" else "blank-line"
    separator = {"blank-line": _BLANK_LINE, "line": _LINE, "file": None}[boundary]
    for raw in split(text_chunks(source.path, advance), separator, counts):
        text = decode(raw, options.encoding_errors, counts, lambda: first_bad_line(source.path))
        if text is not None:
            yield text


READERS = {
    "txt": _of_text,
    "md": _of_text,
    "fasta": sequences.of_fasta,
    "smi": sequences.of_smiles,
}
"""by format; all others have rows"""
