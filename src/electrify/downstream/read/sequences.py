"""Sequences of FASTA files and molecules of SMILES files as rows, each with its name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...errors import UserError
from ...text.records import MAX_LINE
from ...text.sequences import SMILES_HEADERS, fasta_lines


def fasta_rows(path: str, raw_lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line of its name, name and sequence) of each sequence, without white space in it. Raises
    UserError for text before the first name, and for a sequence of more than MAX_LINE letters."""
    name: str | None = None
    started = size = 0
    parts: list[str] = []
    for number, found, letters in fasta_lines(path, (line.encode() for line in raw_lines)):
        if found is not None:
            if name is not None:
                yield started, {"name": name, "sequence": "".join(parts)}
            name, started, size, parts = found.decode().strip(), number, 0, []
        parts.append(letters.decode())
        size += len(letters)
        if size > MAX_LINE:
            raise UserError(
                f"{path}, line {started}: a sequence of more than {MAX_LINE >> 20} million "
                "letters; cut it into windows"
            )
    if name is not None:
        yield started, {"name": name, "sequence": "".join(parts)}


def smiles_rows(raw_lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, molecule and what follows it on the line) of each line that is not blank or a line of
    headings."""
    for number, line in enumerate(raw_lines, 1):
        # White space is that of ASCII, as for `prepare`.
        molecule, *rest = (part.decode() for part in line.encode().split(None, 1) or [b""])
        if molecule and (number > 1 or molecule.lower() not in SMILES_HEADERS):
            yield number, {"smiles": molecule, "name": "".join(rest).strip()}
