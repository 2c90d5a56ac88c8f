"""Files of new texts -> items, one after the other, so that a file may be of any size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..downstream.examples import Example, Question
from ..downstream.read.columns import PAIR_COLUMNS, TEXT_COLUMNS, column_named, only_column
from ..downstream.read.files import bare, ending_of, lines, must_be_file
from ..downstream.read.squad import asked, read_questions
from ..downstream.read.tables import Row, legible_rows, may_lack_header, texts_of
from ..downstream.tasks import Kind
from ..errors import UserError
from .options import EmbedConfig, PredictConfig
from .sentences import Untagged, untagged

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson")
BLOCK_ITEMS = 8192
BLOCK_CHARACTERS = 1 << 21
"""Items and characters that are held at once. Inside a block, texts are sorted by length; more
would save less than a tenth of the padding, and take more memory."""
BLOCK_CARRIED = 1 << 25
"""Characters of columns, read and carried through, that are held at once."""


@dataclass(frozen=True)
class Item:
    """One new example: what its row holds, and what the model is given."""

    columns: dict[str, Any]
    example: Example | Question | Untagged

    @property
    def size(self) -> int:
        """Its length in characters."""
        match self.example:
            case Example(text, pair, _):
                return len(text) + len(pair or "")
            case Question():
                return len(self.example.context) + len(self.example.question)
        return sum(len(word) + 1 for word in self.example.words)

    @property
    def carried(self) -> int:
        """Characters of its row, lists and objects of JSON among them."""
        return sum(
            len(value if isinstance(value, str) else str(value)) for value in self.columns.values()
        )


class Files:
    """The items of several files of one kind, in order. Iterating reads them again each time.

    bytes_read: bytes of the files themselves that were read so far.
    """

    def __init__(
        self, options: PredictConfig | EmbedConfig, kind: Kind, *, pairs: bool | None = None
    ) -> None:
        """pairs: whether the model was trained on pairs of texts, None if that is not known."""
        if not options.files:
            raise UserError("no file is given: name the files of texts")
        self.paths = options.files
        self.kind = kind
        self.header = options.header
        for path in self.paths:
            may_lack_header(path, self.header)
            must_be_file(path)
        self.text = options.text_column
        self.pair = options.pair_column if isinstance(options, PredictConfig) else None
        self.pairs_too = isinstance(options, PredictConfig) and pairs is not False
        self.bytes_read = 0

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(Path(path).stat().st_size for path in self.paths)

    def check(self) -> Head:
        """What the first item of every file shows. Raises UserError if a file is missing, has
        another layout, or does not go with the first."""
        heads: list[Head] = []
        for path in self.paths:
            first = next(self._items(path), None)
            if first is None:
                raise UserError(f"{path}: no texts")
            heads.append(_head(path, first))
        for other in heads[1:]:
            if other.pair != heads[0].pair:
                one, none = (heads[0], other) if heads[0].pair else (other, heads[0])
                raise UserError(
                    f"{one.path} has a column for a second text and {none.path} has none; give "
                    "them to two commands"
                )
        return replace(heads[0], others=tuple(heads[1:]))

    def __iter__(self) -> Iterator[Item]:
        for path in self.paths:
            yield from self._items(path)

    def blocks(self, most: int = BLOCK_ITEMS) -> Iterator[list[Item]]:
        """All items, in order, in blocks of bounded size, of at most `most` items, whatever else is
        in their rows."""
        block: list[Item] = []
        size = carried = 0
        for item in self:
            block.append(item)
            size += item.size
            carried += item.carried
            many = len(block) >= min(most, BLOCK_ITEMS)
            if many or size >= BLOCK_CHARACTERS or carried >= BLOCK_CARRIED:
                yield block
                block, size, carried = [], 0, 0
        if block:
            yield block

    def _items(self, path: str) -> Iterator[Item]:
        match self.kind:
            case "tagging":
                if self.pair is not None:
                    raise UserError("--pair-column is for texts, and this model tags words")
                found = untagged(path, self.text, self._advance, header=self.header)
                return (Item(sentence.columns, sentence) for sentence in found)
            case "answering":
                return self._questions(path)
        return self._texts(path)

    def _texts(self, path: str) -> Iterator[Item]:
        label = () if self.kind == "multilabel" else 0.0
        if ending_of(path) == ".txt":
            if self.text is not None or self.pair is not None:
                raise UserError(f"{path}: a file of lines has no columns to be named")
            for line in bare(lines(path, advance=self._advance)):
                yield Item({"text": line}, Example(line, None, label))
            return
        columns: tuple[str, str | None] | None = None
        for row in self._rows(path):
            if columns is None:
                columns = self._columns(path, row[1])
            yield Item(row[1], Example(*texts_of(path, row, *columns), label))

    def _columns(self, path: str, cells: dict[str, Any]) -> tuple[str, str | None]:
        """The columns of the text and of a second one."""
        text = self.text or only_column(path, cells)
        text = column_named(path, [cells], text, TEXT_COLUMNS, "--text-column")
        if self.pair is not None:
            pair = column_named(path, [cells], self.pair, (), "--pair-column")
        else:
            known = PAIR_COLUMNS if self.pairs_too else ()
            pair = next((name for name in known if name in cells and name != text), None)
        if pair == text:
            raise UserError(f"{path}: --text-column and --pair-column are both {text!r}")
        return text, pair

    def _questions(self, path: str) -> Iterator[Item]:
        if self.text is not None or self.pair is not None:
            raise UserError(
                f"{path}: the columns of questions are fixed: question, context and perhaps id"
            )
        if ending_of(path) == ".json":
            for question in read_questions(path, answered=False):
                yield Item({"id": question.id, "question": question.question}, question)
            self._advance(Path(path).stat().st_size)
            return
        if ending_of(path) not in TABLES:
            raise UserError(
                f"{path}: questions are read from .json, .csv, .tsv and .jsonl files, not "
                f"{ending_of(path)!r}; write question and context as columns of one of them"
            )
        for number, row in self._rows(path):
            found = asked({"id": str(number)} | row, f"{path}, line {number}")
            yield Item(row, found)

    def _rows(self, path: str) -> Iterator[Row]:
        return legible_rows(path, lines(path, advance=self._advance), header=self.header)

    def _advance(self, count: int) -> None:
        self.bytes_read += count


@dataclass(frozen=True)
class Head:
    """What the first item of a file shows: the names of its columns, and whether it is a pair."""

    path: str
    columns: tuple[str, ...]
    pair: bool
    unread: str | None = None
    """A column that looks like that of a second text, and is not read."""
    guessed: bool = False
    """Whether it is a .txt or .tsv whose lines were taken for columns."""
    lines: bool = False
    """Whether it holds a word on each line."""
    others: tuple[Head, ...] = field(default=())
    """Those of the other files."""


def _head(path: str, first: Item) -> Head:
    cells = first.example.cells if isinstance(first.example, Untagged) else ()
    guessed = ending_of(path) in (".txt", ".tsv") and bool(cells)
    shown = (tuple(first.columns), _has_pair(first), _unread(first))
    return Head(path, *shown, guessed, bool(cells))


def _unread(item: Item) -> str | None:
    if not isinstance(item.example, Example):
        return None
    read = (item.example.text, item.example.pair)
    return next(
        (c for c in PAIR_COLUMNS if c in item.columns and item.columns[c] not in read), None
    )


def _has_pair(item: Item) -> bool:
    return isinstance(item.example, Example) and item.example.pair is not None


def fitted_on(options: EmbedConfig) -> EmbedConfig | None:
    """The options with the file on which vectors are centred or whitened in place of the texts;
    None if there is none. Raises UserError if it is not a file of texts."""
    given = options.center or options.whiten
    if given is None:
        return None
    column = None if ending_of(given) == ".txt" else options.text_column
    corpus = EmbedConfig(
        model=options.model,
        files=(given,),
        header=options.header or ending_of(given) not in (".csv", ".tsv"),
        text_column=column,
        output_file=options.output_file,
    )
    Files(corpus, "regression").check()
    return corpus
