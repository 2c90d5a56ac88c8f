"""Sentences with a tag for each word: column files (CoNLL, CoNLL-U, TSV) and JSON lines, each also
compressed; and which scheme the tags follow."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from ...errors import UserError
from ...text.small_files import json_rows, lines_of
from ..examples import Sentence
from ..spans import CLOSING, LETTERS, chunk_of, spans
from .column_lines import BLANKS, UD_WIDTH, UD_WORD, Line, column_lines, treebank_lines
from .files import ending_of, whole

Scheme = Literal["plain", "iob1", "iob2", "iobes"]
TOKENS = ("tokens", "words")
TAGS = ("tags", "ner_tags", "labels")
UD_TAGS = {"upos": 3, "xpos": 4}


@dataclass(frozen=True)
class _Columns:
    word: int
    tag: int
    prefix: str
    named: str = ""
    """what CoNLL-U calls the column of the tags, where `_` is not a tag"""


def read_sentences(
    path: str | Path,
    *,
    word: int | None = None,
    tag: int | str | None = None,
    prefix: str | None = None,
) -> tuple[Sentence, ...]:
    """The sentences of a column file: a word a line, a blank line between sentences. -DOCSTART-
    lines are left out, and comments (`# id 1`, `# text = ...`) before a sentence.

    Columns lie between tabs where the line holds one (in .tsv and .conllu always), else between
    runs of spaces. word, tag: columns counted from 0, or from -1 backwards; by default the first
    and the last, in .conllu (10 columns; comments, word ranges and empty nodes are left out) FORM
    and UPOS; there tag may also be "upos" or "xpos". prefix: what every word begins with, and what
    is taken off, as "en:" in WikiANN's own files. Raises UserError naming file and line.
    """
    path = Path(path)
    ending = ending_of(path)
    treebank = ending == ".conllu"
    columns = _columns(path, word, tag, prefix or "", treebank)
    cells = lines_of(whole(path))
    tabs = ending == ".tsv"
    lines = treebank_lines(path, cells) if treebank else column_lines(path, cells, tabs=tabs)
    sentences: list[Sentence] = []
    pairs: list[tuple[str, str]] = []
    for line in chain(lines, (None,)):
        if line is not None:
            pairs.append(_pair(path, line, columns))
        elif pairs:
            words, tags = zip(*pairs, strict=True)
            sentences.append(Sentence(words, tags))
            pairs = []
    if not sentences:
        raise UserError(f"{path}: no sentences")
    if treebank and all(form == "_" for sentence in sentences for form in sentence.words):
        raise UserError(
            f"{path}: every word is '_': this treebank is published without its text; merge the "
            "text in first"
        )
    return tuple(sentences)


def read_sentence_rows(path: str | Path) -> tuple[Sentence, ...]:
    """The sentences of JSON lines: an object a line with a list of texts `tokens` (else `words`)
    and one `tags` (else `ner_tags`, else `labels`).

    Raises UserError naming file and line.
    """
    path = Path(path)
    sentences = []
    for number, row in json_rows(path, whole(path)):
        where = f"{path}, line {number}"
        words, tags = (_texts(row, names, where) for names in (TOKENS, TAGS))
        if len(words) != len(tags):
            raise UserError(
                f"{where}: {len(words)} words, but {len(tags)} tags; every word needs one"
            )
        if not words:
            raise UserError(f"{where}: a sentence without words; leave the line out")
        sentences.append(Sentence(words, tags))
    if not sentences:
        raise UserError(f"{path}: no sentences")
    return tuple(sentences)


def words_of(row: dict[str, Any], where: str) -> tuple[str, ...]:
    """The words of a row of JSON lines. Raises UserError."""
    return _texts(row, TOKENS, where)


def tag_scheme(tags: Iterable[Sequence[str]]) -> Scheme:
    """Which scheme the tags of all sentences follow.

    plain: tags of words, such as parts of speech: no tag begins with B- or I-, and not all have the
    form of a chunk's. iobes: some chunk ends with E- or is one S- (or BILOU's L-, U-). iob1: some
    chunk begins with I-; this includes a file that in part puts B- where it is not needed, and one
    with a stray I-. iob2: every chunk begins with B-, or there is none.
    """
    sentences = [list(each) for each in tags]
    chunks = [chunk_of(tag) for tag in {tag for each in sentences for tag in each} if tag != "O"]
    letters = {chunk[0] if chunk else "" for chunk in chunks}
    if not letters <= LETTERS and not any(
        tag.startswith(("B-", "I-")) for each in sentences for tag in each
    ):
        return "plain"
    if letters & CLOSING:
        return "iobes"
    begun = {each[start].partition("-")[0] for each in sentences for _, start, _ in spans(each)}
    return "iob2" if begun <= {"B"} else "iob1"


def to_iob2(tags: Sequence[str]) -> tuple[str, ...]:
    """The same chunks (see spans.py) with B- on the first word of each and I- on its others. Tags
    outside of chunks stay as they are."""
    out = list(tags)
    for _, start, stop in spans(tags):
        for i in range(start, stop):
            _, hyphen, kind = tags[i].partition("-")
            out[i] = ("B" if i == start else "I") + hyphen + kind
    return tuple(out)


def _columns(
    path: Path, word: int | None, tag: int | str | None, prefix: str, treebank: bool
) -> _Columns:
    if isinstance(tag, str) and not (treebank and tag in UD_TAGS):
        raise UserError(
            f"{path}: no column {tag!r}; a column is a number, in .conllu files also "
            f"{' or '.join(UD_TAGS)}"
        )
    if not treebank:
        return _Columns(0 if word is None else word, -1 if tag is None else int(tag), prefix)
    place = UD_TAGS["upos" if tag is None else tag] if tag is None or isinstance(tag, str) else tag
    name = next(
        (name.upper() for name, column in UD_TAGS.items() if column == place % UD_WIDTH), ""
    )
    return _Columns(UD_WORD if word is None else word, place, prefix, name)


def _pair(path: Path, line: Line, columns: _Columns) -> tuple[str, str]:
    """The word and the tag of a line. Raises UserError if the columns do not exist or one is
    empty."""
    number, cells = line
    width = len(cells)
    word = columns.word
    tag = columns.tag
    if not (-width <= word < width and -width <= tag < width):
        absent = tag if -width <= word < width else word
        raise UserError(
            f"{path}, line {number}: no column {absent}; there are {width}, counted from 0 or from "
            "-1 backwards"
        )
    form = cells[word].strip(BLANKS)
    label = cells[tag].strip(BLANKS)
    problem = ""
    if word % width == tag % width:
        problem = (
            f"column {word} cannot be both the word and the tag; choose another one of the {width}"
        )
    elif not form.startswith(columns.prefix):
        problem = (
            f"the word {form[:40]!r} does not begin with {columns.prefix!r}, as all must where a "
            "prefix is given"
        )
    elif form == columns.prefix or not label:
        problem = f"the {'tag' if label == '' else 'word'} is empty; mend the line or leave it out"
    elif columns.named and label == "_":
        problem = (
            f"no {columns.named} ('_'): the treebank has no such tags, or not on every word; "
            "choose another column"
        )
    if problem:
        raise UserError(f"{path}, line {number}: {problem}")
    return form.removeprefix(columns.prefix), label


def _texts(row: dict[str, Any], names: tuple[str, ...], where: str) -> tuple[str, ...]:
    name = next((name for name in names if name in row), None)
    if name is None:
        raise UserError(f"{where}: no {' or '.join(names)}; found: {', '.join(row) or 'nothing'}")
    value = row[name]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        hint = (
            "; write the names of the tags, not their numbers"
            if names is TAGS and isinstance(value, list)
            else ""
        )
        raise UserError(
            f"{where}: {name!r} must be a list of texts, not {json.dumps(value)[:40]}{hint}"
        )
    for place, item in enumerate(value):
        if not item.strip(BLANKS):
            raise UserError(
                f"{where}: {name!r} holds an empty text (number {place}, counted from 0)"
            )
        if re.search("[\ud800-\udfff]", item):
            raise UserError(
                f"{where}: {name!r} holds half a surrogate pair, which is not a character (number "
                f"{place}, counted from 0)"
            )
    return tuple(value)
