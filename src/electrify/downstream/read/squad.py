"""Questions about a context: SQuAD's JSON (1.1 and 2.0), the user's own as JSON lines, rows of the
Hub's data sets. A question without answers means that the context holds none.

It is checked that every answer is at its stated place, because a model learns places, and a shifted
one teaches nonsense.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ...errors import UserError
from ...text.small_files import json_rows
from ..examples import Answer, Question
from .files import whole

Placed = tuple[str, Question]  # its place in its file, and the question
SHOWN = 40  # characters of a value that a message repeats
LAYOUT = (
    'the layout of SQuAD is {"data": [{"paragraphs": [{"context": ..., "qas": [...]}]}]}, and '
    "files with one question on each line end in .jsonl"
)
TYPES = {str: "a text", list: "a list", int: "a whole number", bool: "true or false"}


def read_questions(path: str | Path, *, answered: bool = True) -> tuple[Question, ...]:
    """SQuAD's official JSON, 1.1 or 2.0. answered: whether answers are read; otherwise they may be
    missing. Raises UserError naming the file and the place in it."""
    text = whole(path)
    try:
        top = json.loads(text)
    except (ValueError, RecursionError) as e:
        hint = LAYOUT if "Extra data" in str(e) else "was the file copied in full?"
        raise UserError(f"{path}: broken JSON ({e}); {hint}") from None
    if not isinstance(top, dict):
        raise UserError(f"{path}: {_shown(top)} at the top; {LAYOUT}")
    if "data" not in top:
        if (
            top
            and not {"version", "context", "question"} & top.keys()
            and all(isinstance(value, str | float) for value in top.values())
        ):
            raise UserError(
                f"{path}: a file of predictions or scores (question id to value), not of "
                f"questions; {LAYOUT}"
            )
        raise UserError(f"{path}: no key 'data'; {LAYOUT}")
    return gathered(str(path), _nested(str(path), top, answered=answered))


def read_question_rows(path: str | Path) -> tuple[Question, ...]:
    """The user's own questions, a JSON object on each line as `question_of` takes it; the id is the
    line number if none is given.

    Raises UserError naming file and line.
    """
    rows = json_rows(path, whole(path))
    return gathered(
        str(path),
        ((f"line {k}", question_of({"id": str(k)} | row, f"{path}, line {k}")) for k, row in rows),
    )


def question_of(row: dict[str, Any], where: str) -> Question:
    """A row with id, context, question and answers: {"text": [...], "answer_start": [...]} as on
    the Hub, a list of {"text", "answer_start"}, or one text or a list of them, whose places are
    where the context first holds them. where: the row's place, for messages.

    Raises UserError.
    """
    context = _text(row, "context", where)
    if "answers" not in row:
        raise _missing(row, "answers", where)
    return _question(row, context, _located(row["answers"], context, where), where)


def asked(row: dict[str, Any], where: str) -> Question:
    """A row with id, context and question, whose answer is to be found. Raises UserError."""
    known = {key: row[key] for key in ("id", "context", "question") if key in row}
    return _question(known, _text(known, "context", where), [], where)


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


def _nested(path: str, top: dict[str, Any], *, answered: bool) -> Iterator[Placed]:
    for i, article in enumerate(_get(top, "data", list, path)):
        place = f"data[{i}]"
        for j, paragraph in enumerate(_get(article, "paragraphs", list, f"{path}, {place}")):
            place = f"data[{i}].paragraphs[{j}]"
            context = _text(paragraph, "context", f"{path}, {place}")
            for k, qa in enumerate(_get(paragraph, "qas", list, f"{path}, {place}")):
                place = f"data[{i}].paragraphs[{j}].qas[{k}]"
                where = f"{path}, {place}"
                if not answered:
                    _must_be_object(qa, where)
                    yield place, asked(qa | {"context": context}, where)
                    continue
                yield place, _question(qa, context, _get(qa, "answers", list, where), where)


def _question(row: dict[str, Any], context: str, answers: list[Any], where: str) -> Question:
    id_ = _text(row, "id", where)
    question = _text(row, "question", where)
    if "is_impossible" in row:
        impossible = _get(row, "is_impossible", bool, where)
        if impossible and answers:
            raise UserError(
                f"{where}: is_impossible is true and 'answers' holds {len(answers)}; empty "
                "'answers' or set is_impossible to false"
            )
        if not impossible and not answers:
            raise UserError(
                f"{where}: is_impossible is false and 'answers' is empty; give an answer or set "
                "is_impossible to true"
            )
    return Question(
        id_,
        question,
        context,
        tuple(_answer(a, context, id_, f"{where}, answers[{n}]") for n, a in enumerate(answers)),
    )


def _answer(item: Any, context: str, id_: str, where: str) -> Answer:
    text = _text(item, "text", where)
    start = _get(item, "answer_start", int, where)
    if not 0 <= start < len(context):
        raise UserError(
            f"{where}: answer_start {start} of question {id_!r} is outside the context of "
            f"{len(context):,} characters, counted from 0"
        )
    there = context[start : start + len(text)]
    if there != text:
        raise UserError(
            f"{where}: {_shown(text)} of question {id_!r} is not at answer_start {start} of the "
            f"context, where {_shown(there)} stands; "
            "answer_start counts characters from 0"
        )
    return Answer(text, start)


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
        return [
            {"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)
        ]
    if not isinstance(answers, str | list):
        raise UserError(
            f"{where}: 'answers' must be a text, a list or an object, not {_shown(answers)}"
        )
    items = [answers] if isinstance(answers, str) else answers
    for n, item in enumerate(items):
        if isinstance(item, str) and item not in context:
            raise UserError(
                f"{where}, answers[{n}]: the context does not hold {_shown(item)}; an answer must "
                "be a piece of it, letter by letter"
            )
    return [
        {"text": item, "answer_start": context.find(item)} if isinstance(item, str) else item
        for item in items
    ]


def _text(row: Any, key: str, where: str) -> str:
    text = _get(row, key, str, where)
    if not text.strip():
        raise UserError(
            f"{where}: {key!r} is blank"
            + (
                "; a question that the context does not answer has no answers: []"
                if key == "text"
                else ""
            )
        )
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise UserError(
            f"{where}: {key!r} holds half a surrogate pair, {_shown(text[e.start])}; write the "
            "character in full"
        ) from None
    return text


def _get(row: Any, key: str, kind: type, where: str) -> Any:
    _must_be_object(row, where)
    if key not in row:
        raise _missing(row, key, where)
    value = row[key]
    if type(value) is not kind:
        raise UserError(f"{where}: {key!r} must be {TYPES[kind]}, not {_shown(value)}")
    return value


def _must_be_object(row: Any, where: str) -> None:
    if not isinstance(row, dict):
        raise UserError(f"{where}: must be an object, not {_shown(row)}")


def _missing(row: dict[str, Any], key: str, where: str) -> UserError:
    return UserError(
        f"{where}: no key {key!r}; found: {', '.join(map(_shown, list(row)[:10])) or 'nothing'}"
    )


def _shown(value: Any) -> str:
    text = (
        json.dumps(value, ensure_ascii=False, default=str)
        .encode("utf-8", "backslashreplace")
        .decode()
    )
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
