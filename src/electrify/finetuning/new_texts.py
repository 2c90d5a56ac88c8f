"""Files of new texts, without labels -> items, one after the other: a file may be of any size."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from unicodedata import category

from ..errors import UserError, need
from ..text.streams import ending_of
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
from .sentences import TOKENS, texts_of, word_column
from .squad import question_of, question_rows
from .tasks import Example, Kind, Question, Sentence

BLOCK_ITEMS = 8192
BLOCK_CHARACTERS = 1 << 22
"""Items and, about, characters with those of all columns that are held at once. Inside a block,
texts are sorted by length; more would save less than a tenth of the padding, and take more
memory."""


@dataclass(frozen=True)
class Item:
    """One new example: what its row holds, and what the model is given.

    cells: in a file of columns, the cells of each word's line. beside: for a tagger, the names of
    the columns that do not hold the words.
    """

    columns: dict[str, Any]
    example: Example | Question | Sentence
    cells: tuple[tuple[str, ...], ...] = ()
    beside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Head:
    """What the first item of a file shows: the names of its columns, and whether it is a pair.

    unread: a column that looks like that of a second text, and is not read. lines: whether it holds
    a word on each line; guessed: whether it is a .txt or .tsv for which that was guessed. others:
    the heads of the other files.
    """

    path: str
    columns: tuple[str, ...]
    pair: bool
    unread: str | None = None
    guessed: bool = False
    lines: bool = False
    others: tuple[Head, ...] = ()


@dataclass(kw_only=True)
class Files:
    """The items of several files of one kind, in order. Iterating reads them again each time.

    pairs: whether the model reads pairs of texts, None if that is not known. bytes_read: bytes of
    the files themselves that were read so far.
    """

    paths: tuple[str, ...] = field(kw_only=False)
    kind: Kind = field(kw_only=False)
    text_column: str | None = None
    pair_column: str | None = None
    header: bool = True
    pairs: bool | None = None
    bytes_read: int = 0

    def __post_init__(self) -> None:
        need(bool(self.paths), "no file is given: name the files of texts")
        needless = {"tagging": self.pair_column, "answering": self.pair_column or self.text_column}
        fact = f"column {needless.get(self.kind)}: a model for {self.kind} reads no such column"
        need(needless.get(self.kind) is None, fact)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(Path(path).stat().st_size for path in self.paths)

    def check(self) -> Head:
        """What the first item of every file shows. Raises UserError if a file is missing, has
        another layout, or does not go with the first."""
        gone = next((path for path in self.paths if not Path(path).exists()), "")
        advice = "to give a text itself, put it into a file, one text a line: TEXTS.txt"
        need(not gone, f"no such file: {gone}", advice)
        head, *others = map(self._head, self.paths)
        for other in others:
            fact = f"only one of {head.path} and {other.path} has a column for a second text"
            need(other.pair == head.pair, fact, "give them to two commands")
        return replace(head, others=tuple(others))

    def _head(self, path: str) -> Head:
        item = next(self._items(path), None)
        if item is None:
            raise UserError(f"{path}: no texts")
        pair = isinstance(item.example, Example) and item.example.pair is not None
        unread = None
        if isinstance(item.example, Example) and not pair:
            _, unread = text_columns(path, [Row(path, 1, item.columns)], self.text_column, None)
        guessed = bool(item.cells) and ending_of(path) in (".txt", ".tsv")
        return Head(path, tuple(item.columns), pair, unread, guessed, lines=bool(item.cells))

    def __iter__(self) -> Iterator[Item]:
        for path in self.paths:
            yield from self._items(path)

    def blocks(self, most: int = BLOCK_ITEMS) -> Iterator[list[Item]]:
        """All items, in order, in blocks of bounded size, of at most `most` items, whatever else is
        in their rows."""
        block: list[Item] = []
        size = 0
        for item in self:
            block.append(item)
            size += len(str(item.example)) + len(str(item.columns))
            if len(block) >= min(most, BLOCK_ITEMS) or size >= BLOCK_CHARACTERS:
                yield block
                block, size = [], 0
        if block:
            yield block

    def _items(self, path: str) -> Iterator[Item]:
        if self.kind == "tagging" and self._holds_columns(path):
            return self._column_sentences(path)
        read = {"tagging": self._sentences, "answering": self._questions}
        return read.get(self.kind, self._texts)(path)

    def _texts(self, path: str) -> Iterator[Item]:
        label = () if self.kind == "multilabel" else 0.0
        columns: tuple[str, str | None] | None = None
        pairs = self.pairs is not False
        for row in self._rows(path):
            columns = columns or text_columns(
                path, [row], self.text_column, self.pair_column, pairs=pairs
            )
            text, pair = columns
            second = None if pair is None else row.text(pair)
            yield Item(row.cells, Example(row.text(text), second, label))

    def _questions(self, path: str) -> Iterator[Item]:
        for row in question_rows(path, header=self.header, advance=self._advance):
            found = question_of(row, answered=False)
            named = {"id": found.id, "question": found.question}
            yield Item(named if ending_of(path) == ".json" else row.cells, found)

    def _sentences(self, path: str) -> Iterator[Item]:
        for row in self._rows(path):
            column = next((name for name in TOKENS if isinstance(row.cells.get(name), list)), None)
            if column is not None and self.text_column is None:
                words = texts_of(row)
            else:
                column, _ = text_columns(path, [row], self.text_column, None, pairs=False)
                words = words_in(row.text(column))
            beside = tuple(name for name in row.cells if name != column)
            yield Item(row.cells, Sentence(words, ()), beside=beside)

    def _column_sentences(self, path: str) -> Iterator[Item]:
        """Sentences of a file of columns. Those beside the words' are called by their numbers, as
        the columns of a table without a header."""
        for row in column_sentences(path, advance=self._advance):
            column = word_column(path, row, self.text_column)
            words = texts_of(row, [column])
            others = {name: cells for name, cells in row.cells.items() if name != column}
            cells = tuple(zip(*row.cells.values(), strict=True))
            columns = {"words": list(words)} | others
            yield Item(columns, Sentence(words, ()), cells, tuple(others))

    def _holds_columns(self, path: str) -> bool:
        """Whether a file has a word on each line. For .txt and .tsv, the first lines decide."""
        ending = ending_of(path)
        if ending == ".tsv":  # the name of a column, and --no-header, are those of a table
            header = next(lines(path), "").lower().split("\t")
            numbered = self.text_column is None or self.text_column.isdecimal()
            return self.header and numbered and not set(header) & set(TEXT_COLUMNS)
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
