"""The BabyLM challenge's fine-tuning, on files in its layout."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from electrify.downstream.babylm_tasks import BABYLM
from electrify.downstream.examples import Example
from electrify.downstream.finetune import finetune
from electrify.downstream.fitting import require_use
from electrify.downstream.glue_tasks import GLUE
from electrify.downstream.known_tasks import task_named, tasks_named
from electrify.downstream.one_run import longest_of
from electrify.downstream.options import FinetuneConfig, FinetuneSettings
from electrify.downstream.page import markdown
from electrify.downstream.read.glue import read_glue
from electrify.downstream.read.task import read_task
from electrify.errors import UserError

ROWS: dict[str, dict[str, Any]] = {
    "boolq": {"question": "is it", "passage": "It is.", "label": 1, "idx": 0},
    "multirc": {"paragraph": "P.", "question": "Q?", "answer": "A", "label": 0, "idx": {}},
    "rte": {"sentence1": "a", "sentence2": "b", "label": 1, "idx": 0},
    "wsc": {
        "text": "Mark told Pete about himself.",
        "span1_text": "Mark",
        "span2_text": "himself",
        "span1_index": 0,
        "span2_index": 4,
        "label": 1,
    },
    "mrpc": {"sentence1": "a", "sentence2": "b", "label": 0, "idx": 0},
    "qqp": {"question1": "a", "question2": "b", "label": 1, "idx": 0},
    "mnli": {"premise": "a", "hypothesis": "b", "label": 2, "idx": 0},
}
READ = {
    "boolq": Example("is it", "It is.", 1),
    "multirc": Example("Question: Q? Answer: A", "P.", 0),
    "rte": Example("a", "b", 1),
    "wsc": Example(
        'Does "himself" refer to "Mark" in this passage?', "Mark told Pete about himself.", 1
    ),
    "mrpc": Example("a", "b", 0),
    "qqp": Example("a", "b", 1),
    "mnli": Example("a", "b", 2),
}


def write(folder: Path, name: str, rows: Iterable[dict[str, Any]]) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "valid"):
        (folder / f"{name}.{part}.jsonl").write_text(text)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The challenge's evaluation data."""
    root = tmp_path / "evaluation_data"
    for name, row in ROWS.items():
        classes = len(BABYLM[f"babylm_{name}"].labels)
        rows = [row | {"label": k % classes} for k in range(12)]
        write(root / "full_eval" / "glue_filtered", name, [row, *rows])
    return root


@pytest.mark.parametrize("name", list(READ))
def test_texts_and_classes(data_dir: Path, name: str) -> None:
    task = read_task(task_named(f"babylm-{name}"), str(data_dir))
    assert task.train[0] == task.validation[0] == READ[name]
    assert len(task.train) == 13
    assert (task.max_seq_length, task.epochs) == (512, 30 if name == "wsc" else 10)


@pytest.mark.parametrize("place", ["glue_filtered", "full_eval", "babylm", "babylm/full_eval"])
def test_where_the_files_lie(data_dir: Path, tmp_path: Path, place: str) -> None:
    """Any of the folders around them, and one with a folder babylm/ beside those of other tasks."""
    found = {
        "glue_filtered": data_dir / "full_eval" / "glue_filtered",
        "full_eval": data_dir / "full_eval",
        "babylm": tmp_path / "tasks",
        "babylm/full_eval": tmp_path / "tasks",
    }[place]
    if place.startswith("babylm"):
        found.mkdir()
        target = data_dir if place.endswith("full_eval") else data_dir / "full_eval"
        target.rename(found / "babylm")
    assert len(read_task(task_named("babylm_rte"), str(found)).train) == 13


