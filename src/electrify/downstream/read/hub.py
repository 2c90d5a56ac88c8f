"""GLUE and SQuAD from the Hub, or from a clone of their data sets: rows by `datasets` (extra
`data`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...errors import UserError
from ...hub import must_be_reachable
from ..examples import Example, Question
from ..tasks import TaskData, TextTask
from .squad import gathered, question_of

GLUE_ON_HUB = "nyu-mll/glue"
# The columns that have other names than in GLUE's own files. The numbers of the classes are those
# of glue_tasks.py.
_COLUMNS: dict[str, tuple[str, str | None]] = {
    "cola": ("sentence", None),
    "mrpc": ("sentence1", "sentence2"),
    "mnli": ("premise", "hypothesis"),
    "qnli": ("question", "sentence"),
}
_MATCHED = "_matched"


def read_hub_glue(task: TextTask, source: str, *, test: bool = False) -> TaskData:
    """The examples of a GLUE task in the layout of nyu-mll/glue. test: whether to read its test
    sets, too. Raises UserError."""
    sets = _sets(source, task.name)
    text, pair = _COLUMNS.get(
        task.name, (str(task.text), None if task.pair is None else str(task.pair))
    )
    first = _MATCHED if task.also else ""

    def examples(split: str, *, labelled: bool = True) -> tuple[Example, ...]:
        rows = _split(sets, split, f"{source} {task.name}")
        where = f"data set {source}, {task.name} {split}"
        return tuple(
            _example(row, text, pair, task, f"{where}, row {k}" if labelled else None)
            for k, row in enumerate(rows, 1)
        )

    also = tuple((name, examples(f"validation_{name}")) for name in task.also)
    tests = (
        tuple((name, examples(split, labelled=False)) for name, split in _tests(task).items())
        if test
        else ()
    )
    absent = ("AX is not there: the diagnostic set has no predictions",)
    return TaskData(
        task.name,
        task.kind,
        task.labels,
        task.metrics,
        task.epochs,
        examples("train"),
        examples("validation" + first),
        symmetric=task.symmetric,
        value_range=task.value_range,
        also=also,
        test=tests,
        notes=absent if test and "AX" in task.test else (),
    )


def _tests(task: TextTask) -> dict[str, str]:
    """The splits of the test sets, by the names of their files in a submission."""
    return {
        name: f"test_{'matched' if k == 0 else 'mismatched'}"
        for k, name in enumerate(task.test)
        if k < 2
    } or {task.folder: "test"}


def read_hub_squad(source: str) -> tuple[tuple[Question, ...], tuple[Question, ...]]:
    """Training and validation questions in the layout of rajpurkar/squad. Raises UserError."""
    sets = _sets(source, None)

    def questions(split: str) -> tuple[Question, ...]:
        places = (
            (f"data set {source}, {split}, row {k}", row)
            for k, row in enumerate(_split(sets, split, source), 1)
        )
        return gathered(
            f"data set {source}, {split}",
            ((place, question_of(row, place)) for place, row in places),
        )

    return questions("train"), questions("validation")


def _sets(source: str, config: str | None) -> Any:
    try:
        import datasets
    except ImportError as e:
        raise UserError(
            f"{source}: a data set of the Hub needs `datasets`: pip install 'electrify[data]'"
        ) from e
    if not Path(source).is_dir():
        try:
            must_be_reachable(source, "data set")
        except UserError as e:
            raise UserError(f"{e}; --data-dir takes a folder, too") from e
    try:
        return datasets.load_dataset(source, config)
    # Not found, no network, no such configuration: each raises its own kind of exception.
    except Exception as e:
        said = " ".join(str(e).split())[:300]
        shown = f"{source} {config}" if config else source
        raise UserError(
            f"data set {shown} cannot be loaded ({type(e).__name__}: {said}); --data-dir takes a "
            "folder, too"
        ) from e


def _split(sets: Any, name: str, shown: str) -> Any:
    if name not in sets:
        raise UserError(f"data set {shown} has no split {name!r}; found: {', '.join(sets)}")
    return sets[name]


def _example(
    row: dict[str, Any], text: str, pair: str | None, task: TextTask, where: str | None
) -> Example:
    """where: the place of a row with a label."""
    for column in (text, pair):
        if column is not None and not isinstance(row.get(column), str):
            raise UserError(
                f"{where or task.name}: no text in column {column!r}; found: {', '.join(row)}"
            )
    label = row.get("label", 0) if where else 0
    if where and (
        isinstance(label, bool)
        or not isinstance(label, int | float)
        or (task.labels and not 0 <= label < len(task.labels))
    ):
        raise UserError(
            f"{where}: label {label!r} is none of {', '.join(task.labels) or 'the numbers'}"
        )
    return Example(row[text], None if pair is None else row[pair], label)
