"""Questions about a context: SQuAD's JSON (1.1 and 2.0), JSON lines, rows of the Hub's data sets.
A question without answers means that the context holds none.

Every answer must be at its stated place: a model learns places, and a shifted one teaches nonsense.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..text.streams import read_chunks
from .tables import Row, rows
from .tasks import TASKS, Answer, Question, TaskData

Placed = tuple[str, Question]
"""The place of a question in its file, and the question."""
SHOWN = 40
"""Characters of a value in a message."""
LAYOUT = (
    'the layout of SQuAD is {"data": [{"paragraphs": [{"context": ..., "qas": [...]}]}]}, and '
    "files with one JSON object on each line end in .jsonl"
)
_TYPES = {str: "a text", list: "a list", int: "a whole number"}


def read_questions(path: str | Path, *, answered: bool = True) -> tuple[Question, ...]:
    """SQuAD's official JSON, or the list of its paragraphs. answered: whether answers are read;
    otherwise they may be missing. Raises UserError naming the file and the place in it."""
    try:
        top = json.loads(b"".join(read_chunks(Path(path))))
    except (ValueError, RecursionError) as e:
        hint = LAYOUT if "Extra data" in str(e) else "was the file copied in full?"
        raise UserError(f"{path}: broken JSON ({e}); {hint}") from None
    if isinstance(top, list) and top and isinstance(top[0], dict) and "qas" in top[0]:
        top = {"data": [{"paragraphs": top}]}  # as simpletransformers has it
    if not isinstance(top, dict) or "data" not in top:
        raise UserError(f"{path}: no key 'data'; {LAYOUT}")
    return gathered(str(path), _nested(str(path), top, answered=answered))


def read_question_rows(path: str) -> tuple[Question, ...]:
    """Rows as `question_of` takes them; the id is the line number if none is given. Raises
    UserError naming file and line."""
    found = (
        (f"line {row.number}", question_of(row.cells | _id(row), row.where)) for row in rows(path)
    )
    return gathered(path, found)


def _id(row: Row) -> dict[str, str]:
    return {} if "id" in row.cells else {"id": str(row.number)}


def question_of(row: dict[str, Any], where: str) -> Question:
    """A row with id, context, question and answers: {"text": [...], "answer_start": [...]} as on
    the Hub, a list of {"text", "answer_start"}, or one text or a list of them, whose places are
    where the context first holds them. where: the row's place, for messages. Raises UserError."""
    context = _text(row, "context", where)
    if "answers" not in row:
        raise _missing(row, "answers", where)
    return _question(row, context, _located(row["answers"], context, where), where)


def asked(row: Row) -> Question:
    """A row with context, question and perhaps id, whose answer is to be found. Raises
    UserError."""
    known = {key: row.cells[key] for key in ("id", "context", "question") if key in row.cells}
    return _question(known | _id(row), _text(known, "context", row.where), [], row.where)


def gathered(name: str, found: Iterable[Placed]) -> tuple[Question, ...]:
    """The questions of one file or data set, which messages call `name`. Raises UserError if there
    are none, or two have one id."""
    places: dict[str, str] = {}
    questions = []
    for place, question in found:
        if question.id in places:
            raise UserError(
                f"{name}, {place}: id {question.id!r} is also that of {places[question.id]}; give "
                "each question an id of its own"
            )
        places[question.id] = place
        questions.append(question)
    if not questions:
        raise UserError(f"{name}: no questions")
    return tuple(questions)


def answering_of(
    name: str,
    train: tuple[Question, ...],
    validation: tuple[Question, ...] | None,
    *,
    epochs: float,
    min_updates: int = 0,
    notes: tuple[str, ...] = (),
) -> TaskData:
    """A task of questions. validation: None if the first part is to be split. If some validation
    questions have no answer, the metrics are SQuAD 2.0's."""
    shared = {q.context for q in train} & {q.context for q in validation or ()}
    if shared:
        note = f"{len(shared):,} contexts of validation questions also occur in the training set"
        notes += (f"{note}. Scores are optimistic.",)
    validation = validation or train
    answered = sum(bool(q.answers) for q in validation)
    metrics = TASKS["squad1" if answered == len(validation) else "squad2"].metrics
    if not answered:
        metrics = tuple(m for m in metrics if not m.startswith("has_answer"))
    return TaskData(
        name=name,
        kind="answering",
        labels=(),
        metrics=metrics,
        epochs=epochs,
        train=train,
        validation=validation,
        min_updates=min_updates,
        notes=notes,
    )


