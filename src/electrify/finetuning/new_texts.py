"""Files of new texts, without labels -> items, one after the other: a file may be of any size."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any
from unicodedata import category

from ..errors import UserError
from ..text.row import TEXT_COLUMNS
from .columns import WHOLE_NUMBER, text_columns, unread_pair
from .sentences import TOKENS, UD_WORD, cell_of, texts_of
from .squad import asked, read_questions
from .tables import BLANKS, TABLES, Row, column_sentences, ending_of, lines, rows, text_of
from .tasks import Example, Kind, Question, Sentence

BLOCK_ITEMS = 8192
BLOCK_CHARACTERS = 1 << 21
"""Items and characters that are held at once. Inside a block, texts are sorted by length; more
would save less than a tenth of the padding, and take more memory."""
BLOCK_CARRIED = 1 << 25
"""Characters of columns, read and carried through, that are held at once."""
_COLUMN_FILES = (".conll", ".conllu", ".iob", ".iob2", ".bio")
_LOOKED_AT = 100
"""Lines of a .txt that decide whether it holds columns."""
_MARK = "\u0300"  # stands for every mark
_LETTERS = rf"\w[\w{_MARK}]*"
_WORD = re.compile(rf"{_LETTERS}(?:['\u2019-]{_LETTERS})*|[^\w\s]{_MARK}*")
_JOINERS = "\u00ad\u200c\u200d"  # soft hyphen, zero-width non-joiner and joiner


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

    @property
    def size(self) -> int:
        """Its length in characters."""
        match self.example:
            case Example(text, pair):
                return len(text) + len(pair or "")
            case Question():
                return len(self.example.context) + len(self.example.question)
        return sum(len(word) + 1 for word in self.example.words)


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


class Files:
    """The items of several files of one kind, in order. Iterating reads them again each time.

    bytes_read: bytes of the files themselves that were read so far.
    """

    def __init__(
        self,
        paths: Sequence[str],
        kind: Kind,
        *,
        text_column: str | None = None,
        pair_column: str | None = None,
        header: bool = True,
        pairs: bool | None = None,
    ) -> None:
        """pairs: whether the model reads pairs of texts, None if that is not known."""
        if not paths:
            raise UserError("no file is given: name the files of texts")
        if pair_column is not None and kind == "tagging":
            raise UserError("--pair-column is for texts, and this model tags words")
        self.paths = paths
        self.kind = kind
        self.text = text_column
        self.pair = pair_column
        self.header = header
        self.pairs = pairs is not False
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
            heads.append(self._head(path, first))
        for other in heads[1:]:
            if other.pair != heads[0].pair:
                one, none = (heads[0], other) if heads[0].pair else (other, heads[0])
                raise UserError(
                    f"{one.path} has a column for a second text and {none.path} has none; give "
                    "them to two commands"
                )
        return replace(heads[0], others=tuple(heads[1:]))

    def _head(self, path: str, item: Item) -> Head:
        example, columns = item.example, tuple(item.columns)
        if not isinstance(example, Example):
            guessed = ending_of(path) in (".txt", ".tsv") and bool(item.cells)
            return Head(path, columns, pair=False, guessed=guessed, lines=bool(item.cells))
        read = next((name for name in columns if item.columns[name] == example.text), "")
        unread = unread_pair(columns, read) if example.pair is None else None
        return Head(path, columns, pair=example.pair is not None, unread=unread)

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
            carried += sum(len(str(value)) for value in item.columns.values())
            many = len(block) >= min(most, BLOCK_ITEMS)
            if many or size >= BLOCK_CHARACTERS or carried >= BLOCK_CARRIED:
                yield block
                block, size, carried = [], 0, 0
        if block:
            yield block

    def _items(self, path: str) -> Iterator[Item]:
        match self.kind:
            case "tagging":
                return self._sentences(path)
            case "answering":
                return self._questions(path)
        return self._texts(path)

    def _texts(self, path: str) -> Iterator[Item]:
        label = () if self.kind == "multilabel" else 0.0
        if ending_of(path) == ".txt":
            if self.text is not None or self.pair is not None:
                raise UserError(f"{path}: a file of lines has no columns to be named")
            for line in self._lines(path):
                yield Item({"text": line}, Example(line, None, label))
            return
        columns: tuple[str, str | None] | None = None
        for row in self._rows(path):
            if columns is None:
                columns = text_columns(path, [row.cells], self.text, self.pair, pairs=self.pairs)
            text, pair = columns
            second = None if pair is None else text_of(row, pair)
            yield Item(row.cells, Example(text_of(row, text), second, label))

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
                f"{path}: questions are read from .json and {', '.join(TABLES)} files, not "
                f"{ending_of(path)!r}; write question and context as columns of one of them"
            )
        for row in self._rows(path):
            yield Item(row.cells, asked(row))

    def _sentences(self, path: str) -> Iterator[Item]:
        if self._holds_columns(path):
            yield from self._column_sentences(path)
            return
        if ending_of(path) == ".txt":
            for line in self._lines(path):
                yield Item({"text": line}, Sentence(words_in(line), ()))
            return
        for row in self._rows(path):
            column = next((name for name in TOKENS if isinstance(row.cells.get(name), list)), None)
            if column is not None and self.text is None:
                words = texts_of(row)
            else:
                column, _ = text_columns(path, [row.cells], self.text, None, pairs=False)
                words = words_in(text_of(row, column))
            beside = tuple(name for name in row.cells if name != column)
            yield Item(row.cells, Sentence(words, ()), beside=beside)

    def _column_sentences(self, path: str) -> Iterator[Item]:
        """Sentences of a file of columns. Those beside the words' are called by their numbers, as
        the columns of a table without a header."""
        usual = UD_WORD if ending_of(path) == ".conllu" else 0
        place = usual if self.text is None else int(self.text)
        for found in column_sentences(path, least=1, advance=self._advance):
            words = tuple(cell_of(cells, place, path, k) for k, cells in found)
            cells = tuple(tuple(cells) for _, cells in found)
            others = {str(k): list(column) for k, column in enumerate(zip(*cells, strict=True))}
            del others[str(place % len(others))]
            columns = {"words": list(words)} | others
            yield Item(columns, Sentence(words, ()), cells, tuple(others))

    def _holds_columns(self, path: str) -> bool:
        """Whether a file has a word on each line. For .txt and .tsv, the first lines decide."""
        ending = ending_of(path)
        numbered = self.text is None or bool(WHOLE_NUMBER.fullmatch(self.text))
        if ending == ".tsv":  # the name of a column, and --no-header, are those of a table
            header = next(lines(path), "").lower().split("\t")
            return self.header and numbered and not set(header) & set(TEXT_COLUMNS)
        if ending not in (*_COLUMN_FILES, ".txt"):
            return False
        if not numbered:
            raise UserError(
                f"{path}: --text-column of a file of columns is a number from 0, not {self.text!r}"
            )
        if ending in _COLUMN_FILES or self.text is not None:
            return True
        return _are_columns(list(islice(lines(path), _LOOKED_AT)))

    def _lines(self, path: str) -> Iterator[str]:
        if not self.header:
            raise UserError(f"{path}: --no-header is for .csv and .tsv")
        return lines(path, self._advance)

    def _rows(self, path: str) -> Iterator[Row]:
        return rows(path, header=self.header, advance=self._advance)

    def _advance(self, count: int) -> None:
        self.bytes_read += count


class _Marked(dict[int, int]):
    """Character -> itself, or the one mark if it belongs to what comes before it: accents, vowel
    signs of Indian scripts, joiners. For Python, these are not part of a word."""

    def __missing__(self, code: int) -> int:
        mark = category(chr(code))[0] == "M" or chr(code) in _JOINERS
        self[code] = ord(_MARK) if mark else code
        return self[code]


_MARKED = _Marked()


def words_in(text: str) -> tuple[str, ...]:
    """The words of a plain text: runs of letters with their marks and digits (also with an
    apostrophe or a hyphen inside), and each other character that is not a blank."""
    found = _WORD.finditer(text.translate(_MARKED))
    return tuple(text[slice(*word.span())] for word in found)


def _are_columns(first: list[str]) -> bool:
    """Whether these lines of a .txt hold columns: all have as many, at least two; a blank line lies
    between them; and some sentence has two words, one under the other."""
    full = "\n".join(line.strip(BLANKS) for line in first).strip("\n").split("\n")
    words = ["" if line.startswith(("-DOCSTART-", "# ")) else line for line in full]
    widths = {len(re.split("[ \t]+", line)) for line in words if line}
    beneath = any(one and other for one, other in pairwise(words))
    return len(widths) == 1 and min(widths) >= 2 and "" in full and beneath