def test_the_group() -> None:
    assert [row.name for row in tasks_named(["babylm"])] == list(BABYLM)
    with pytest.raises(UserError, match="no task 'babylm_bool'; did you mean 'babylm_boolq'"):
        task_named("babylm_bool")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"label": 2}, r"boolq.train.jsonl, line 1: label '2' is none of the classes 0, 1"),
        ({"label": None}, r"line 1: label 'None' is none of the classes 0, 1"),
        ({"passage": 3}, r"line 1: 'passage' must be a text, not 3"),
    ],
)
def test_a_damaged_line(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    write(tmp_path, "boolq", [ROWS["boolq"] | change])
    with pytest.raises(UserError, match=said):
        read_task(task_named("babylm_boolq"), str(tmp_path))


@pytest.mark.parametrize("column", ["label", "passage"])
def test_a_column_that_is_missing(tmp_path: Path, column: str) -> None:
    row = {name: value for name, value in ROWS["boolq"].items() if name != column}
    write(tmp_path, "boolq", [row])
    with pytest.raises(UserError, match=f"line 1: no column '{column}'; found: "):
        read_task(task_named("babylm_boolq"), str(tmp_path))


def test_a_file_that_is_missing(data_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(UserError, match=r"other: no wsc.train.jsonl there or in glue_filtered/; "):
        read_task(task_named("babylm_wsc"), str(tmp_path / "other"))
    (data_dir / "full_eval" / "glue_filtered" / "wsc.valid.jsonl").unlink()
    with pytest.raises(UserError, match=r"wsc.valid.jsonl: no such file"):
        read_task(task_named("babylm_wsc"), str(data_dir))
    with pytest.raises(UserError, match=r"--data-dir is missing: the folder that holds wsc"):
        read_task(task_named("babylm_wsc"), None)
    with pytest.raises(UserError, match=r"--data-dir org/set: no such folder"):
        read_task(task_named("babylm_wsc"), "org/set")


def test_all_seven_are_averaged(zoo: Path, data_dir: Path, tmp_path: Path) -> None:
    settings = FinetuneSettings(
        num_train_epochs=1, max_seq_length=16, bf16="false", per_device_train_batch_size=8
    )
    request = FinetuneConfig(
        models=(str(zoo / "electra"),),
        output_dir=str(tmp_path / "out"),
        task=("babylm",),
        data_dir=str(data_dir),
        seeds=1,
        settings=settings,
    )
    report = finetune(request)
    (average,) = report.averages("BabyLM").values()
    model = report.rows[0].model
    first = [
        report.median(task=name, model=model, metric=BABYLM[name].metrics[0]) for name in BABYLM
    ]
    assert average == pytest.approx(sum(first) / 7)
    assert f"BabyLM average of {model}: {100 * average:.1f}" in report.table()
    assert "F1 of MRPC and QQP, accuracy of the others" in markdown(report)
    assert report.averages("GLUE") == {}


@pytest.mark.parametrize(("positions", "length"), [(1000, 512), (128, 128)])
def test_an_encoder_reads_as_many_tokens_as_it_can(
    data_dir: Path, positions: int, length: int
) -> None:
    task = read_task(task_named("babylm_rte"), str(data_dir))
    loaded: Any = SimpleNamespace(positions=positions)
    assert longest_of(task, loaded, FinetuneSettings(), "a model") == length


def test_there_are_no_test_sets(data_dir: Path) -> None:
    task = read_task(task_named("babylm_rte"), str(data_dir))
    asked = FinetuneConfig(models=("m",), output_dir="o", task=(task.name,), predict_test=True)
    with pytest.raises(UserError, match="--predict-test is for GLUE's test sets; none of the"):
        require_use(asked, [task])


def test_what_is_said_of_the_average() -> None:
    """The metrics that count, as the rows have them."""
    by_f1 = [row.name for row in BABYLM.values() if row.metrics[0] == "f1"]
    assert by_f1 == ["babylm_mrpc", "babylm_qqp"]
    assert {row.metrics[0] for row in BABYLM.values()} == {"f1", "accuracy"}


GIVEN = Path(__file__).parents[3] / "shared" / "data" / "glue"


@pytest.mark.parametrize(
    ("name", "columns", "classes"),
    [
        ("rte", ("sentence1", "sentence2"), 2),
        ("mrpc", ("sentence1", "sentence2"), 2),
        ("qqp", ("question1", "question2"), 2),
        ("mnli", ("premise", "hypothesis"), 3),
    ],
)
def test_the_same_examples_as_in_glues_layout(
    tmp_path: Path, name: str, columns: tuple[str, str], classes: int
) -> None:
    if not GIVEN.is_dir():
        pytest.skip(f"{GIVEN} is not there")
    task = read_glue(GLUE[name], GIVEN)
    for part, examples in (("train", task.train), ("valid", task.validation)):
        rows = [
            {columns[0]: e.text, columns[1]: e.pair, "label": int(e.label)}
            for e in examples
            if isinstance(e, Example) and isinstance(e.label, int | float)
        ]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (tmp_path / f"{name}.{part}.jsonl").write_text(text)
    found = read_task(task_named(f"babylm_{name}"), str(tmp_path))
    assert found.train == task.train
    assert found.validation == task.validation
    assert len(found.labels) == classes
