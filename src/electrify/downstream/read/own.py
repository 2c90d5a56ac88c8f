"""One's own files: the columns and the kind of label are detected where they are not given."""

from __future__ import annotations

from pathlib import Path

from ...errors import UserError
from ...text.whole import json_rows
from ..examples import Question, Sentence
from ..known_tasks import TASKS
from ..tasks import TaskData
from .conll import read_sentence_rows, read_sentences
from .files import ending_of, whole
from .overlap import shared_examples
from .own_texts import OWN_EPOCHS, WHOLE_NUMBER, texts_task
from .squad import read_question_rows, read_questions
from .tables import must_be_classes
from .task import answering_of, tagging_of


def read_own(
    train_file: str,
    validation_file: str,
    *,
    text_column: str | None,
    pair_column: str | None,
    label_column: str | None,
    problem_type: str,
) -> TaskData:
    """A task of one's own files; the columns and the kind of label are detected where they are not
    given. Raises UserError naming file and line."""
    files = (train_file, validation_file)
    kind = _kind_of_files(train_file) if problem_type == "auto" else problem_type
    name = Path(train_file).name.split(".")[0]
    # Under a known name the report would compare it with published scores.
    name = f"own-{name}" if name.lower() in TASKS else name
    flags = {
        "--text-column": text_column,
        "--pair-column": pair_column,
        "--label-column": label_column,
    }
    if kind == "tagging" and ending_of(train_file) not in (".jsonl", ".ndjson"):
        flags = {"--pair-column": pair_column}
    useless = [
        flag
        for flag, given in flags.items()
        if given is not None and kind in ("tagging", "answering")
    ]
    if useless:
        raise UserError(
            f"{train_file}: {useless[0]} is not for this kind of file: its names are fixed"
        )
    match kind:
        case "answering":
            train, validation = (_questions(path) for path in files)
            return answering_of(name, train, validation, epochs=2)
        case "tagging":
            found = [_sentences(path, text_column, label_column) for path in files]
            must_be_classes(
                train_file,
                len({tag for sentence in found[0] for tag in sentence.tags}),
                "the column of tags",
            )
            shared = shared_examples(*([sentence.words for sentence in part] for part in found))
            return tagging_of(
                name, found[0], found[1], metrics=None, epochs=OWN_EPOCHS, notes=shared
            )
        case _:
            return texts_task(files, name, text_column, pair_column, label_column, kind)


def _kind_of_files(path: str) -> str:
    """What the ending says, and in JSON lines the keys; else auto."""
    match ending_of(path):
        case ".json":
            return "answering"
        case ".conll" | ".conllu" | ".iob" | ".iob2" | ".bio" | ".txt":
            return "tagging"
        case ".jsonl" | ".ndjson":
            keys = set(next((row for _, row in json_rows(path, whole(path))), {}))
            if {"context", "question"} <= keys:
                return "answering"
            return (
                "tagging"
                if keys & {"tokens", "words"} and keys & {"tags", "ner_tags", "labels"}
                else "auto"
            )
    return "auto"


def _questions(path: str) -> tuple[Question, ...]:
    return read_questions(path) if ending_of(path) == ".json" else read_question_rows(path)


def _sentences(path: str, word: str | None, tag: str | None) -> tuple[Sentence, ...]:
    if ending_of(path) in (".jsonl", ".ndjson"):
        return read_sentence_rows(path)
    numbers = [
        None if given is None else int(given) if WHOLE_NUMBER.fullmatch(given) else given
        for given in (word, tag)
    ]
    if isinstance(numbers[0], str):
        raise UserError(
            f"{path}: --text-column of a file of columns is a number from 0, not {numbers[0]!r}"
        )
    return read_sentences(path, word=numbers[0], tag=numbers[1])
