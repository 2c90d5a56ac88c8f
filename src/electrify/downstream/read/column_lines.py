"""The lines of column files (CoNLL, CoNLL-U, TSV) as cells, and the words of sentences that have no
tags yet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from ...errors import UserError
from .files import ending_of

Line = tuple[int, list[str]]
BLANKS = " \t"  # others, such as the non-breaking space, are part of a word
# `# id 1` or `# text = ...` before a sentence. The word # is followed by its tag.
COMMENT = re.compile(r"# (id [^ \t]|[a-z_]+ = )")
UD_WIDTH = 10
UD_WORD = 1


def place_of_words(path: str | Path) -> int:
    """The number of the words' column where none is named."""
    return UD_WORD if ending_of(path) == ".conllu" else 0


def untagged_sentences(
    path: str | Path, lines: Iterable[str], *, word: int | None = None
) -> Iterator[tuple[tuple[str, ...], list[list[str]]]]:
    """(words, cells of each word's line) of each sentence of a column file, whose tags are not
    read: it may have the words alone. lines: without their line ends; word: as in
    `read_sentences`. Raises UserError naming file and line."""
    path = Path(path)
    ending = ending_of(path)
    treebank = ending == ".conllu"
    place = place_of_words(path) if word is None else word
    found = (
        treebank_lines(path, lines)
        if treebank
        else column_lines(path, lines, tabs=ending == ".tsv", least=1)
    )
    words: list[str] = []
    rows: list[list[str]] = []
    for line in chain(found, (None,)):
        if line is None:
            if words:
                yield tuple(words), rows
            words, rows = [], []
            continue
        number, cells = line
        if not -len(cells) <= place < len(cells):
            raise UserError(
                f"{path}, line {number}: no column {place}; there are {len(cells)}, counted from "
                "0 or from -1 backwards"
            )
        form = cells[place].strip(BLANKS)
        if not form:
            raise UserError(f"{path}, line {number}: the word is empty; mend the line")
        words.append(form)
        rows.append(cells)


def column_lines(
    path: Path, lines: Iterable[str], *, tabs: bool, least: int = 2
) -> Iterator[Line | None]:
    """The cells of each word; None between sentences. tabs: whether only tabs separate. least: how
    many columns there must be."""
    first = width = 0
    begins = True
    for number, line in enumerate(lines, 1):
        bare = line.strip(BLANKS)
        if not bare or bare.replace("\t", " ").split(" ")[0] == "-DOCSTART-":
            begins = True
            yield None
            continue
        if begins and COMMENT.match(line):
            continue
        begins = False
        cells = (
            line.split("\t") if tabs or "\t" in line else [cell for cell in bare.split(" ") if cell]
        )
        if not width:
            first = number
            width = len(cells)
            if width < least:
                raise UserError(
                    f"{path}, line {number}: one column; a word and its tag must be in two, "
                    f"separated by a tab{'' if tabs else ' or spaces'}"
                )
        if len(cells) != width:
            raise UserError(
                f"{path}, line {number}: {len(cells)} columns, expected {width} as in line {first}"
            )
        yield number, cells


def treebank_lines(path: Path, lines: Iterable[str]) -> Iterator[Line | None]:
    """The same of CoNLL-U, without comments, word ranges and empty nodes."""
    due = 1
    for number, line in enumerate(lines, 1):
        if not line.strip(BLANKS):
            due = 1
            yield None
        elif not line.startswith("#"):
            cells = line.split("\t")
            if len(cells) != UD_WIDTH:
                raise UserError(
                    f"{path}, line {number}: {len(cells)} columns, expected the {UD_WIDTH} of "
                    "CoNLL-U, separated by tabs"
                )
            if not re.fullmatch(r"\d+[-.]\d+", cells[0]):
                if cells[0] != str(due):
                    raise UserError(
                        f"{path}, line {number}: ID {cells[0][:40]!r}, expected {due}; is a line "
                        "missing, or the blank one between sentences?"
                    )
                due += 1
                yield number, cells
