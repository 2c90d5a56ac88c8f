"""The known tasks: from the files of a folder, or from the Hub -> `TaskData`; and the tasks of a
request to `electrify finetune`.

Nothing heavy is imported, so that a wrong file or column is reported within a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..hub import must_be_reachable
from .columns import Columns, number_of
from .own import read_own, validated
from .sentences import read_sentences, tagging_of
from .split import split
from .squad import answering_of, gathered, read_questions
from .tables import Row, lines, rows, text_of
from .tasks import Example, KnownTask, Sentence, TaskData, tasks_named

if TYPE_CHECKING:
    from .options import FinetuneConfig

Labelled = tuple[Example, ...]
MALFORMED = 0.01
"""Share of the lines of an official file that may be malformed: QQP's train.tsv has a few among
363,849, which ELECTRA's public code also skips. If there are more, the file is broken, or not the
official one."""
_PARTS = ("_subset", "-subset", "-half")
"""Endings of the names of files that may stand in for the official ones, which a note reports."""


def read_asked(options: FinetuneConfig) -> list[TaskData]:
    """Every task of a request with its examples. Raises UserError naming file and line."""
    if options.task:
        found = tasks_named(options.task)
        return [read_task(row, options.data_dir, test=options.predict_test) for row in found]
    columns = Columns(
        text=options.text_column,
        pair=options.pair_column,
        label=options.label_column,
        header=options.header,
    )
    fraction = options.validation_fraction
    task = read_own(
        options.train_file or "",
        options.validation_file if fraction is None else None,
        columns=columns,
        problem_type=options.problem_type,
        metrics=options.metrics,
    )
    return [task if fraction is None else validated(split(task, fraction, seed=options.seed))]


def read_task(row: KnownTask, data_dir: str | None, *, test: bool = False) -> TaskData:
    """The examples of a task. Raises UserError naming file and line.

    Args:
        data_dir: A folder that holds the task's files, or the folder of its group (glue, tagging,
            squad, babylm); or a data set of the Hub or a clone of one. None takes the task's own.
        test: Whether to read GLUE's test sets, too.
    """
    if data_dir is None and row.hub is None:
        holds = next(filter(None, row.folders))
        raise UserError(f"--data-dir is missing: the folder that holds {holds} for {row.name}")
    if data_dir is None or not Path(data_dir).is_dir():
        # A mistyped folder is not asked of the Hub.
        folder = data_dir is not None and "/" in data_dir and Path(data_dir).parent.is_dir()
        if row.hub is None or folder:
            raise UserError(f"--data-dir {data_dir}: no such folder")
        return _of_hub(row, data_dir or row.hub, test=test)
    data_dir = folder_of(row, data_dir)
    if row.hub is not None and _is_clone(Path(data_dir)):
        return _of_hub(row, data_dir, test=test)
    folder = _folder(row, Path(data_dir))
    if folder is None:
        wanted = " or ".join(filter(None, (*row.folders, *row.train * ("" in row.folders))))
        raise UserError(f"{data_dir}: no {wanted} there; --data-dir must hold it for {row.name}")
    if row.group == "glue":
        return _glue(row, folder, test=test)
    return {"babylm": _babylm, "tagging": _tagging, "squad": _squad}[row.group](row, folder)


# ------------------------------------------------------------------ files


def folder_of(row: KnownTask, data_dir: str) -> str:
    """`data_dir`, or the folder glue/, tagging/, squad/ or babylm/ in it, if that exists and
    `data_dir` does not hold the task itself. So one folder serves tasks of all kinds."""
    inside = Path(data_dir) / row.group
    return str(inside) if inside.is_dir() and _folder(row, Path(data_dir)) is None else data_dir


def _folder(row: KnownTask, data_dir: Path) -> Path | None:
    """The folder with a task's files: `data_dir` itself or one in it."""
    if "" in row.folders and _file(row, data_dir, row.train) is not None:
        return data_dir
    for pattern in filter(None, row.folders):
        found = _only(row, [path for path in data_dir.glob(pattern) if path.is_dir()])
        if found is not None:
            return found
    own = data_dir.resolve().name
    return data_dir if any(fnmatchcase(own, pattern) for pattern in row.folders) else None


