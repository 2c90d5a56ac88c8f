from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from electrify.downstream.examples import Answer, Question
from electrify.downstream.read.squad import (
    gathered,
    question_of,
    read_question_rows,
    read_questions,
)
from electrify.errors import UserError

SQUAD = Path(__file__).parents[3] / "shared" / "data" / "squad"
CONTEXT = "Paris lies on the Seine. Paris is large."
GONE = object()


def qa(
    id_: Any = "q1", question: Any = "Where?", answers: Any = None, **more: Any
) -> dict[str, Any]:
    answers = [{"text": "the Seine", "answer_start": 14}] if answers is None else answers
    return {
        k: v
        for k, v in {"id": id_, "question": question, "answers": answers, **more}.items()
        if v is not GONE
    }


def squad(*qas: Any, context: Any = CONTEXT, version: str = "v2.0") -> dict[str, Any]:
    """The questions stand in data[1].paragraphs[1]."""
    first = {"context": "x", "qas": []}
    return {
        "version": version,
        "data": [
            {"title": "A", "paragraphs": []},
            {"title": "B", "paragraphs": [first, {"context": context, "qas": list(qas)}]},
        ],
    }


def answer(text: Any, start: Any) -> list[dict[str, Any]]:
    return [{"text": text, "answer_start": start}]


def read(tmp_path: Path, content: Any, name: str = "dev.json") -> tuple[Question, ...]:
    path = tmp_path / name
    path.write_bytes(
        content
        if isinstance(content, bytes)
        else (content if isinstance(content, str) else json.dumps(content)).encode()
    )
    return read_questions(path)


