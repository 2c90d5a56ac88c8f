"""Files of sentences without tags: columns, lists of words, or plain text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any
from unicodedata import category

from ..downstream.read.column_lines import BLANKS, place_of_words, untagged_sentences
from ..downstream.read.columns import TEXT_COLUMNS, WHOLE_NUMBER, column_named, only_column
from ..downstream.read.conll import TOKENS, words_of
from ..downstream.read.files import bare, ending_of, lines
from ..downstream.read.tables import Row, legible_rows, texts_of
from ..errors import UserError

Advance = Callable[[int], None]
COLUMNS = (".conll", ".conllu", ".iob", ".iob2", ".bio")
_MARK = "\u0300"  # stands for every mark
_LETTERS = rf"\w[\w{_MARK}]*"
_WORD = re.compile(rf"{_LETTERS}(?:['\u2019-]{_LETTERS})*|[^\w\s]{_MARK}*")
_JOINERS = "\u00ad\u200c\u200d"  # soft hyphen, zero-width non-joiner and joiner
_LOOKED_AT = 100  # lines of a .txt that decide whether it holds columns


@dataclass(frozen=True)
class Untagged:
    """The words of a sentence, what its row holds, and the cells of each word's line in a file of
    columns."""

    words: tuple[str, ...]
    columns: dict[str, Any]
    cells: tuple[tuple[str, ...], ...] = ()
    beside: tuple[str, ...] = ()
    """The names of the columns of its row that do not hold the words."""


class _Marked(dict[int, int]):
    """Character -> itself, or the one mark if it belongs to what comes before it: accents, vowel
    signs of Indian scripts, joiners. For Python, these are not part of a word."""

    def __missing__(self, code: int) -> int:
        mark = category(chr(code))[0] == "M" or chr(code) in _JOINERS
        self[code] = ord(_MARK) if mark else code
        return self[code]


_MARKED = _Marked()


def split(text: str) -> tuple[str, ...]:
    """The words of a plain text: runs of letters with their marks and digits (also with an
    apostrophe or a hyphen inside), and each other character that is not a blank."""
    found = _WORD.finditer(text.translate(_MARKED))
    return tuple(text[slice(*word.span())] for word in found)


def untagged(
    path: str, column: str | None, advance: Advance, *, header: bool = True
) -> Iterator[Untagged]:
    """The sentences of a file. column: the number of the words' column in a file of columns, or
    the name of the text's in a table. A line or text without words is a sentence without any.

    Raises UserError naming file and line.
    """
    if _holds_columns(path, column, header=header):
        place = place_of_words(path) if column is None else int(column)
        found = untagged_sentences(path, bare(lines(path, advance=advance)), word=place)
        for words, cells in found:
            yield _of_lines(words, cells, place)
        return
    if ending_of(path) == ".txt":
        for line in bare(lines(path, advance=advance)):
            words = split(line)
            yield Untagged(words, {"text": line})
        return
    for row in legible_rows(path, lines(path, advance=advance), header=header):
        yield _of_row(path, row, column)


def _of_lines(words: tuple[str, ...], cells: list[list[str]], place: int) -> Untagged:
    """A sentence of a file of columns. Those beside the words' (number `place`) are called by their
    numbers, as the columns of a table without a header."""
    by_column = [list(column) for column in zip(*cells, strict=True)]
    beside = {str(k): column for k, column in enumerate(by_column)}
    del beside[str(place % len(by_column))]
    return Untagged(words, {"words": list(words)} | beside, tuple(map(tuple, cells)), tuple(beside))


def _of_row(path: str, row: Row, column: str | None) -> Untagged:
    number, cells = row
    given = next((name for name in TOKENS if isinstance(cells.get(name), list)), None)
    if given is not None and column is None:
        words = words_of(cells, f"{path}, line {number}")
        return Untagged(words, cells, beside=_others(cells, given))
    text = column or only_column(path, cells)
    text = column_named(path, [cells], text, TEXT_COLUMNS, "--text-column")
    words = split(texts_of(path, row, text, None)[0])
    return Untagged(words, cells, beside=_others(cells, text))


def _others(cells: dict[str, Any], words: str) -> tuple[str, ...]:
    return tuple(name for name in cells if name != words)


def _holds_columns(path: str, column: str | None, *, header: bool) -> bool:
    """Whether a file has a word on each line. For .txt and .tsv, the first lines decide."""
    ending = ending_of(path)
    numbered = column is None or bool(WHOLE_NUMBER.fullmatch(column))
    if ending == ".tsv":  # a name of a column, and what is said of a header, are those of a table
        return header and numbered and not _names_a_text(path)
    if ending not in (*COLUMNS, ".txt"):
        return False
    if not numbered:
        raise UserError(
            f"{path}: --text-column of a file of columns is a number from 0, not {column!r}"
        )
    if ending in COLUMNS or column is not None:
        return True
    return _are_columns(list(islice(bare(lines(path)), _LOOKED_AT)))


def _names_a_text(path: str) -> bool:
    """Whether the first line of a .tsv is a header, which has a name for the column of a text."""
    first = next(bare(lines(path)), "")
    return bool(set(first.split("\t")) & set(TEXT_COLUMNS))


def _are_columns(first: list[str]) -> bool:
    """Whether these lines of a .txt hold columns: all have as many, at least two; a blank line lies
    between them; and some sentence has two words, one under the other."""
    full = "\n".join(line.strip(BLANKS) for line in first).strip("\n").split("\n")
    words = ["" if line.startswith(("-DOCSTART-", "# ")) else line for line in full]
    widths = {len(re.split("[ \t]+", line)) for line in words if line}
    beneath = any(one and other for one, other in pairwise(words))
    return len(widths) == 1 and min(widths) >= 2 and "" in full and beneath
