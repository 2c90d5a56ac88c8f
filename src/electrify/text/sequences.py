"""Sequences of FASTA files and molecules of SMILES files: one document each, without its name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ..config.prepare import PrepareConfig
from ..errors import UserError
from .decoding import MAX_DOCUMENT, decode, first_bad_line, split, text_chunks
from .row import Advance
from .sources import Source

_LINE = re.compile(rb"\n")
BOM = b"\xef\xbb\xbf"  # also inside, where files were joined
_COMMENT = b";"  # as in the first FASTA files
# Of the tables that a program writes under the ending .smi.
SMILES_HEADERS = frozenset({"smiles", "canonical_smiles", "isomeric_smiles"})
_MAX_NAME = 1 << 20
"""Limit in bytes for a header line; longer ones come in pieces, which are not to be taken for
sequences."""


def of_fasta(
    source: Source, options: PrepareConfig, counts: Counter[str], advance: Advance
) -> Iterator[str]:
    """The sequences, each without its line ends and white space; what follows `>` is not text. One
    that is longer than MAX_DOCUMENT comes in pieces. Raises UserError for a file that does not
    begin with `>`."""
    parts: list[bytes] = []
    size = 0
    begun = False
    lines = split(text_chunks(source.path, advance), _LINE, counts)
    for number, line in enumerate((raw.removeprefix(BOM) for raw in lines), 1):
        if line.startswith(b">"):
            if len(line) > _MAX_NAME:
                raise UserError(
                    f"{source.path}: a line that begins with '>' has more than {_MAX_NAME >> 20} "
                    "MB; in FASTA it holds the name only, and the sequence follows on lines of its "
                    "own"
                )
            yield from _decoded(parts, source, options, counts)
            parts, size, begun = [], 0, True
            continue
        if line.startswith(_COMMENT) or not (letters := b"".join(line.split())):
            continue
        if not begun:
            raise UserError(
                f"{source.path}, line {number} stands before the first '>' of this FASTA file; "
                "give a plain text the ending .txt"
            )
        must_be_letters(letters, f"{source.path}, line {number}")
        if size + len(letters) > MAX_DOCUMENT and parts:
            counts["cuts"] += 1
            yield from _decoded(parts, source, options, counts)
            parts, size = [], 0
        parts.append(letters)
        size += len(letters)
    yield from _decoded(parts, source, options, counts)


def must_be_letters(letters: bytes, where: str) -> None:
    """Raises UserError where a name stands inside a sequence: its line end is gone."""
    if b">" in letters:
        raise UserError(f"{where}: '>' inside a sequence; in FASTA it begins a line")


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
    """The first column of each line, as columns are parted by white space: the names and numbers
    of molecules that may follow are not text. A line of headings is left out."""
    lines = split(text_chunks(source.path, advance), _LINE, counts)
    for number, line in enumerate(lines, 1):
        molecule = next(iter(line.split(None, 1)), b"")
        for text in _decoded([molecule] if molecule else [], source, options, counts):
            if number > 1 or text.lower() not in SMILES_HEADERS:
                yield text
