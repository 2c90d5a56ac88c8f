"""Sequences of FASTA files and molecules of SMILES files: one document each, without its name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from ..errors import UserError
from .decoding import MAX_DOCUMENT, decode, first_bad_line, split, text_chunks
from .options import PrepareConfig
from .row import Advance
from .source import Source

_LINE = re.compile(rb"\n")
BOM = b"\xef\xbb\xbf"  # also inside a file that was joined from several
_COMMENT = b";"  # as in the first FASTA files
# The headings of the tables that a program writes with the ending .smi.
SMILES_HEADERS = frozenset({"smiles", "canonical_smiles", "isomeric_smiles"})
_MAX_NAME = 1 << 20
"""Limit in bytes for a header line; longer ones come in pieces, which must not be taken for
sequences."""


def fasta_lines(path: object, lines: Iterable[bytes]) -> Iterator[tuple[int, bytes | None, bytes]]:
    """(number of the line, name, letters): the name of a sequence without its `>`, or, where the
    name is None, letters of the sequence without white space. Comments and blank lines are left
    out. Raises UserError for letters before the first name, and for a name inside a sequence: its
    line end is gone."""
    begun = False
    for number, line in enumerate((raw.removeprefix(BOM) for raw in lines), 1):
        if line.startswith(b">"):
            begun = True
            yield number, line[1:], b""
            continue
        if line.startswith(_COMMENT) or not (letters := b"".join(line.split())):
            continue
        if not begun:
            raise UserError(
                f"{path}, line {number} comes before the first '>' of this FASTA file; give lines "
                "of text the ending .txt"
            )
        if b">" in letters:
            raise UserError(
                f"{path}, line {number}: '>' inside a sequence; in FASTA it begins a line"
            )
        yield number, None, letters


def of_fasta(
    source: Source, options: PrepareConfig, counts: Counter[str], advance: Advance
) -> Iterator[str]:
    """The sequences, each without its line ends and white space; what follows `>` is not text. One
    that is longer than MAX_DOCUMENT comes in pieces. Raises UserError for a file that does not
    begin with `>`."""
    parts: list[bytes] = []
    size = 0
    lines = split(text_chunks(source.path, advance), _LINE, counts)
    for _, name, letters in fasta_lines(source.path, lines):
        if name is not None and len(name) >= _MAX_NAME:
            raise UserError(
                f"{source.path}: a line that begins with '>' has more than {_MAX_NAME >> 20} MB; "
                "in FASTA it holds the name only, and the sequence follows on lines of its own"
            )
        too_long = size + len(letters) > MAX_DOCUMENT and bool(parts)
        if too_long:
            counts["cuts"] += 1
        if name is not None or too_long:
            yield from _decoded(parts, source, options, counts)
            parts, size = [], 0
        if letters:
            parts.append(letters)
            size += len(letters)
    yield from _decoded(parts, source, options, counts)


def _decoded(
    parts: list[bytes], source: Source, options: PrepareConfig, counts: Counter[str]
) -> Iterator[str]:
    if not parts:
        return
    text = decode(
        b"".join(parts), options.encoding_errors, counts, lambda: first_bad_line(source.path)
    )
    if text is not None:
        yield text


def of_smiles(
    source: Source, options: PrepareConfig, counts: Counter[str], advance: Advance
) -> Iterator[str]:
    """The first column of each line, where white space separates columns: the names and numbers of
    molecules that may follow are not text. A line of headings is left out."""
    lines = split(text_chunks(source.path, advance), _LINE, counts)
    for number, line in enumerate(lines, 1):
        molecule = next(iter(line.split(None, 1)), b"")
        for text in _decoded([molecule] if molecule else [], source, options, counts):
            if number > 1 or text.lower() not in SMILES_HEADERS:
                yield text
