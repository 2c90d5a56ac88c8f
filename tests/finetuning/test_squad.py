"""Questions about a context, in every layout; answers are where they are said to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from electrify.errors import UserError
from electrify.finetuning.squad import read_questions
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


def test_blanks_around_an_answer_are_not_part_of_it(tmp_path: Path) -> None:
    """The blank at its end would teach that the next word belongs to it."""
    found = read(tmp_path, squad(QA | {"answers": answer("Paris ", 0) + answer(" the Seine", 13)}))
    assert found[0].answers == (Answer("Paris", 0), Answer("the Seine", 14))
    (row,) = rows(tmp_path, {"context": CONTEXT, "question": "?", "answers": "Seine. "})
    assert row.answers == (Answer("Seine.", 18),)


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


PLACE = "dev.json, data[0].paragraphs[0].qas[0]"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"data": [\n', "dev.json: not a file of SQuAD, at or after data (Expecting"),
        ('{"data": []}\n{"data": []}', "files with one JSON object on each line end in .jsonl"),
        ({"q1": "Paris"}, "dev.json: not a file of SQuAD, at or after data ('data'); the layout"),
        (squad(QA, "q1"), "at or after data[0].paragraphs[0].qas[1] ("),
        (squad(QA, context=" \n"), f"{PLACE}: the question or its context is empty"),
        (squad({"id": "1", "question": "?"}), f"{PLACE}: no column 'answers'; found: id"),
        (squad(QA | {"answers": answer(" ", 5)}), f"{PLACE}, answers[0]: the context does not"),
        (squad(QA | {"answers": answer("Paris", "0")}), "a whole number 'answer_start', not {"),
        (squad(QA | {"answers": answer("Paris", -40)}), "does not hold 'Paris' at answer_st"),
        (squad(QA | {"answers": answer("Paris", 1)}), "hold 'Paris' at answer_start 1; an"),
        (squad(QA, QA), "qas[1]: the question has the id of "),
    ],
)  # fmt: skip
def test_broken_files_of_squad(tmp_path: Path, content: Any, says: str) -> None:
    with pytest.raises(UserError) as error:
        read(tmp_path, content)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"answers": None}, "line 1: 'answers' must be a text, a list or an object"),
        ({"answers": "London"}, "line 1, answers[0]: the context does not hold 'London'"),
        ({"answers": {"text": ["Paris"], "answer_start": []}}, "line 1, answers[0]: needs a text"),
        ({"question": 7}, "own.jsonl, line 1: 'question' must be a text, not 7"),
    ],
)
def test_broken_rows(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError) as error:
        rows(tmp_path, QA | {"context": CONTEXT} | change)
    assert says in str(error.value)


letters = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(str.strip)


@given(letters, letters.map(str.strip), letters, letters)
def test_any_text_survives_every_layout(
    tmp_path_factory: pytest.TempPathFactory, before: str, span: str, after: str, asked: str
) -> None:
    folder = tmp_path_factory.mktemp("any")
    wanted = Question("1", asked, before + span + after, (Answer(span, len(before)),))
    qa = {"id": "1", "question": asked, "answers": answer(span, len(before))}
    assert read(folder, squad(qa, context=wanted.context)) == (wanted,)
    assert rows(folder, qa | {"context": wanted.context}) == (wanted,)