def _nested(path: str, top: dict[str, Any], *, answered: bool) -> Iterator[Placed]:
    for i, article in enumerate(_get(top, "data", list, path)):
        place = f"data[{i}]"
        for j, paragraph in enumerate(_get(article, "paragraphs", list, f"{path}, {place}")):
            place = f"data[{i}].paragraphs[{j}]"
            context = _text(paragraph, "context", f"{path}, {place}")
            for k, qa in enumerate(_get(paragraph, "qas", list, f"{path}, {place}")):
                place = f"data[{i}].paragraphs[{j}].qas[{k}]"
                where = f"{path}, {place}"
                if answered:
                    yield place, _question(qa, context, _get(qa, "answers", list, where), where)
                else:
                    known = {key: _get(qa, key, str, where) for key in ("id", "question")}
                    yield place, _question(known, context, [], where)


def _question(row: dict[str, Any], context: str, answers: list[Any], where: str) -> Question:
    id_ = _text(row, "id", where)
    question = _text(row, "question", where)
    if "is_impossible" in row and row["is_impossible"] is not (not answers):
        raise UserError(
            f"{where}: is_impossible is {json.dumps(row['is_impossible'])}, but 'answers' holds "
            f"{len(answers)}; correct one of them"
        )
    found = (_answer(a, context, id_, f"{where}, answers[{n}]") for n, a in enumerate(answers))
    return Question(id_, question, context, tuple(found))


def _answer(item: Any, context: str, id_: str, where: str) -> Answer:
    """Without blanks around it: one at its end would teach that the next word belongs to it."""
    text = _text(item, "text", where)
    start = _get(item, "answer_start", int, where)
    there = context[start : start + len(text)] if start >= 0 else ""
    if there != text:
        raise UserError(
            f"{where}: {_shown(text)} of question {id_!r} is not at answer_start {start} of the "
            f"context, where {_shown(there)} stands; answer_start counts characters from 0"
        )
    bare = text.strip()
    return Answer(bare, start + text.index(bare))


def _located(answers: Any, context: str, where: str) -> list[Any]:
    """The answers of a row as a list of {"text", "answer_start"}."""
    if isinstance(answers, dict):
        texts, starts = (
            _get(answers, key, list, f"{where}, answers") for key in ("text", "answer_start")
        )
        if len(texts) != len(starts):
            raise UserError(
                f"{where}: 'answers' has {len(texts)} in 'text' and {len(starts)} in "
                "'answer_start'; give one start for each text"
            )
        return [{"text": t, "answer_start": s} for t, s in zip(texts, starts, strict=True)]
    items = [answers] if isinstance(answers, str) else answers
    if not isinstance(items, list):
        raise UserError(
            f"{where}: 'answers' must be a text, a list or an object, not {_shown(answers)}"
        )
    for n, item in enumerate(items):
        if isinstance(item, str) and item.strip() not in context:
            raise UserError(
                f"{where}, answers[{n}]: the context does not hold {_shown(item)}; an answer must "
                "be a piece of it, letter by letter"
            )
    return [
        {"text": item.strip(), "answer_start": context.find(item.strip())}
        if isinstance(item, str)
        else item
        for item in items
    ]


def _text(row: Any, key: str, where: str) -> str:
    text = _get(row, key, str, where)
    if not text.strip():
        hint = "; a question without an answer has no answers: []" if key == "text" else ""
        raise UserError(f"{where}: {key!r} is blank{hint}")
    return text


def _get(row: Any, key: str, kind: type, where: str) -> Any:
    if not isinstance(row, dict):
        raise UserError(f"{where}: must be an object, not {_shown(row)}")
    if key not in row:
        raise _missing(row, key, where)
    if type(row[key]) is not kind:
        raise UserError(f"{where}: {key!r} must be {_TYPES[kind]}, not {_shown(row[key])}")
    return row[key]


def _missing(row: dict[str, Any], key: str, where: str) -> UserError:
    found = ", ".join(map(repr, list(row)[:10])) or "nothing"
    return UserError(f"{where}: no key {key!r}; found: {found}")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
