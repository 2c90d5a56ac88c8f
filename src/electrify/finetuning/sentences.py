"""Sentences with a tag for each word: column files (CoNLL, CoNLL-U, TSV) and rows with lists of
words and tags. Their chunks are read as IOB2, whatever their scheme is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import need
from ..text.streams import ending_of
from ..text.tables import BLANKS, WITH_LISTS, Row, column_named, column_sentences, rows
from .metrics import LETTERS, chunk_of, spans
from .tasks import MIN_UPDATES, TASKS, Sentence, TaskData

TOKENS = ("tokens", "words")
TAGS = ("tags", "ner_tags", "labels")
UD_TAGS = {"upos": "3", "xpos": "4"}


def read_sentences(
    path: str, *, word: str | None = None, tag: str | None = None, prefix: str = ""
) -> tuple[Sentence, ...]:
    """The sentences of a column file (see `column_sentences`), or of rows with a list of texts
    `tokens` (else `words`) and one `tags` (else `ner_tags`, else `labels`). Raises UserError naming
    file and line.

    Args:
        word: Column of a column file, from 0; by default the first, in .conllu FORM.
        tag: The same; by default the last, in .conllu UPOS. There it may be "upos" or "xpos".
        prefix: What every word begins with, and what is removed, as "en:" in WikiANN's own files.
    """
    treebank = ending_of(path) == ".conllu"
    tag = UD_TAGS.get(tag or "upos", tag) if treebank else tag
    listed = ending_of(path) in WITH_LISTS
    sentences = []
    for row in rows(path) if listed else column_sentences(path):
        if listed:
            words, tags = texts_of(row), texts_of(row, TAGS)
        else:
            need(len(row.cells) > 1, f"{row.where}: one column; words need tags")
            words = texts_of(row, [word_column(path, row, word)])
            tags = texts_of(row, [column_named(path, [row], tag or list(row.cells)[-1])])
        fact = f"{row.where}: {len(words)} words, but {len(tags)} tags; every word needs one"
        need(len(words) == len(tags) > 0, fact)
        unset = treebank and tag in UD_TAGS.values() and "_" in tags
        need(not unset, f"{row.where}: a tag is '_': the treebank lacks some. Choose other tags")
        sentences.append(Sentence(tuple(word.removeprefix(prefix) for word in words), tags))
    return tuple(sentences)


def word_column(path: str, row: Row, given: str | None) -> str:
    """The column of the words in a column file. Raises UserError."""
    usual = "1" if ending_of(path) == ".conllu" else "0"
    return usual if given is None else column_named(path, [row], given)


def texts_of(row: Row, names: Sequence[str] = TOKENS) -> tuple[str, ...]:
    """The words or tags of a row: a list of texts. names: of its column. Raises UserError."""
    name = next((name for name in names if name in row.cells), names[0])
    value = row.value(name)
    are_texts = isinstance(value, list) and all(
        isinstance(v, str) and v.strip(BLANKS) for v in value
    )
    fact = f"{row.where}: column {name!r} must be a list of texts that are not empty, not numbers"
    need(are_texts, f"{fact}: {str(value)[:40]}")
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
    epochs: float,
    also: tuple[tuple[str, tuple[Sentence, ...]], ...] = (),
    notes: tuple[str, ...] = (),
) -> TaskData:
    """A task of sentences, their chunks as IOB2. The metrics are those of spans if tags have
    chunks, else accuracy."""
    chunked = has_chunks(s.tags for s in train)

    def read(part: tuple[Sentence, ...]) -> tuple[Sentence, ...]:
        return tuple(Sentence(s.words, to_iob2(s.tags)) for s in part) if chunked else part

    train = read(train)
    return TaskData(
        name=name,
        kind="tagging",
        labels=tuple(sorted({tag for s in train for tag in s.tags})),
        metrics=TASKS["conll2000" if chunked else "ud"].metrics,
        epochs=epochs,
        train=train,
        validation=read(validation),
        also=tuple((key, read(part)) for key, part in also),
        notes=notes,
        min_updates=MIN_UPDATES,
    )