def _file(row: KnownTask, folder: Path, patterns: Sequence[str]) -> Path | None:
    """The file of the first pattern that has one, official files first."""
    ends = [pattern.rpartition(".") for pattern in patterns]
    stand_ins = [f"{stem}{part}.{ending}" for stem, _, ending in ends for part in _PARTS]
    found = (
        _only(row, [path for path in folder.glob(pattern) if path.is_file()])
        for pattern in (*patterns, *stand_ins)
    )
    return next(filter(None, found), None)


def _only(row: KnownTask, paths: Sequence[Path]) -> Path | None:
    if len(paths) > 1:
        names = ", ".join(sorted(path.name for path in paths))
        raise UserError(f"{paths[0].parent}: several fit task {row.name!r}: {names}; keep one")
    return paths[0] if paths else None


def _must(row: KnownTask, folder: Path, patterns: Sequence[str]) -> Path:
    path = _file(row, folder, patterns)
    if path is None:
        raise UserError(f"{folder}: no {' or '.join(patterns)} for task {row.name!r}")
    return path


def _stands_in(path: Path, patterns: Sequence[str], count: int, what: str) -> list[str]:
    if any(fnmatchcase(path.name, pattern) for pattern in patterns):
        return []
    return [f"{path.name} ({count:,} {what}) stands in for the official {patterns[0]}"]


def _task(row: KnownTask, train: Labelled, validation: Labelled, **more: Any) -> TaskData:
    same = ("name", "kind", "labels", "metrics", "epochs")
    same += ("symmetric", "value_range", "max_seq_length")
    taken = {name: getattr(row, name) for name in same}
    return TaskData(train=train, validation=validation, **taken, **more)


# ------------------------------------------------------------------ GLUE


def _glue(row: KnownTask, folder: Path, *, test: bool) -> TaskData:
    """GLUE's own TSV files, without quotes."""
    notes: list[str] = []

    def part(*names: str) -> Labelled:
        path = _must(row, folder, names)
        examples, malformed = _glue_examples(path, row)
        notes.extend(_stands_in(path, names, len(examples), "examples") + malformed)
        return examples

    train, validation = part(*row.train), part(*row.validation)
    also = []
    for key, name in row.also.items():
        if (folder / name).exists():
            also.append((key, part(name)))
        else:
            notes.append(f"{name} is missing: {key} is not scored")
    tests = []
    for key, name in (row.submission or {row.folders[0]: "test.tsv"}).items():
        if test and (folder / name).exists():
            tests.append((key, tuple(_unlabelled(str(folder / name), row))))
    return _task(row, train, validation, also=tuple(also), test=tuple(tests), notes=tuple(notes))


def _unlabelled(path: str, row: KnownTask) -> Iterator[Example]:
    """The texts of a test set, which has a header, even CoLA's."""
    text = row.text if isinstance(row.text, str) else "sentence"
    for found in rows(path):
        pair = None if row.pair is None else text_of(found, str(row.pair))
        yield Example(text_of(found, text), pair)


