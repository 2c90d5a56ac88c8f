"""New texts, for `predict`, `embed` and `score`: files of any size, in blocks of bounded memory,
and the rows of the output file."""

from __future__ import annotations

import csv
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Self, TextIO
from unicodedata import category

from ..errors import UserError, need
from ..exporting.places import check_place
from ..files import written
from ..onnx_models import must_be_of_torch
from ..progress import Progress, duration, harmless, say
from ..text.columns import TEXT_COLUMNS, text_columns
from ..text.report import note_on_unknown
from ..text.streams import ending_of, gathered
from ..text.tables import COLUMN_FILES, Row, column_sentences, holds_words, lines, rows
from .options import OnNewTexts, PredictConfig, ToRows
from .read import TOKENS, question_of, question_rows, texts_of, word_column
from .tasks import Example, Kind, Question, Sentence

MEGABYTE = 1e6
Predicted = dict[str, Any]
"""The columns that a prediction adds, see docs/predict.md. With --probabilities also
`probabilities`, by label."""
After = Callable[[float], None]
"""Called after each forward pass with the share of the work that it did."""
BLOCK_ITEMS = 8192
BLOCK_CHARACTERS = 1 << 22
"""Items and, about, characters with those of all columns that are held at once. Inside a block,
texts are sorted by length; more would save less than a tenth of the padding, and take more
memory."""
_BREAKS = str.maketrans("\t\n\r", "   ")


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

    pairs: whether the model reads pairs of texts, None if that is not known. bytes_read: bytes of
    the files themselves that were read so far.
    """

    paths: tuple[str, ...]
    kind: Kind = "regression"
    text_column: str | None = None
    pair_column: str | None = None
    header: bool = True
    pairs: bool | None = None
    bytes_read: int = 0

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
            listed = any(isinstance(row.cells.get(name), list) for name in TOKENS)
            if listed and self.text_column is None:
                words = texts_of(row)
            else:
                column, _ = text_columns(path, [row], self.text_column, None, pairs=False)
                words = words_in(row.text(column))
            yield Item(row.cells, Sentence(words, ()))

    def _columns(self, path: str) -> Iterator[Item]:
        """Of a file with a word on each line. The columns beside the words' are called by their
        numbers, as those of a table without a header."""
        for row in column_sentences(path, advance=self._advance):
            column = word_column(path, row, self.text_column)
            words = texts_of(row, [column])
            others = {name: cells for name, cells in row.cells.items() if name != column}
            cells = tuple(zip(*row.cells.values(), strict=True))
            yield Item({"words": list(words)} | others, Sentence(words, ()), cells)

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


# ------------------------------------------------------------------ a command on files


def done(output_file: str | None, texts: int, began: float) -> str:
    """What `predict` or `embed` did. began: when, by time.monotonic."""
    return f"{output_file}: {texts:,} texts in {duration(time.monotonic() - began)}"


def must_be_ready(options: Any, output_file: str | None) -> None:
    """Raises UserError if the model is not there, or if the output file cannot be written."""
    check_place(options.model)
    if not isinstance(options, PredictConfig):
        must_be_of_torch(options.model)
    if output_file is not None:
        path = Path(output_file)
        need(path.parent.is_dir(), f"{path.parent}: no such folder. Make it first")
        free = options.overwrite or not path.exists()
        need(free, f"{path} exists. Choose another --output-file or --overwrite")


def tell(notes: Iterable[str]) -> None:
    """Prints those that are not empty."""
    for note in filter(None, notes):
        say(note)


@contextmanager
def threads_of(options: OnNewTexts, work: Any) -> Iterator[None]:
    """Computes with the threads of --threads."""
    if work.device is None:  # onnxruntime was given them
        yield
        return
    from ..train.machine import choose, computing_with
    from .loop import most_tokens

    how = {"device": work.device, "width": work.reader.width, "bf16": work.bf16}
    with computing_with(choose(options.threads, tokens=most_tokens(work.device), **how)):
        yield


def in_blocks(files: Files, work: Any, *, title: str) -> Iterator[tuple[list[Item], Any]]:
    """Every block of items with the result of `work`, a Predictor or an Embedder, for its examples.
    Shows a progress bar, and warns if many words of the first block are unknown to the
    tokenizer."""
    files.bytes_read = before = 0
    with Progress(files.size / MEGABYTE, title=title, unit="MB") as progress:
        for block in files.blocks():
            examples = [item.example for item in block]
            if before == 0:
                tell([unknown_note(work, examples)])
            read = (files.bytes_read - before) / MEGABYTE
            before = files.bytes_read
            yield block, work(examples, lambda share, read=read: progress.advance(share * read))


def unknown_note(work: Any, examples: Iterable[Any]) -> str:
    """A warning if many characters are unknown to the tokenizer of a Predictor or an Embedder."""
    return note_on_unknown(work.reader.name, work.reader.tokenizer, (e.whole for e in examples))


def write_results(options: ToRows, files: Files, work: Any, *, title: str) -> None:
    """Writes the rows of all items with the results of `work`, in order, into the output file,
    whole or not at all, or to standard output."""
    shown = options.output_file is None
    usual = ".jsonl" if options.json else ".tsv"
    ending = usual if shown else Path(str(options.output_file)).suffix.lower()
    with threads_of(options, work), opened(options.output_file) as stream:
        blocks = in_blocks(files, work, title=title)
        found = (pair for block in blocks for pair in zip(*block, strict=True))
        write_rows(stream, found, ending, shown=shown)


# ------------------------------------------------------------------ output


@contextmanager
def opened(output_file: str | None) -> Iterator[TextIO]:
    """The file, which appears when the block ends without an error, or standard output."""
    if output_file is None:
        yield sys.stdout
        return
    with written(Path(output_file)) as part, part.open("w", encoding="utf-8", newline="") as stream:
        yield stream


def write_rows(
    stream: TextIO, found: Iterable[tuple[Item, Predicted]], ending: str, *, shown: bool
) -> None:
    """Each row of the input with the columns of its prediction. shown: whether somebody may see
    them on a terminal, which they must not control."""
    if ending == ".jsonl":
        rows = (joined(*each) for each in found)
        stream.writelines(f"{json.dumps(row, ensure_ascii=shown, default=str)}\n" for row in rows)
    elif ending == ".csv":
        csv.writer(stream).writerows(table(found))  # its line end makes it quote line ends
    else:
        for row in table(found, by_word=True):
            line = "\t".join(cell.translate(_BREAKS) for cell in row)
            stream.write((harmless(line, keep="\t") if shown else line) + "\n")


def table(found: Iterable[tuple[Item, Predicted]], *, by_word: bool = False) -> Iterator[list[str]]:
    """The cells, after a header with the columns of the first row. by_word: tags come in the layout
    of column files, the line of each word with its tag and a blank line after each sentence."""
    columns: list[str] = []
    for item, its in found:
        if by_word and isinstance(item.example, Sentence):
            cells = item.lines or [(word,) for word in item.example.words]
            yield from ([*c, tag] for c, tag in zip(cells, its["predicted_tags"], strict=True))
            yield []
            continue
        sure = its.pop("probabilities", {})
        row = joined(item, its | {f"probability_{label}": p for label, p in sure.items()})
        if not columns:
            columns = list(row)
            yield columns
        yield cells_of(row, columns)


def joined(item: Item, added: Predicted) -> dict[str, Any]:
    """The columns of an item and those that are added, for tags also the words, if a text was split
    into them. Raises UserError if the input has a column with the name of an added one."""
    if isinstance(item.example, Sentence) and [*item.example.words] not in item.columns.values():
        added = {"words": list(item.example.words)} | added
    taken = item.columns.keys() & added.keys()
    need(not taken, f"the input already has a column {min(taken, default='')!r}. Rename it")
    return item.columns | added


def cells_of(row: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    """The cells of a row in a table with these columns. Raises UserError for a further column."""
    odd = [name for name in row if name not in columns]
    need(not odd, f"not every row has the columns {', '.join(odd)}", "write .jsonl")
    return [as_text(row.get(name)) for name in columns]


def as_text(value: Any) -> str:
    """A value in a cell of a table: nothing for null, a list with bars between."""
    if isinstance(value, list) and all(isinstance(one, str | int | float) for one in value):
        return "|".join(map(str, value))
    if isinstance(value, bool | list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return "" if value is None else str(value)


def rounded(number: float) -> float:
    """To seven digits, the precision of float32."""
    return float(f"{number:.7g}")
