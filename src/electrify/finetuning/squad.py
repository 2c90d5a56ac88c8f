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

from ..errors import UserError, need
from ..text.streams import Advance, ending_of, read_chunks
from ..text.tables import Row, rows
from .tasks import TASKS, Answer, Question, TaskData

LAYOUT = (
    'the layout of SQuAD is {"data": [{"paragraphs": [{"context": ..., "qas": [...]}]}]}, and '
    "files with one JSON object on each line end in .jsonl"
)


def read_questions(path: str | Path) -> tuple[Question, ...]:
    """The questions of a file. Raises UserError naming the file and the place in it."""
    return gathered(question_rows(str(path)))


def question_rows(path: str, *, advance: Advance = None, **how: Any) -> Iterator[Row]:
    """The rows of a file: SQuAD's .json, or a table, see `rows`."""
    if ending_of(path) == ".json":
        return _nested(path, advance)
    return rows(path, advance=advance, **how)


def _nested(path: str, advance: Advance) -> Iterator[Row]:
    """The questions of SQuAD's JSON, or of a list of its paragraphs (simpletransformers)."""
    place = "data"
    try:
        top = json.loads(b"".join(read_chunks(Path(path), advance=advance)))
        articles = top["data"] if isinstance(top, dict) else [{"paragraphs": top}]
        for i, article in enumerate(articles):
            for j, paragraph in enumerate(article["paragraphs"]):
                for k, qa in enumerate(paragraph["qas"]):
                    place = f"data[{i}].paragraphs[{j}].qas[{k}]"
                    cells = qa | {"context": paragraph["context"]}
                    yield Row(f"{path}, {place}", k + 1, cells)
    except (KeyError, TypeError, ValueError, RecursionError) as e:
        raise UserError(f"{path}: not a file of SQuAD, at or after {place} ({e}); {LAYOUT}") from e


def gathered(found: Iterable[Row]) -> tuple[Question, ...]:
    """The questions of one file or data set. Raises UserError if two have one id."""
    places: dict[str, str] = {}
    questions = []
    for row in found:
        questions.append(question_of(row))
        other = places.setdefault(questions[-1].id, row.where)
        fact = f"{row.where}: the question has the id of {other}. Give each an id of its own"
        need(other == row.where, fact)
    return tuple(questions)


def question_of(row: Row, *, answered: bool = True) -> Question:
    """A row with context, question, perhaps id, and answers: {"text": [...], "answer_start": [...]}
    as on the Hub, a list of {"text", "answer_start"}, or one text or a list of them, whose places
    are where the context first holds them. Raises UserError."""
    question, context = row.text("question"), row.text("context")
    blank = not question.strip() or not context.strip()
    need(not blank, f"{row.where}: the question or its context is empty")
    given = row.value("answers") if answered else []
    if isinstance(given, dict):
        pairs = zip_longest(given.get("text", ()), given.get("answer_start", ()))
        given = [{"text": text, "answer_start": start} for text, start in pairs]
    given = [given] if isinstance(given, str) else given
    fact = f"{row.where}: 'answers' must be a text, a list or an object"
    need(isinstance(given, list), fact)
    answers = tuple(_answer(a, context, f"{row.where}, answers[{n}]") for n, a in enumerate(given))
    return Question(str(row.cells.get("id", row.number)), question, context, answers)


def _answer(item: Any, context: str, where: str) -> Answer:
    """Without blanks around it: one at its end would teach that the next word belongs to it."""
    if isinstance(item, str):
        item = {"text": item.strip(), "answer_start": context.find(item.strip())}
    keys = ("text", "answer_start")
    text, start = (item.get(key) if isinstance(item, dict) else None for key in keys)
    fact = f"{where}: needs a text 'text' and a whole number 'answer_start', not {str(item)[:40]}"
    if not isinstance(text, str) or type(start) is not int:
        raise UserError(fact)
    bare = text.strip()
    need(
        bool(bare) and start >= 0 and context.startswith(text, start),
        f"{where}: the context does not hold {text[:40]!r} at answer_start {start}; an answer is "
        "a piece of it, letter by letter, and its start counts characters from 0",
    )
    return Answer(bare, start + text.index(bare))


def answering_of(
    name: str,
    train: tuple[Question, ...],
    validation: tuple[Question, ...] = (),
    *,
    epochs: float,
    min_updates: int = 0,
    notes: tuple[str, ...] = (),
) -> TaskData:
    """A task of questions. validation: none if the first part is to be split. If some validation
    questions have no answer, the metrics are SQuAD 2.0's."""
    shared = {q.context for q in train} & {q.context for q in validation}
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
