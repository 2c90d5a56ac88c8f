"""Questions about a context: SQuAD's JSON (1.1 and 2.0), rows of tables, rows of the Hub's data
sets. A question without answers means that the context holds none.

Every answer must be at its stated place: a model learns places, and a shifted one teaches nonsense.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..text.streams import read_chunks
from .tables import Row, ending_of, rows
from .tasks import TASKS, Answer, Question, TaskData

Placed = tuple[str, dict[str, Any]]
"""The place of a question, for messages, and its row."""
LAYOUT = (
    'the layout of SQuAD is {"data": [{"paragraphs": [{"context": ..., "qas": [...]}]}]}, and '
    "files with one JSON object on each line end in .jsonl"
)


def read_questions(path: str | Path, *, answered: bool = True) -> tuple[Question, ...]:
    """The questions of a file: SQuAD's .json, or a table with a question in each row. answered:
    whether answers are read. Raises UserError naming the file and the place in it."""
    if ending_of(path) == ".json":
        found = _nested(str(path))
    else:
        found = ((row.where, _with_id(row)) for row in rows(str(path)))
    return gathered(str(path), found, answered=answered)


def gathered(name: str, found: Iterable[Placed], *, answered: bool = True) -> tuple[Question, ...]:
    """The questions of one file or data set, which messages call `name`. Raises UserError if there
    are none, or two have one id."""
    places: dict[str, str] = {}
    questions = []
    for where, row in found:
        question = question_of(row, where, answered=answered)
        if question.id in places:
            raise UserError(
                f"{where}: id {question.id!r} is also that of {places[question.id]}; give each "
                "question an id of its own"
            )
        places[question.id] = where
        questions.append(question)
    if not questions:
        raise UserError(f"{name}: no questions")
    return tuple(questions)


def asked(row: Row) -> Question:
    """A row with context, question and perhaps id, whose answer is to be found."""
    return question_of(_with_id(row), row.where, answered=False)


def _with_id(row: Row) -> dict[str, Any]:
    return {"id": str(row.number)} | row.cells


def _nested(path: str) -> Iterator[Placed]:
    """The questions of SQuAD's JSON, or of a list of its paragraphs (simpletransformers)."""
    try:
        top = json.loads(b"".join(read_chunks(Path(path))))
    except (ValueError, RecursionError) as e:
        hint = LAYOUT if "Extra data" in str(e) else "was the file copied in full?"
        raise UserError(f"{path}: broken JSON ({e}); {hint}") from None
    place = "data"
    try:
        articles = top["data"] if isinstance(top, dict) else [{"paragraphs": top}]
        for i, article in enumerate(articles):
            for j, paragraph in enumerate(article["paragraphs"]):
                for k, qa in enumerate(paragraph["qas"]):
                    place = f"data[{i}].paragraphs[{j}].qas[{k}]"
                    yield f"{path}, {place}", qa | {"context": paragraph["context"]}
    except (KeyError, TypeError) as e:
        raise UserError(f"{path}: not a file of SQuAD, at or after {place} ({e}); {LAYOUT}") from e


def question_of(row: dict[str, Any], where: str, *, answered: bool = True) -> Question:
    """A row with id, context, question and answers: {"text": [...], "answer_start": [...]} as on
    the Hub, a list of {"text", "answer_start"}, or one text or a list of them, whose places are
    where the context first holds them. Raises UserError, with its place `where`."""
    for key in ("id", "context", "question", *["answers"] * answered):
        if key not in row:
            raise UserError(f"{where}: no key {key!r}; found: {', '.join(row) or 'nothing'}")
        if key != "answers" and not (isinstance(row[key], str) and row[key].strip()):
            raise UserError(f"{where}: {key!r} must be a text, not {_shown(row[key])}")
    context = row["context"]
    given = row["answers"] if answered else []
    if isinstance(given, dict):
        pairs = zip_longest(given.get("text", [None]), given.get("answer_start", [None]))
        given = [{"text": text, "answer_start": start} for text, start in pairs]
    elif isinstance(given, str):
        given = [given]
    if not isinstance(given, list):
        raise UserError(f"{where}: 'answers' must be a text, a list or an object")
    if answered and row.get("is_impossible", not given) is not (not given):
        raise UserError(
            f"{where}: is_impossible is {_shown(row['is_impossible'])}, but 'answers' holds "
            f"{len(given)}; correct one of them"
        )
    answers = tuple(_answer(a, context, f"{where}, answers[{n}]") for n, a in enumerate(given))
    return Question(row["id"], row["question"], context, answers)


def _answer(item: Any, context: str, where: str) -> Answer:
    """Without blanks around it: one at its end would teach that the next word belongs to it."""
    if isinstance(item, str):
        item = {"text": item.strip(), "answer_start": context.find(item.strip())}
    text, start = (
        item.get(k) if isinstance(item, dict) else None for k in ("text", "answer_start")
    )
    if not isinstance(text, str) or type(start) is not int:
        raise UserError(
            f"{where}: needs a text 'text' and a whole number 'answer_start', not {_shown(item)}"
        )
    bare = text.strip()
    if not bare:
        raise UserError(f"{where}: the text is blank; a question without an answer has none: []")
    if start < 0 or context[start : start + len(text)] != text:
        there = f" at answer_start {start}, where {_shown(context[start : start + len(text)])} is"
        raise UserError(
            f"{where}: the context does not hold {_shown(text)}{there if start >= 0 else ''}; an "
            "answer is a piece of it, letter by letter, and its start counts characters from 0"
        )
    return Answer(bare, start + text.index(bare))


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 40 else text[:37] + "..."


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
