"""New texts, for `predict`, `embed` and `score`: files of any size, in blocks of bounded memory."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Self
from unicodedata import category

from ..errors import UserError, need
from ..text.streams import ending_of, gathered
from ..text.tables import (
    COLUMN_FILES,
    TEXT_COLUMNS,
    Row,
    column_sentences,
    holds_words,
    lines,
    rows,
    text_columns,
)
from .options import OnNewTexts
from .read import TOKENS, question_of, question_rows, texts_of, word_column
from .tasks import Example, Kind, Question, Sentence

BLOCK_ITEMS = 8192
BLOCK_CHARACTERS = 1 << 22
"""Items and, about, characters that are held at once. A text counts twice, as a cell of its row and
as the example. Inside a block, texts are sorted by length; more would save less than a tenth of the
padding, and take more memory."""


# ------------------------------------------------------------------ new texts


@dataclass(frozen=True)
class Item:
    """One new example: what its row holds, and what the model is given. lines: in a file of
    columns, the cells of each word's line."""

    columns: dict[str, Any]
    example: Example | Question | Sentence
    lines: tuple[tuple[str, ...], ...] = ()


@dataclass
class Files:
    """The items of several files of one kind, in order. Iterating reads them again each time.

    kind: that of the model; for `embed` and `score` any of texts. pairs: whether the model reads
    pairs of texts, None if that is not known. bytes_read: bytes of the files themselves that were
    read so far. texts: how many items `in_blocks` gave.
    """

    paths: tuple[str, ...]
    kind: Kind = "regression"
    text_column: str | None = None
    pair_column: str | None = None
    header: bool = True
    pairs: bool | None = None
    bytes_read: int = 0
    texts: int = 0

    @classmethod
    def of(cls, options: OnNewTexts, kind: Kind = "regression", **more: Any) -> Self:
        """Those that a command is given."""
        return cls(
            options.files, kind, text_column=options.text_column, header=options.header, **more
        )

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(Path(path).stat().st_size for path in self.paths)

    def check(self) -> list[Item]:
        """The first item of every file. Raises UserError if a file is missing or has another
        layout."""
        need(bool(self.paths), "no file is given: name the files of texts")
        firsts = list[Item]()
        for path in self.paths:
            advice = "texts are given in files, a line each in a .txt"
            need(Path(path).exists(), f"no such file: {path}", advice)
            first = next(self._items(path), None)
            if first is None:
                raise UserError(f"{path}: no texts")
            firsts.append(first)
        both = len({getattr(item.example, "pair", None) is None for item in firsts}) > 1
        need(not both, "some of the files have a second text, others have none", "give them apart")
        return firsts

    def __iter__(self) -> Iterator[Item]:
        return chain.from_iterable(map(self._items, self.paths))

    def blocks(self) -> Iterator[list[Item]]:
        """All items, in order, in blocks of bounded size, whatever else is in their rows."""

        def size_of(item: Item) -> int:
            return len(str(item.example)) + len(str(item.columns))

        return gathered(self, size_of, BLOCK_CHARACTERS, BLOCK_ITEMS)

    def _items(self, path: str) -> Iterator[Item]:
        if self.kind == "answering":
            return self._questions(path)
        if self.kind != "tagging":
            return self._texts(path)
        return self._columns(path) if self._holds_columns(path) else self._sentences(path)

    def _texts(self, path: str) -> Iterator[Item]:
        text, pair = "", None
        for row in self._rows(path):
            if not text:
                given, pairs = (self.text_column, self.pair_column), self.pairs is not False
                text, pair = text_columns(path, [row], *given, pairs=pairs)
            second = None if pair is None else row.text(pair)
            yield Item(row.cells, Example(row.text(text), second))

    def _questions(self, path: str) -> Iterator[Item]:
        for row in question_rows(path, header=self.header, advance=self._advance):
            found = question_of(row, answered=False)
            named = {"id": found.id, "question": found.question}
            yield Item(named if ending_of(path) == ".json" else row.cells, found)

    def _sentences(self, path: str) -> Iterator[Item]:
        """Of lists of words, or of plain texts."""
        for row in self._rows(path):
            lists = [name for name, cell in row.cells.items() if isinstance(cell, list)]
            column = next((name for name in TOKENS if name in lists), None)
            if column is None or self.text_column is not None:
                column, _ = text_columns(path, [row], self.text_column, None, pairs=False)
            words = texts_of(row, column) if column in lists else words_in(row.text(column))
            yield Item(row.cells, Sentence(words, ()))

    def _columns(self, path: str) -> Iterator[Item]:
        """Of a file with a word on each line. The columns beside the words' are called by their
        numbers, as those of a table without a header."""
        for row in column_sentences(path, advance=self._advance):
            column = word_column(path, row, self.text_column)
            words = texts_of(row, column)
            others = {name: cells for name, cells in row.cells.items() if name != column}
            cells = tuple(zip(*row.cells.values(), strict=True))
            yield Item({"words": list(words)} | others, Sentence(words, ()), cells)

    def _holds_columns(self, path: str) -> bool:
        """Whether a file has a word on each line. For .txt and .tsv, the first lines decide."""
        ending = ending_of(path)
        if ending == ".tsv":  # the name of a column, and --no-header, are those of a table
            header = next(lines(path), "").lower().split("\t")
            numbered = self.text_column is None or self.text_column.isdecimal()
            named = bool(set(header) & set(TEXT_COLUMNS)) and not holds_words(path)
            return self.header and numbered and not named
        if ending == ".txt" and self.text_column is None:
            return holds_words(path)
        return ending in (*COLUMN_FILES, ".txt")

    def _rows(self, path: str) -> Iterator[Row]:
        return rows(path, header=self.header, advance=self._advance)

    def _advance(self, count: int) -> None:
        self.bytes_read += count


@cache
def _word() -> re.Pattern[str]:
    """Letters and digits with the marks that belong to them (accents, vowel signs of Indian
    scripts, joiners), which for Python are not part of a word; or another character."""
    marks = "".join(c for c in map(chr, range(sys.maxunicode + 1)) if category(c)[0] == "M")
    marks += "\u00ad\u200c\u200d"  # soft hyphen, zero-width non-joiner and joiner
    letters = rf"\w[\w{marks}]*"
    return re.compile(rf"{letters}(?:['\u2019-]{letters})*|[^\w\s][{marks}]*")


def words_in(text: str) -> tuple[str, ...]:
    """The words of a plain text: runs of letters with their marks and digits (also with an
    apostrophe or a hyphen inside), and each other character that is not a blank."""
    return tuple(_word().findall(text))