def rows(tmp_path: Path, *lines: Any) -> tuple[Question, ...]:
    path = tmp_path / "own.jsonl"
    path.write_bytes(
        "".join(
            (line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines
        ).encode()
    )
    return read_question_rows(path)


def row(answers: Any = "Paris", **more: Any) -> dict[str, Any]:
    return {
        k: v
        for k, v in {"context": CONTEXT, "question": "Where?", "answers": answers, **more}.items()
        if v is not GONE
    }


def test_answers_are_kept_in_order_and_repeated(tmp_path: Path):
    three = [*answer("Paris", 25), *answer("Paris", 0), *answer("Paris", 25)]
    (question,) = read(tmp_path, squad(qa(answers=three), version="1.1"))
    assert question == Question(
        "q1", "Where?", CONTEXT, (Answer("Paris", 25), Answer("Paris", 0), Answer("Paris", 25))
    )


def test_a_question_without_answers_is_one_that_the_context_does_not_answer(tmp_path: Path):
    said = qa("a", answers=[], is_impossible=True, plausible_answers=answer("Paris", 0))
    found = read(tmp_path, squad(said, qa("b", answers=[]), qa("c", is_impossible=False), qa("d")))
    assert [(q.id, len(q.answers)) for q in found] == [("a", 0), ("b", 0), ("c", 1), ("d", 1)]


def test_version_and_titles_are_not_needed_and_a_byte_order_mark_is_no_matter(tmp_path: Path):
    bare = {"data": [{"paragraphs": [{"context": CONTEXT, "qas": [qa()]}]}]}
    assert read(tmp_path, b"\xef\xbb\xbf" + json.dumps(bare, indent=1).encode()) == read(
        tmp_path, squad(qa())
    )


def test_places_count_characters_and_texts_stay_as_they_are(tmp_path: Path):
    context = " \U0001d54f\u00e9e\u0301\r\n\u2028 two  blanks "
    (question,) = read(
        tmp_path,
        squad(
            qa(question=" Where? ", answers=[*answer("e\u0301\r\n", 3), *answer(" two  ", 8)]),
            context=context,
        ),
    )
    assert (question.question, question.context) == (" Where? ", context)
    assert [context[a.start : a.start + len(a.text)] for a in question.answers] == [
        "e\u0301\r\n",
        " two  ",
    ]


QUOTED = '"{}" of question \'q1\' is not at answer_start {} of the context, where "{}'
BAD = "data[1].paragraphs[1].qas[0]"
LATER = "data[1].paragraphs[1].qas[1]"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"data": [\n {"paragraphs": [', (
            "dev.json: broken JSON (Expecting value: line 2 column 18 (char 28)); was the file "
            "copied in full?"
        )),
        ("", "dev.json: broken JSON (Expecting value: line 1 column 1"),
        ('{"data": []}\n{"data": []}',
         "the layout of SQuAD is"),
        (b'{"data": "\xff"}', "dev.json, line 1: not UTF-8"),
        ([squad(qa())], 'dev.json: [{"version": "v2.0"'),
        ("3", "dev.json: 3 at the top; the layout of SQuAD is"),
        ({}, "dev.json: no key 'data'; the layout of SQuAD is"),
        ({"q1": "Paris", "q2": ""},
         "dev.json: a file of predictions or scores (question id to value), not of questions"),
        ({"q1": 0.25, "q2": -3.0}, "dev.json: a file of predictions or scores"),
        ({"version": "1.1"}, "no key 'data'"),
        (row("Paris"),
         "\"qas\": [...]}]}]}, and files with one question on each line end in .jsonl"),
        ({"data": {"title": "A"}}, """dev.json: 'data' must be a list, not {"title": "A"}"""),
        ({"data": ["A"]}, 'dev.json, data[0]: must be an object, not "A"'),
        ({"data": [{"title": "A"}]}, "dev.json, data[0]: no key 'paragraphs'; found: \"title\""),
        ({"data": [{"paragraphs": [None]}]}, "data[0].paragraphs[0]: must be an object, not null"),
        ({"data": [{"paragraphs": [{}]}]},
         "data[0].paragraphs[0]: no key 'context'; found: nothing"),
        ({"data": [{"paragraphs": [{"context": "x"}]}]},
         "data[0].paragraphs[0]: no key 'qas'; found: \"context\""),
        ({"data": []}, "dev.json: no questions"),
        (squad(), "dev.json: no questions"),
        (squad(qa(), context=" \n"), "dev.json, data[1].paragraphs[1]: 'context' is blank"),
        (squad(qa(), context=7), "data[1].paragraphs[1]: 'context' must be a text, not 7"),
        (squad("q1"), f'{BAD}: must be an object, not "q1"'),
        (squad(qa(id_=GONE)), f"dev.json, {BAD}: no key 'id'; found: \"question\", \"answers\""),
        (squad(qa(id_=7)), f"{BAD}: 'id' must be a text, not 7"),
        (squad(qa(id_=" ")), f"{BAD}: 'id' is blank"),
        (squad(qa(), qa("q2", question=GONE)), f"{LATER}: no key 'question'"),
        (squad(qa(question="\u3000")), f"{BAD}: 'question' is blank"),
        (squad(qa(question="\ud83d")), (
            f"{BAD}: 'question' holds half a surrogate pair, \"\\ud83d\"; write the character in "
            "full"
        )),
        (squad(qa(answers=GONE)), f"{BAD}: no key 'answers'; found"),
        (squad(qa(answers="Paris")), f"{BAD}: 'answers' must be a list, not \"Paris\""),
        (squad(qa(answers=["Paris"])), f'{BAD}, answers[0]: must be an object, not "Paris"'),
        (squad(qa(answers=[*answer("Paris", 0), {"text": "Paris"}])),
         f"{BAD}, answers[1]: no key 'answer_start'; found: \"text\""),
        (squad(qa(answers=answer(5, 0))), f"{BAD}, answers[0]: 'text' must be a text, not 5"),
        (squad(qa(answers=answer("", 0))), (
            f"{BAD}, answers[0]: 'text' is blank; a question that the context does not answer has "
            "no answers: []"
        )),
        (squad(qa(answers=answer("Paris", "0"))),
         f"{BAD}, answers[0]: 'answer_start' must be a whole number, not \"0\""),
        (squad(qa(answers=answer("Paris", 0.0))), "'answer_start' must be a whole number, not 0.0"),
        (squad(qa(answers=answer("Paris", False))),
         "'answer_start' must be a whole number, not false"),
        (squad(qa(answers=answer("Paris", None))),
         "'answer_start' must be a whole number, not null"),
        (squad(qa(answers=answer(".", -1))), (
            f"{BAD}, answers[0]: answer_start -1 of question 'q1' is outside the context of 40 "
            "characters"
        )),
        (squad(qa(answers=answer("Paris", 40))), (
            "answer_start 40 of question 'q1' is outside the context of 40 characters, counted "
            "from 0"
        )),
        (squad(qa(answers=answer("Paris", 1))),
         QUOTED.format("Paris", 1, 'aris " stands; answer_start counts characters from 0')),
        (squad(qa(answers=answer("paris", 0))), QUOTED.format("paris", 0, 'Paris" stands')),
        (squad(qa(answers=answer("large. It", 34))),
         QUOTED.format("large. It", 34, 'large." stands')),
        (squad(qa(answers=answer("b" * 99, 0)), context="a" * 99),
         '"' + "b" * 36 + "... of question 'q1' is not at"),
        (squad(qa(answers=answer("b" * 99, 0)), context="a" * 99),
         'where "' + "a" * 36 + "... stands"),
        (squad(qa(is_impossible=True)), (
            f"{BAD}: is_impossible is true and 'answers' holds 1; empty 'answers' or set "
            "is_impossible to false"
        )),
        (squad(qa(answers=[], is_impossible=False)), (
            "is_impossible is false and 'answers' is empty; give an answer or set is_impossible to "
            "true"
        )),
        (squad(qa(is_impossible=0)), f"{BAD}: 'is_impossible' must be true or false, not 0"),
        (squad(qa(is_impossible="false")),
         f"{BAD}: 'is_impossible' must be true or false, not \"false\""),
        (squad(qa(), qa()),
         f"dev.json, {LATER}: id 'q1' is also that of {BAD}; give each question an id of its own"),
    ],
)  # fmt: skip
def test_bad_files_of_squad_name_the_place(tmp_path: Path, content: Any, said: str):
    with pytest.raises(UserError) as error:
        read(tmp_path, content)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    str(error.value).encode()


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize("odd", ["where?", 3, None, ["where?"]])
def test_a_question_that_is_not_an_object(tmp_path: Path, odd: Any, answered: bool):
    path = tmp_path / "dev.json"
    path.write_text(json.dumps(squad(qa(), odd)), encoding="utf-8")
    with pytest.raises(UserError, match=r"data\[1\].paragraphs\[1\].qas\[1\]: must be an object"):
        read_questions(path, answered=answered)