def _glue_examples(path: Path, row: KnownTask) -> tuple[Labelled, list[str]]:
    """The examples, and a note on malformed lines. Raises UserError if more than `MALFORMED` of
    the lines are, or the last one."""
    columns = [column for column in (row.text, row.pair, row.label) if column is not None]
    width = 4  # CoLA has no header: source, label, star, sentence
    places = columns if isinstance(row.label, int) else []
    examples = []
    odd: list[tuple[int, int]] = []
    number = 0
    for number, line in enumerate(lines(path), 1):
        cells = line.split("\t")
        if not places:
            missing = next((c for c in columns if c not in cells), None)
            if missing is not None:
                raise UserError(f"{path}, line 1: no column {missing!r}; found: {', '.join(cells)}")
            places = [cells.index(str(column)) for column in columns]
            width = len(cells)
        elif len(cells) != width:
            odd.append((number, len(cells)))
        else:
            text, *pair, label = (cells[int(place)] for place in places)
            value = _label(row, label, f"{path}, line {number}")
            examples.append(Example(text, pair[0] if pair else None, value))
    if not odd:
        return tuple(examples), []
    first, found = odd[0]
    if len(odd) > MALFORMED * (len(odd) + len(examples)) or odd[-1][0] == number:
        raise UserError(
            f"{path}, line {first}: {found} columns, expected {width} ({len(odd):,} of {number:,} "
            "lines are malformed); the file is cut or not the official one: download it again"
        )
    note = f"{path.name}: {len(odd):,} malformed line{'s' * (len(odd) > 1)} left out"
    return tuple(examples), [f"{note} (line {first:,} has {found} of {width} columns)"]


def _label(row: KnownTask, value: str, where: str) -> float:
    if row.kind == "classification" and value.strip() in row.labels:
        return row.labels.index(value.strip())
    number = number_of(value)
    if row.kind == "classification" or number is None:
        wanted = "a number" if row.kind == "regression" else f"one of {', '.join(row.labels)}"
        raise UserError(f"{where}: label {value[:40]!r} is not {wanted}")
    return number


# ------------------------------------------------------------------ BabyLM, tags, SQuAD


def _babylm(row: KnownTask, folder: Path) -> TaskData:
    """JSON lines with the columns of the Hub's data sets; a class is its number."""

    def part(patterns: Sequence[str]) -> Labelled:
        path = str(_must(row, folder, patterns))
        examples = []
        for found in rows(path):
            label: Any = found.cells.get("label")
            if label not in range(len(row.labels)):
                most = len(row.labels) - 1
                raise UserError(f"{found.where}: 'label' must be 0 to {most}, not {label!r}")
            text, pair = (_filled(str(template), found) for template in (row.text, row.pair))
            examples.append(Example(text, pair, int(label)))
        return tuple(examples)

    return _task(row, part(row.train), part(row.validation))


def _filled(template: str, row: Row) -> str:
    """A template with its columns filled in."""
    named = [name for _, name, _, _ in Formatter().parse(template) if name]
    return template.format(**{name: text_of(row, name) for name in named})


def _tagging(row: KnownTask, folder: Path) -> TaskData:
    """Column files. A set without a development part is scored on its test part."""
    train = _must(row, folder, row.train)
    validation = _file(row, folder, row.validation)
    test = _file(row, folder, row.test)
    scored = validation or test
    if scored is None:
        raise UserError(
            f"{folder}: no development or test file for task {row.name!r}: "
            f"{' or '.join((*row.validation, *row.test))}"
        )
    notes = () if validation else (f"no development set: scored on {scored.name}",)
    return tagging_of(
        row.name,
        _sentences(row, train),
        _sentences(row, scored),
        also=(("test", _sentences(row, test)),) if test and validation else (),
        metrics=row.metrics,
        epochs=row.epochs,
        notes=notes,
    )


def _sentences(row: KnownTask, path: Path) -> tuple[Sentence, ...]:
    if ".conllu" in path.name:
        return read_sentences(path)
    prefix = _language(path) if row.languages else ""
    return read_sentences(path, word=int(row.text), tag=row.label, prefix=prefix)


def _language(path: Path) -> str:
    """The prefix `en:` of a file whose first word is en:Sioux, as in WikiANN's own files."""
    first = next((line for line in lines(path) if line.strip()), "")
    language, colon, _ = first.partition(":")
    bare = language.replace("-", "")
    return language + colon if colon and bare.isalpha() and language.islower() else ""


