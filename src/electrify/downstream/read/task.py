"""A task's row and a folder (or data set) -> its examples, read by the reader for its kind of
files."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from pathlib import Path

from ...errors import UserError
from ...export.places import may_be_on_hub
from ...text.small_files import lines_of
from ..examples import Question, Sentence
from ..known_tasks import NO_ANSWER_METRICS
from ..tasks import MIN_UPDATES, AnswerTask, KnownTask, LinesTask, TagTask, TaskData, TextTask
from .babylm import read_babylm
from .conll import read_sentences, tag_scheme, to_iob2
from .files import whole
from .glue import read_glue
from .hub import GLUE_ON_HUB, read_hub_glue, read_hub_squad
from .squad import read_questions
from .where import folder_of, parts_too

# What may stand in for an official file of SQuAD, which the notes then say.
_PARTS = ("-subset", "-half")


def read_task(task: KnownTask, data_dir: str | None, *, test: bool = False) -> TaskData:
    """The examples of a task in a folder, or in the folder of its group there (glue, tagging,
    squad, babylm), or in a data set of the Hub (`data_dir` is its id, or None for the task's own).
    test: whether to read GLUE's test sets, too.

    Raises UserError naming file and line.
    """
    if (
        data_dir is not None
        and not Path(data_dir).is_dir()
        and (isinstance(task, TagTask | LinesTask) or not may_be_on_hub(data_dir))
    ):
        raise UserError(f"--data-dir {data_dir}: no such folder")
    if data_dir is not None and Path(data_dir).is_dir():
        data_dir = folder_of(task, data_dir)
    on_hub = data_dir is None or not Path(data_dir).is_dir() or _is_clone(Path(data_dir))
    match task:
        case TextTask():
            return (
                read_hub_glue(task, data_dir or GLUE_ON_HUB, test=test)
                if on_hub
                else read_glue(task, str(data_dir), test=test)
            )
        case LinesTask():
            return read_babylm(task, _given(data_dir, task.train, task))
        case TagTask():
            return _read_tagging(task, _given(data_dir, task.folders[0], task))
        case AnswerTask():
            return _read_answering(task, data_dir, on_hub=on_hub)


def _given(data_dir: str | None, holds: str, task: KnownTask) -> Path:
    """The folder of a task that is not on the Hub. Raises UserError if none is named."""
    if data_dir is None:
        raise UserError(
            f"--data-dir is missing: the folder that holds {holds} for task {task.name!r}"
        )
    return Path(data_dir)


def _read_answering(task: AnswerTask, data_dir: str | None, *, on_hub: bool) -> TaskData:
    if on_hub:
        parts = read_hub_squad(data_dir or task.hub)
        found = answering_of(task.name, *parts, epochs=task.epochs)
    else:
        found = _read_squad(task, Path(str(data_dir)))
    if found.metrics != task.metrics:
        has = (
            "no unanswerable question"
            if task.metrics == NO_ANSWER_METRICS
            else "unanswerable questions"
        )
        raise UserError(
            f"{data_dir or task.hub}: its development set has {has}, so it is not that of "
            f"task {task.name!r}"
        )
    return found


def _is_clone(folder: Path) -> bool:
    """Whether a folder is a data set of the Hub: its README begins with the names of its parts."""
    readme = folder / "README.md"
    if not readme.is_file():
        return False
    with readme.open("rb") as f:
        beginning = f.read(100_000)
    return beginning.startswith(b"---") and b"configs:" in beginning


def _read_tagging(task: TagTask, data_dir: Path) -> TaskData:
    folder = _folder(data_dir, task)
    train = _match(folder, task.train, task.name)
    if train is None:
        raise UserError(
            f"{folder}: no training file for task {task.name!r}: {' or '.join(task.train)}"
        )
    validation = _match(folder, task.validation, task.name)
    test = _match(folder, task.test, task.name)
    scored = validation or test
    if scored is None:
        raise UserError(
            f"{folder}: no development or test file for task {task.name!r}: "
            f"{' or '.join((*task.validation, *task.test))}"
        )
    notes = (
        []
        if validation
        else [f"there is no development set: scored on {test.name if test else ''}"]
    )
    parts = [_sentences(task, path) for path in (train, scored)]
    also = (("test", _sentences(task, test)),) if test and validation else ()
    return tagging_of(
        task.name,
        parts[0],
        parts[1],
        also=also,
        metrics=task.metrics,
        epochs=task.epochs,
        notes=tuple(notes),
    )


def _sentences(task: TagTask, path: Path) -> tuple[Sentence, ...]:
    if ".conllu" in path.name:
        return read_sentences(path)
    return read_sentences(
        path, word=task.word, tag=task.tag, prefix=_language(path) if task.languages else None
    )


def _language(path: Path) -> str | None:
    """The prefix `en:` of a file whose first word is en:Sioux, as in WikiANN's own files."""
    first = next((line for line in lines_of(whole(path)) if line.strip()), "")
    language, colon, _ = first.partition(":")
    return (
        language + colon
        if colon
        and 2 <= len(language) <= 12
        and language.replace("-", "").isalpha()
        and language.islower()
        else None
    )


def tagging_of(
    name: str,
    train: Iterable[Sentence],
    validation: Iterable[Sentence],
    *,
    metrics: tuple[str, ...] | None,
    epochs: float,
    also: tuple[tuple[str, tuple[Sentence, ...]], ...] = (),
    notes: tuple[str, ...] = (),
) -> TaskData:
    """A task of sentences, their chunks as IOB2. metrics: None takes spans if tags have chunks,
    else accuracy."""
    train = tuple(train)
    chunked = tag_scheme(s.tags for s in train) != "plain"

    def read(part: Iterable[Sentence]) -> tuple[Sentence, ...]:
        return tuple(Sentence(s.words, to_iob2(s.tags)) for s in part) if chunked else tuple(part)

    parts = (read(train), read(validation))
    also = tuple((key, read(part)) for key, part in also)
    labels = tuple(sorted({tag for s in parts[0] for tag in s.tags}))
    metrics = metrics or (("f1", "precision", "recall", "accuracy") if chunked else ("accuracy",))
    return TaskData(
        name,
        "tagging",
        labels,
        metrics,
        epochs,
        parts[0],
        parts[1],
        also=also,
        notes=notes,
        min_updates=MIN_UPDATES,
    )


def _read_squad(task: AnswerTask, data_dir: Path) -> TaskData:
    folder = _folder(data_dir, task)
    found = []
    notes = []
    for patterns in (task.train, task.validation):
        names = [
            *patterns,
            *(name.replace(".json", f"{part}.json") for name in patterns for part in _PARTS),
        ]
        path = _match(folder, tuple(names), task.name)
        if path is None:
            raise UserError(f"{folder}: no {' or '.join(patterns)} for task {task.name!r}")
        found.append(read_questions(path))
        if path.name not in patterns:
            notes.append(
                f"{path.name} ({len(found[-1]):,} questions) stands in for the official "
                f"{patterns[0]}"
            )
    return answering_of(task.name, *found, epochs=task.epochs, notes=tuple(notes))


def answering_of(
    name: str,
    train: tuple[Question, ...],
    validation: tuple[Question, ...] | None = None,
    *,
    epochs: float,
    notes: tuple[str, ...] = (),
) -> TaskData:
    """A task of questions; contexts that are in both parts are reported. Without a second part, the
    first one is to be split. If some validation questions have no answer, the metrics are SQuAD
    2.0's."""
    shared = {q.context for q in train} & {q.context for q in validation or ()}
    validation = train if validation is None else validation
    if shared:
        notes = (
            *notes,
            (
                f"{len(shared):,} contexts of the validation questions are among the training "
                "contexts: the scores flatter"
            ),
        )
    answered = sum(bool(q.answers) for q in validation)
    metrics = ("exact", "f1") if answered == len(validation) else NO_ANSWER_METRICS
    if not answered:
        metrics = tuple(metric for metric in metrics if not metric.startswith("has_answer"))
    return TaskData(name, "answering", (), metrics, epochs, train, validation, notes=notes)


def _folder(data_dir: Path, task: TagTask | AnswerTask) -> Path:
    for pattern in task.folders:
        if pattern == "":
            if any(_match(data_dir, (name,), task.name) for name in parts_too(task.train)):
                return data_dir
            continue
        there = sorted(
            p for p in data_dir.iterdir() if p.is_dir() and fnmatch.fnmatchcase(p.name, pattern)
        )
        if len(there) > 1:
            raise UserError(
                f"{data_dir}: several folders for task {task.name!r}: "
                f"{', '.join(p.name for p in there)}; keep one, or give its parent"
            )
        if there:
            return there[0]
    if any(
        fnmatch.fnmatchcase(data_dir.resolve().name, pattern) for pattern in task.folders if pattern
    ):
        return data_dir
    raise UserError(
        f"{data_dir}: no folder {' or '.join(p for p in task.folders if p)}; --data-dir must hold "
        f"it for task {task.name!r}"
    )


def _match(folder: Path, patterns: tuple[str, ...], task: str) -> Path | None:
    """The one file of the first pattern that has one. Raises UserError if a pattern has several."""
    for pattern in patterns:
        there = sorted(
            p for p in folder.iterdir() if p.is_file() and fnmatch.fnmatchcase(p.name, pattern)
        )
        if len(there) > 1 and "*" in pattern and ".json" not in pattern:
            raise UserError(
                f"{folder}: several files for task {task!r}: {', '.join(p.name for p in there)}; "
                "keep one"
            )
        if there:
            return there[0]
    return None
