"""Questions about a context, in every layout; answers are where they are said to be."""

import json
from pathlib import Path
from typing import Any

import pytest

from electrify.finetuning.read import read_questions
from electrify.finetuning.tasks import Answer, Question

CONTEXT = "Paris lies on the Seine. Paris is large."
QA: dict[str, Any] = {
    "id": "q1",
    "question": "Where?",
    "answers": [{"text": "the Seine", "answer_start": 14}],
}


def squad(*qas: Any, context: Any = CONTEXT) -> dict[str, Any]:
    return {"version": "v2.0", "data": [{"paragraphs": [{"context": context, "qas": list(qas)}]}]}


def answer(text: Any, start: Any) -> list[dict[str, Any]]:
    return [{"text": text, "answer_start": start}]


def read(folder: Path, content: Any) -> tuple[Question, ...]:
    path = folder / "dev.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_questions(path)


def rows(folder: Path, *given_rows: dict[str, Any]) -> tuple[Question, ...]:
    path = folder / "own.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in given_rows))
    return read_questions(path)


def test_squad(tmp_path: Path) -> None:
    twice = [*answer("Paris", 25), *answer("Paris", 0)]
    none = QA | {"id": "q2", "answers": [], "is_impossible": True, "plausible_answers": twice}
    assert read(tmp_path, squad(QA | {"answers": twice}, none)) == (
        Question("q1", "Where?", CONTEXT, (Answer("Paris", 25), Answer("Paris", 0))),
        Question("q2", "Where?", CONTEXT, ()),
    )


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ({"text": ["Paris", "Seine"], "answer_start": [25, 18]}, [("Paris", 25), ("Seine", 18)]),
        ({"text": [], "answer_start": []}, []),
        ("Paris", [("Paris", 0)]),
        (["Seine", {"text": "Paris", "answer_start": 25}], [("Seine", 18), ("Paris", 25)]),
    ],
)
def test_rows(tmp_path: Path, answers: Any, wanted: list[tuple[str, int]]) -> None:
    row = {"context": CONTEXT, "question": "Where?", "answers": answers}
    first, second = rows(tmp_path, row, row | {"id": "x", "title": "T"})
    assert first == Question("1", "Where?", CONTEXT, tuple(Answer(*a) for a in wanted))
    assert (second.id, second.answers) == ("x", first.answers)