def _squad(row: KnownTask, folder: Path) -> TaskData:
    found = []
    notes = []
    for patterns in (row.train, row.validation):
        path = _must(row, folder, patterns)
        found.append(read_questions(path))
        notes += _stands_in(path, patterns, len(found[-1]), "questions")
    task = answering_of(row.name, found[0], found[1], epochs=row.epochs, notes=tuple(notes))
    return _of_version(row, task, folder)


def _of_version(row: KnownTask, task: TaskData, where: object) -> TaskData:
    if task.metrics != row.metrics:
        has = "no" if row.name == "squad2" else "some"
        raise UserError(
            f"{where}: its development set has {has} unanswerable questions, so it is not that of "
            f"{row.name}"
        )
    return task


# ------------------------------------------------------------------ the Hub


def _is_clone(folder: Path) -> bool:
    """Whether a folder is a data set of the Hub: its README begins with the names of its parts."""
    readme = folder / "README.md"
    if not readme.is_file():
        return False
    beginning = readme.read_bytes()[:100_000]
    return beginning.startswith(b"---") and b"configs:" in beginning


def _of_hub(row: KnownTask, source: str, *, test: bool) -> TaskData:
    """GLUE and SQuAD in the layout of nyu-mll/glue and rajpurkar/squad, by `datasets`."""
    sets = _sets(source, row.name if row.group == "glue" else None)

    def part(split: str) -> Iterator[tuple[str, dict[str, Any]]]:
        where = f"data set {source}, {row.name}"
        if split not in sets:
            raise UserError(f"{where} has no split {split!r}; found: {', '.join(sets)}")
        return ((f"{where} {split}, row {k}", cells) for k, cells in enumerate(sets[split], 1))

    if row.group == "squad":
        both = [gathered(f"{source}, {name}", part(name)) for name in ("train", "validation")]
        return _of_version(row, answering_of(row.name, *both, epochs=row.epochs), source)

    def examples(split: str, *, labelled: bool = True) -> Labelled:
        return tuple(_hub_example(row, cells, where, labelled) for where, cells in part(split))

    matched = "_matched" if row.also else ""
    tests = {row.folders[0]: "test"}
    if row.also:
        tests = {"MNLI-m": "test_matched", "MNLI-mm": "test_mismatched"}
    absent = ("AX is missing: the diagnostic set has no predictions",)
    return _task(
        row,
        examples("train"),
        examples(f"validation{matched}"),
        also=tuple((name, examples(f"validation_{name}")) for name in row.also),
        test=tuple((k, examples(name, labelled=False)) for k, name in tests.items() if test),
        notes=absent if test and row.also else (),
    )


def _sets(source: str, config: str | None) -> Any:
    try:
        import datasets
    except ImportError as e:
        raise UserError(
            f"{source}: a data set of the Hub needs `datasets`: pip install 'electrify[data]'"
        ) from e
    try:
        if not Path(source).is_dir():
            must_be_reachable(source, "data set")
        return datasets.load_dataset(source, config)
    except UserError as e:
        raise UserError(f"{e}; --data-dir takes a folder, too") from e
    # Not found, no network, no such configuration: each raises its own kind of exception.
    except Exception as e:
        said = " ".join(str(e).split())[:300]
        raise UserError(
            f"data set {source} {config or ''} cannot be loaded ({type(e).__name__}: {said}); "
            "--data-dir takes a folder, too"
        ) from e


def _hub_example(row: KnownTask, cells: dict[str, Any], where: str, labelled: bool) -> Example:
    columns = row.hub_columns or [str(c) for c in (row.text, row.pair) if c is not None]
    for column in columns:
        if not isinstance(cells.get(column), str):
            raise UserError(f"{where}: no text in column {column!r}; found: {', '.join(cells)}")
    text, *pair = (cells[column] for column in columns)
    label = cells.get("label") if labelled else 0
    if not isinstance(label, int | float) or (row.labels and not 0 <= label < len(row.labels)):
        known = ", ".join(row.labels) or "the numbers"
        raise UserError(f"{where}: label {label!r} is none of {known}")
    return Example(text, pair[0] if pair else None, label)
