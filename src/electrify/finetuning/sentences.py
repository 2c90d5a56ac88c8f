"""Sentences with a tag for each word: column files (CoNLL, CoNLL-U, TSV) and rows with lists of
words and tags; and the scheme of their tags."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from ..errors import UserError
from .metrics import CLOSING, LETTERS, chunk_of, spans
from .tables import BLANKS, UD_WIDTH, Row, column_sentences, ending_of, rows
from .tasks import MIN_UPDATES, TASKS, Sentence, TaskData

Scheme = Literal["plain", "iob1", "iob2", "iobes"]
TOKENS = ("tokens", "words")
TAGS = ("tags", "ner_tags", "labels")
UD_WORD = 1
UD_TAGS = {"upos": 3, "xpos": 4}


def read_sentences(
    path: str | Path,
    *,
    word: int | None = None,
    tag: int | str | None = None,
    prefix: str = "",
) -> tuple[Sentence, ...]:
    """The sentences of a column file (see `column_sentences`). Raises UserError naming file and
    line.

    Args:
        word: Column from 0, or from -1 backwards; by default the first, in .conllu FORM.
        tag: The same; by default the last, in .conllu UPOS. There it may be "upos" or "xpos".
        prefix: What every word begins with, and what is removed, as "en:" in WikiANN's own files.
    """
    treebank = ending_of(path) == ".conllu"
    if treebank:
        word = UD_WORD if word is None else word
        tag = UD_TAGS.get(str(tag or "upos"), tag)
    word = 0 if word is None else word
    tag = -1 if tag is None else tag
    if isinstance(tag, str):
        raise UserError(
            f"{path}: no column {tag!r}; a column is a number, in .conllu files also "
            f"{' or '.join(UD_TAGS)}"
        )
    unset = treebank and tag % UD_WIDTH in UD_TAGS.values()
    sentences = []
    for lines in column_sentences(path):
        pairs = []
        for number, cells in lines:
            form = cell_of(cells, word, path, number)
            label = cell_of(cells, tag, path, number)
            if word % len(cells) == tag % len(cells):
                raise UserError(f"{path}: column {word} cannot be both the word and the tag")
            if unset and label == "_":
                raise UserError(
                    f"{path}, line {number}: the tag is '_': not every word of this treebank has "
                    "one; choose another column"
                )
            if not form.startswith(prefix) or form == prefix:
                raise UserError(
                    f"{path}, line {number}: {form[:40]!r} is not {prefix!r} and a word, as others"
                )
            pairs.append((form.removeprefix(prefix), label))
        sentences.append(Sentence(*zip(*pairs, strict=True)))
    if not sentences:
        raise UserError(f"{path}: no sentences")
    if treebank and all(form == "_" for sentence in sentences for form in sentence.words):
        raise UserError(
            f"{path}: every word is '_': this treebank is published without its text; merge the "
            "text in first"
        )
    return tuple(sentences)


def cell_of(cells: Sequence[str], column: int, path: str | Path, number: int) -> str:
    """The word or tag in a column of a line. Raises UserError if it is absent or empty."""
    if not -len(cells) <= column < len(cells):
        raise UserError(
            f"{path}, line {number}: no column {column}; there are {len(cells)}, from 0, or from "
            "-1 backwards"
        )
    cell = cells[column].strip(BLANKS)
    if not cell:
        raise UserError(
            f"{path}, line {number}: column {column} is empty; correct the line or delete it"
        )
    return cell


def read_sentence_rows(path: str) -> tuple[Sentence, ...]:
    """The sentences of rows with a list of texts `tokens` (else `words`) and one `tags` (else
    `ner_tags`, else `labels`). Raises UserError naming file and line."""
    sentences = []
    for row in rows(path):
        words, tags = _texts(row, TOKENS), _texts(row, TAGS)
        if len(words) != len(tags):
            raise UserError(
                f"{row.where}: {len(words)} words, but {len(tags)} tags; every word needs one"
            )
        if not words:
            raise UserError(f"{row.where}: a sentence without words; delete the line")
        sentences.append(Sentence(words, tags))
    if not sentences:
        raise UserError(f"{path}: no sentences")
    return tuple(sentences)


def words_of(row: Row) -> tuple[str, ...]:
    """The words of a row. Raises UserError."""
    return _texts(row, TOKENS)


def _texts(row: Row, names: tuple[str, ...]) -> tuple[str, ...]:
    name = next((name for name in names if name in row.cells), None)
    if name is None:
        raise UserError(f"{row.where}: no {' or '.join(names)}; found: {', '.join(row.cells)}")
    value: Any = row.cells[name]
    if not isinstance(value, list) or not all(
        isinstance(v, str) and v.strip(BLANKS) for v in value
    ):
        numbers = names is TAGS and isinstance(value, list) and any(type(v) is int for v in value)
        hint = "; write the names of the tags, not their numbers" if numbers else ""
        raise UserError(
            f"{row.where}: {name!r} must be a list of texts that are not empty, not "
            f"{str(value)[:40]}{hint}"
        )
    return tuple(value)


def tag_scheme(tags: Iterable[Sequence[str]]) -> Scheme:
    """Which scheme the tags of all sentences follow.

    plain: tags of words, such as parts of speech: no tag begins with B- or I-, and not all have the
    form of a chunk's. iobes: some chunk ends with E- or is one S- (or BILOU's L-, U-). iob1: some
    chunk begins with I-; this includes a file that in part puts B- where it is not needed, and one
    with a stray I-. iob2: every chunk begins with B-, or there is none.
    """
    sentences = [list(each) for each in tags]
    different = {tag for each in sentences for tag in each}
    chunks = [chunk_of(tag) for tag in different if tag != "O"]
    letters = {chunk[0] if chunk else "" for chunk in chunks}
    if not letters <= LETTERS and not any(tag.startswith(("B-", "I-")) for tag in different):
        return "plain"
    if letters & CLOSING:
        return "iobes"
    begun = {each[start].partition("-")[0] for each in sentences for _, start, _ in spans(each)}
    return "iob2" if begun <= {"B"} else "iob1"


def to_iob2(tags: Sequence[str]) -> tuple[str, ...]:
    """The same chunks with B- on the first word of each and I- on its others. Tags outside of
    chunks stay as they are."""
    out = list(tags)
    for _, start, stop in spans(tags):
        for i in range(start, stop):
            _, hyphen, kind = tags[i].partition("-")
            out[i] = ("B" if i == start else "I") + hyphen + kind
    return tuple(out)


def tagging_of(
    name: str,
    train: tuple[Sentence, ...],
    validation: tuple[Sentence, ...],
    *,
    metrics: tuple[str, ...] = (),
    epochs: float,
    also: tuple[tuple[str, tuple[Sentence, ...]], ...] = (),
    notes: tuple[str, ...] = (),
) -> TaskData:
    """A task of sentences, their chunks as IOB2. metrics: none takes those of spans if tags have
    chunks, else accuracy."""
    chunked = tag_scheme(s.tags for s in train) != "plain"

    def read(part: tuple[Sentence, ...]) -> tuple[Sentence, ...]:
        return tuple(Sentence(s.words, to_iob2(s.tags)) for s in part) if chunked else part

    train = read(train)
    usual = TASKS["conll2000" if chunked else "ud"].metrics
    return TaskData(
        name=name,
        kind="tagging",
        labels=tuple(sorted({tag for s in train for tag in s.tags})),
        metrics=metrics or usual,
        epochs=epochs,
        train=train,
        validation=read(validation),
        also=tuple((key, read(part)) for key, part in also),
        notes=notes,
        min_updates=MIN_UPDATES,
    )
