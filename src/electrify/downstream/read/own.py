"""The user's own files: the columns and the kind of label are detected if they are not given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...errors import UserError
from ...text.small_files import json_rows
from ..examples import Question, Sentence
from ..known_tasks import TASKS
from ..metrics import chosen
from ..tasks import MIN_UPDATES, TaskData
from .columns import WHOLE_NUMBER, Columns
from .conll import read_sentence_rows, read_sentences
from .files import ending_of, whole
from .overlap import shared_examples
from .own_texts import OWN_EPOCHS, texts_task
from .squad import read_question_rows, read_questions
from .tables import must_be_classes
from .task import answering_of, tagging_of

_SAYS_NOTHING = ("train", "training", "train_data", "data")


def read_own(
    train_file: str,
    validation_file: str | None,
    *,
    columns: Columns | None = None,
    problem_type: str = "auto",
    metrics: Sequence[str] = (),
) -> TaskData:
    """A task of one's own files; the columns and the kind of label are detected where they are not
    given, and so are the metrics. validation_file: None if one file is to be split; its examples
    are then in both places. Raises UserError naming file and line."""
    files = (train_file,) if validation_file is None else (train_file, validation_file)
    kind = _kind_of_files(train_file) if problem_type == "auto" else problem_type
    name = _name_of(Path(train_file))
    # Under a known name, the report would compare it with published scores.
    name = f"own-{name}" if name.lower() in TASKS else name
    columns = columns or Columns()
    _must_use(columns.flags(), train_file, kind)
    match kind:
        case "answering":
            chosen(metrics, "answering")
            found = answering_of(name, *map(_questions, files), epochs=2)
            return replace(found, min_updates=MIN_UPDATES)
        case "tagging":
            chosen(metrics, "tagging")
            return _tagging(files, name, columns.text, columns.label)
        case _:
            return texts_task(files, name, columns, kind, metrics)


def _name_of(train_file: Path) -> str:
    """The name of the task: that of the file, or of its folder if the file's name says nothing."""
    name = train_file.name.split(".")[0]
    return (train_file.resolve().parent.name or name) if name.lower() in _SAYS_NOTHING else name


def _must_use(columns: dict[str, str | None], train_file: str, kind: str) -> None:
    """Raises UserError for a column that was named although this kind of file has fixed names.
    columns: what was given, by flag."""
    if kind not in ("tagging", "answering"):
        return
    if kind == "tagging" and ending_of(train_file) not in (".jsonl", ".ndjson"):
        columns = {flag: columns[flag] for flag in ("--pair-column", "--no-header")}
    useless = [flag for flag, given in columns.items() if given is not None]
    if useless:
        raise UserError(
            f"{train_file}: {useless[0]} is not for this kind of file: its names are fixed"
        )


def _tagging(
    files: Sequence[str], name: str, word_column: str | None, tag_column: str | None
) -> TaskData:
    found = [_sentences(path, word_column, tag_column) for path in files]
    tags = _tags(found[0])
    must_be_classes(files[0], len(tags), "the column of tags")
    shared = shared_examples([[sentence.words for sentence in part] for part in found])
    task = tagging_of(name, found[0], found[-1], metrics=None, epochs=OWN_EPOCHS, notes=shared)
    # The task has the tags in one scheme, whatever the schemes of the two files are.
    scored = {tag for one in task.validation if isinstance(one, Sentence) for tag in one.tags}
    if scored - {"O"} and not (scored - {"O"}) & set(task.labels):
        odd, known = _first(_tags(found[-1]) - {"O"}), _first(tags)
        raise UserError(f"{files[-1]}: none of its tags ({odd}) is one of {known}")
    return replace(task, notes=(*task.notes, *untrained(task)))


def _tags(sentences: Sequence[Sentence]) -> set[str]:
    return {tag for sentence in sentences for tag in sentence.tags}


def untrained(task: TaskData) -> tuple[str, ...]:
    """A note on the tags that only the validation data has."""
    learnt = {tag for one in task.train if isinstance(one, Sentence) for tag in one.tags}
    scored = [tag for one in task.validation if isinstance(one, Sentence) for tag in one.tags]
    odd = [tag for tag in scored if tag not in learnt]
    if not odd:
        return ()
    said = f"{len(odd):,} validation words have tags that no training word has"
    return (f"{said} ({_first(set(odd))}), and count as wrong",)


def _first(tags: set[str]) -> str:
    return ", ".join(sorted(tags)[:10]) + (", ..." if len(tags) > 10 else "")


def _kind_of_files(path: str) -> str:
    """What the ending, or in JSON lines the keys, show; otherwise auto."""
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