@pytest.mark.parametrize("answered", [True, False])
def test_the_context_is_the_paragraphs(tmp_path: Path, answered: bool):
    path = tmp_path / "dev.json"
    path.write_text(json.dumps(squad(qa(context="another text"))), encoding="utf-8")
    (question,) = read_questions(path, answered=answered)
    assert question.context == CONTEXT


def test_a_file_that_is_missing(tmp_path: Path):
    for reader in (read_questions, read_question_rows):
        with pytest.raises(UserError, match=r"none.json: no such file"):
            reader(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ({"text": ["Paris", "Seine"], "answer_start": [25, 18]}, [("Paris", 25), ("Seine", 18)]),
        ({"text": [], "answer_start": []}, []),
        ([{"text": "Paris", "answer_start": 25}], [("Paris", 25)]),
        ("Paris", [("Paris", 0)]),
        (["Seine", "Paris", "Paris"], [("Seine", 18), ("Paris", 0), ("Paris", 0)]),
        (["Seine", {"text": "Paris", "answer_start": 25}], [("Seine", 18), ("Paris", 25)]),
        ([], []),
    ],
)
def test_own_rows(tmp_path: Path, answers: Any, wanted: list[tuple[str, int]]):
    first, second = rows(tmp_path, row(answers), "", row(answers, id="x", title="T"))
    assert first == Question("1", "Where?", CONTEXT, tuple(Answer(*a) for a in wanted))
    assert (second.id, second.answers) == ("x", first.answers)
    assert rows(tmp_path, "", row())[0].id == "2"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "own.jsonl: no questions"),
        (["3"], "own.jsonl, line 1: not a JSON object"),
        ([row(), '{"context": "x"'], "own.jsonl, line 2: broken JSON"),
        ([row(context=GONE)],
         "own.jsonl, line 1: no key 'context'; found: \"id\", \"question\", \"answers\""),
        ([squad(qa())],
         "own.jsonl, line 1: no key 'context'; found: \"id\", \"version\", \"data\""),
        ([row(), "", row(question=GONE)], "own.jsonl, line 3: no key 'question'"),
        ([row(answers=GONE)], "own.jsonl, line 1: no key 'answers'"),
        ([row(question=["Where?"])],
         "own.jsonl, line 1: 'question' must be a text, not [\"Where?\"]"),
        ([row(context="")], "own.jsonl, line 1: 'context' is blank"),
        ([row(question=" ")], "own.jsonl, line 1: 'question' is blank"),
        ([row(id=1)], "own.jsonl, line 1: 'id' must be a text, not 1"),
        ([row(id=None)], "own.jsonl, line 1: 'id' must be a text, not null"),
        ([row(id="2"), row()],
         "own.jsonl, line 2: id '2' is also that of line 1; give each question an id of its own"),
        ([row(None)], "own.jsonl, line 1: 'answers' must be a text, a list or an object, not null"),
        ([row("London")], (
            "own.jsonl, line 1, answers[0]: the context does not hold \"London\"; an answer must "
            "be a piece of it, letter by letter"
        )),
        ([row(["Paris", "paris"])],
         "own.jsonl, line 1, answers[1]: the context does not hold \"paris\""),
        ([row("\ud83d")], "own.jsonl, line 1, answers[0]: the context does not hold \"\\ud83d\""),
        ([row("")], (
            "own.jsonl, line 1, answers[0]: 'text' is blank; a question that the context does not "
            "answer has no answers: []"
        )),
        ([row([3])], "own.jsonl, line 1, answers[0]: must be an object, not 3"),
        ([row(answer("Paris", 3))], (
            "line 1, answers[0]: \"Paris\" of question '1' is not at answer_start 3 of the "
            "context, where \"is li\" stands"
        )),
        ([row({"text": ["Paris"]})],
         "own.jsonl, line 1, answers: no key 'answer_start'; found: \"text\""),
        ([row({"text": "Paris", "answer_start": 0})],
         "own.jsonl, line 1, answers: 'text' must be a list, not \"Paris\""),
        ([row({"text": ["Paris"], "answer_start": []})],
         "own.jsonl, line 1: 'answers' has 1 in 'text' and 0 in 'answer_start'"),
        ([row({"text": ["Paris"], "answer_start": [True]})],
         "own.jsonl, line 1, answers[0]: 'answer_start' must be a whole number, not true"),
        ([row(is_impossible=True)],
         "own.jsonl, line 1: is_impossible is true and 'answers' holds 1"),
    ],
)  # fmt: skip
def test_bad_own_rows_name_the_line(tmp_path: Path, lines: list[Any], said: str):
    with pytest.raises(UserError) as error:
        rows(tmp_path, *lines)
    assert said in str(error.value)
    str(error.value).encode()


