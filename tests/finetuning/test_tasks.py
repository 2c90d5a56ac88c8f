"""The rows of the known tasks, and what a task refuses."""

from __future__ import annotations

from typing import Any

import pytest

from electrify.errors import UserError
from electrify.finetuning.tasks import AVERAGES, GROUPS, TASKS, Example, TaskData, tasks_named


def test_the_rows() -> None:
    assert {group: len(names) for group, names in GROUPS.items()} == {
        "glue": 9, "tagging": 5, "squad": 2, "babylm": 7,
    }  # fmt: skip
    assert [name for name, row in TASKS.items() if row.symmetric] == ["mrpc", "stsb"]
    glue = [TASKS[name] for name in GROUPS["glue"]]
    assert {row.name: row.epochs for row in glue if row.epochs != 3} == {"stsb": 10, "rte": 10}
    assert TASKS["mnli"].labels == ("entailment", "neutral", "contradiction")
    assert TASKS["stsb"].value_range == (0.0, 5.0)
    assert TASKS["babylm_wsc"].epochs == 30
    assert TASKS["babylm_boolq"].max_seq_length == 512
    by_f1 = [name for name in GROUPS["babylm"] if TASKS[name].metrics[0] == "f1"]
    assert by_f1 == ["babylm_mrpc", "babylm_qqp"]


def test_the_published_average_is_that_of_the_rows() -> None:
    assert set(AVERAGES["GLUE"].tasks) == set(GROUPS["glue"]) - {"wnli"}
    assert set(AVERAGES["BabyLM"].tasks) == set(GROUPS["babylm"])
    of_base = [TASKS[name].published["BERT-Base"] for name in AVERAGES["GLUE"].tasks]
    assert sum(of_base) / 8 == pytest.approx(82.2, abs=0.1)


def test_names() -> None:
    found = [row.name for row in tasks_named(["SST-2", "GLUE", "babylm-rte"])]
    assert found == ["sst2", *(n for n in GROUPS["glue"] if n != "sst2"), "babylm_rte"]
    with pytest.raises(UserError, match="no task 'colla'; did you mean 'cola'"):
        tasks_named(["colla"])


def task(kind: str, labels: tuple[str, ...], *values: float) -> TaskData:
    examples: Any = tuple(Example(f"t{k}", None, value) for k, value in enumerate(values))
    named: Any = {"kind": kind, "labels": labels, "train": examples, "validation": examples}
    return TaskData(name="t", metrics=("accuracy",), epochs=3, **named)


@pytest.mark.parametrize(
    ("kind", "labels", "values", "says"),
    [
        ("classification", ("x",), (0, 0), "only the label 'x': nothing to learn"),
        ("classification", (), (0,), "has no labels"),
        ("regression", (), (1.5, 1.5), "every train label is 1.5, so there is nothing to learn"),
        ("regression", (), (), "has no train examples"),
    ],
)
def test_nothing_to_learn(
    kind: str, labels: tuple[str, ...], values: tuple[float, ...], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        task(kind, labels, *values)


def test_names_of_scores() -> None:
    found = task("classification", ("x", "y"), 0, 1)
    assert (found.score_names, found.num_outputs) == (("accuracy",), 2)
    assert task("regression", (), 0.5, 1).num_outputs == 1
