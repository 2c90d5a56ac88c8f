"""Sentences with a tag for each word: column files (CoNLL, CoNLL-U, TSV) and rows with lists of
words and tags. Their chunks are read as IOB2, whatever their scheme is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError
from .metrics import LETTERS, chunk_of, spans
from .tables import BLANKS, UD_WIDTH, Row, column_sentences, ending_of, rows
from .tasks import MIN_UPDATES, TASKS, Sentence, TaskData

TOKENS = ("tokens", "words")
TAGS = ("tags", "ner_tags", "labels")
UD_WORD = 1
UD_TAGS = {"upos": 3, "xpos": 4}


def read_sentences(
    path: str | Path, *, word: int | None = None, tag: int | str | None = None, prefix: str = ""
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
        tag = UD_TAGS.get(str(tag or "upos"), tag)
    place = word if word is not None else UD_WORD if treebank else 0
    tag = -1 if tag is None else tag
    if isinstance(tag, str):
        known = " or ".join(UD_TAGS)
        raise UserError(f"{path}: no column {tag!r}; it is a number, in .conllu also {known}")
    unset = treebank and tag % UD_WIDTH in UD_TAGS.values()
    sentences = []
    for lines in column_sentences(path):
        words = [cell_of(cells, place, path, k).removeprefix(prefix) for k, cells in lines]
        tags = [cell_of(cells, tag, path, k) for k, cells in lines]
        if unset and "_" in tags:
            raise UserError(
                f"{path}, line {lines[tags.index('_')][0]}: the tag is '_': not every word of "
                "this treebank has one; choose another column"
            )
        sentences.append(Sentence(tuple(words), tuple(tags)))
    if not sentences:
        raise UserError(f"{path}: no sentences")
    if treebank and all(set(sentence.words) == {"_"} for sentence in sentences):
        raise UserError(f"{path}: every word is '_': merge the treebank's text in first")
    return tuple(sentences)


def cell_of(cells: Sequence[str], column: int, path: str | Path, number: int) -> str:
    """The word or tag in a column of a line. Raises UserError if it is absent or empty."""
    if not -len(cells) <= column < len(cells):
        raise UserError(
            f"{path}, line {number}: no column {column}; there are {len(cells)}, counted from 0"
        )
    cell = cells[column].strip(BLANKS)
    if not cell:
        raise UserError(f"{path}, line {number}: column {column} is empty; correct the line")
    return cell


def read_sentence_rows(path: str) -> tuple[Sentence, ...]:
    """The sentences of rows with a list of texts `tokens` (else `words`) and one `tags` (else
    `ner_tags`, else `labels`). Raises UserError naming file and line."""
    sentences = []
    for row in rows(path):
        words, tags = texts_of(row, TOKENS), texts_of(row, TAGS)
        if not len(words) == len(tags) > 0:
            raise UserError(
                f"{row.where}: {len(words)} words, but {len(tags)} tags; every word needs one"
            )
        sentences.append(Sentence(words, tags))
    if not sentences:
        raise UserError(f"{path}: no sentences")
    return tuple(sentences)


def texts_of(row: Row, names: tuple[str, ...] = TOKENS) -> tuple[str, ...]:
    """The words, or the tags, of a row: a list of texts. names: of its column. Raises UserError."""
    name = next((name for name in names if name in row.cells), None)
    if name is None:
        raise UserError(f"{row.where}: no {' or '.join(names)}; found: {', '.join(row.cells)}")
    value: Any = row.cells[name]
    if not isinstance(value, list) or not all(isinstance(v, str) and v.strip() for v in value):
        hint = "; write the names of the tags, not their numbers" if names is TAGS else ""
        raise UserError(
            f"{row.where}: {name!r} must be a list of texts that are not empty, not "
            f"{str(value)[:40]}{hint}"
        )
    return tuple(value)


def has_chunks(tags: Iterable[Sequence[str]]) -> bool:
    """Whether tags are those of chunks (IOB1, IOB2, IOBES, BILOU), not of words (parts of speech):
    some tag begins with B- or I-, or all have the form of a chunk's."""
    different = {tag for each in tags for tag in each if tag != "O"}
    letters = {chunk[0] if (chunk := chunk_of(tag)) else "" for tag in different}
    return letters <= LETTERS or any(tag.startswith(("B-", "I-")) for tag in different)


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
    chunked = has_chunks(s.tags for s in train)

    def read(part: tuple[Sentence, ...]) -> tuple[Sentence, ...]:
        return tuple(Sentence(s.words, to_iob2(s.tags)) for s in part) if chunked else part

    train = read(train)
    return TaskData(
        name=name,
        kind="tagging",
        labels=tuple(sorted({tag for s in train for tag in s.tags})),
        metrics=metrics or TASKS["conll2000" if chunked else "ud"].metrics,
        epochs=epochs,
        train=train,
        validation=read(validation),
        also=tuple((key, read(part)) for key, part in also),
        notes=notes,
        min_updates=MIN_UPDATES,
    )