def test_rows_of_the_hub():
    hub = {
        "id": "5",
        "title": "T",
        "context": CONTEXT,
        "question": "Where?",
        "answers": {"text": ["Seine"], "answer_start": [18]},
    }
    found = [
        question_of(hub, "squad, row 0"),
        question_of(hub | {"id": "6", "answers": {"text": [], "answer_start": []}}, "squad, row 1"),
    ]
    assert [q.answers for q in found] == [(Answer("Seine", 18),), ()]
    assert gathered("squad", zip(("row 0", "row 1"), found, strict=True)) == tuple(found)
    with pytest.raises(UserError, match=r"^squad, row 7: id '5' is also that of row 0"):
        gathered("squad", [("row 0", found[0]), ("row 7", found[0])])
    with pytest.raises(UserError, match=r"^squad, row 0: no key 'id'; found: \"title\""):
        question_of({k: v for k, v in hub.items() if k != "id"}, "squad, row 0")


letters = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1
).filter(str.strip)


@given(
    st.lists(st.tuples(letters, letters, letters, letters), min_size=1, max_size=4), st.booleans()
)
def test_any_text_survives_every_layout(
    tmp_path_factory: pytest.TempPathFactory,
    parts: list[tuple[str, str, str, str]],
    ascii_only: bool,
):
    tmp_path = tmp_path_factory.mktemp("any")
    wanted = tuple(
        Question(str(k), q, a + b + c, (Answer(b, len(a)),))
        for k, (a, b, c, q) in enumerate(parts, 1)
    )
    named = [qa(q.id, q.question, answer(q.answers[0].text, q.answers[0].start)) for q in wanted]
    data = [
        {"paragraphs": [{"context": q.context, "qas": [name]}]}
        for q, name in zip(wanted, named, strict=True)
    ]
    assert read(tmp_path, json.dumps({"data": data}, ensure_ascii=ascii_only)) == wanted
    lines = [name | {"context": q.context} for q, name in zip(wanted, named, strict=True)]
    assert rows(tmp_path, *(json.dumps(line, ensure_ascii=ascii_only) for line in lines)) == wanted


OFFICIAL = [
    ("train-v1.1-subset", 11877, 0), ("dev-v1.1-xquad-en", 1190, 0), ("dev-v1.1-half", 2910, 0),
    ("dev-v2.0-half", 6078, 3168), ("train-v2.0-subset", 15853, 2073),
    ("dev-v2.0-subset", 2102, 1095),
]  # fmt: skip


@pytest.mark.parametrize(("name", "count", "without"), OFFICIAL)
def test_the_official_questions(name: str, count: int, without: int):
    if not SQUAD.is_dir():
        pytest.skip("no ../shared/data/squad")
    questions = read_questions(SQUAD / f"{name}.json")
    assert (len(questions), sum(not q.answers for q in questions)) == (count, without)
    assert all(
        q.context[a.start : a.start + len(a.text)] == a.text for q in questions for a in q.answers
    )


def test_the_answerable_half_is_the_same_in_both_layouts():
    if not SQUAD.is_dir():
        pytest.skip("no ../shared/data/squad")
    old, new = (read_questions(SQUAD / f"dev-v{version}-half.json") for version in ("1.1", "2.0"))
    assert old == tuple(q for q in new if q.answers)
    assert max(len(q.answers) for q in old) > 3
