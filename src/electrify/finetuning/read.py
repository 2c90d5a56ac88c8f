"""Files of examples -> `TaskData`: the user's own files of every kind; sentences and questions also
of the known tasks.

What is not given is detected: the columns, and whether labels are classes, several classes, or
numbers. Notes report what was detected. Sentences: column files (CoNLL, CoNLL-U, TSV) and rows with
lists of words and tags. Their chunks are read as IOB2, whatever their scheme is. Questions: SQuAD's
JSON (1.1 and 2.0), rows of tables, rows of the Hub's data sets. A question without answers means
that the context holds none. Every answer must be at its stated place: a model learns places, and a
shifted one teaches nonsense.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import count, islice, zip_longest
from pathlib import Path
from typing import Any, cast

from ..errors import UserError, need
from ..text.streams import Advance, ending_of, read_chunks
from ..text.tables import (
    BLANKS,
    COLUMN_FILES,
    WITH_LISTS,
    Row,
    column_named,
    column_sentences,
    holds_words,
    labelled_columns,
    number_of,
    rows,
)
from .metrics import LETTERS, chosen, chunk_of, spans
from .options import FinetuneConfig
from .split import first, split, validated
from .tasks import MIN_UPDATES, TASKS, Answer, Example, Kind, Question, Sentence, TaskData

OWN_EPOCHS = 3.0
AREAS = ("roc_auc", "pr_auc")
OWN_METRICS: dict[str, tuple[str, ...]] = {
    "classification": ("accuracy", "macro_f1", "balanced_accuracy", *AREAS, "ece"),
    "multilabel": ("micro_f1", "macro_f1", "accuracy", *AREAS),
    "regression": ("spearman", "pearson"),
}
FEW = 0.2
"""Share of labels that are no numbers, below which the others are not taken for names of classes if
some are decimal."""
UNUSED: dict[str, dict[str, Any]] = {
    "tagging": {"pair_column": None, "header": True, "metrics": ()},
    "answering": {"text_column": "question", "pair_column": "context", "label_column": "answers"}
    | {"header": True, "metrics": ()},
}
"""Options that a kind of task does not use, with the value that changes nothing."""
MARKS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}
MARKS |= {"": None, "nan": None}  # type: ignore[dict-item]
"""What a label may be if each class has a column, or a place in a list: None is not known."""
_WHOLE = re.compile(r"[-+]?[0-9]+")

Label = str | list[str]
"""As it is written: one label, or a list of those that apply, or a mark for each class."""
Part = list[tuple[Row, Label]]


# ------------------------------------------------------------------ sentences

TOKENS = ("tokens", "words")
TAGS = ("tags", "ner_tags", "labels")


def read_sentences(
    path: str, *, word: str | None = None, tag: str | None = None
) -> tuple[Sentence, ...]:
    """The sentences of a column file (see `column_sentences`), or of rows with a list of words and
    one of tags. Raises UserError naming file and line.

    Args:
        word: Column of the words, by name or number; by default `tokens` or `words`, in a column
            file the first, in .conllu FORM.
        tag: The same; by default `tags`, `ner_tags` or `labels`, the last, or UPOS.
    """
    sentences = []
    for row in sentence_rows(path):
        need(len(row.cells) > 1, f"{row.where}: one column. Words need tags")
        words = texts_of(row, word_column(path, row, word))
        tags = texts_of(row, tag_column(path, row, tag))
        need(len(words) == len(tags) > 0, f"{row.where}: {len(words)} words, but {len(tags)} tags")
        sentences.append(Sentence(words, tags))
    return tuple(sentences)


def sentence_rows(path: str) -> Iterator[Row]:
    """The rows of a file of sentences, whose columns hold lists."""
    return rows(path) if ending_of(path) in WITH_LISTS else column_sentences(path)


def word_column(path: str, row: Row, given: str | None) -> str:
    """The column of the words in a row of sentences. Raises UserError."""
    if given is not None:
        return column_named(path, [row], given)
    if ending_of(path) in WITH_LISTS:
        return _first_of(TOKENS, row)
    return "1" if ending_of(path) == ".conllu" else "0"


def tag_column(path: str, row: Row, given: str | None) -> str:
    """The column of the tags in a row of sentences. Raises UserError."""
    if given is not None:
        return column_named(path, [row], given)
    if ending_of(path) in WITH_LISTS:
        return _first_of(TAGS, row)
    return "3" if ending_of(path) == ".conllu" else list(row.cells)[-1]


def _first_of(names: Sequence[str], row: Row) -> str:
    return next((name for name in names if name in row.cells), names[0])


def texts_of(row: Row, name: str) -> tuple[str, ...]:
    """The words or tags of a row: the list of texts in this column. Raises UserError."""
    texts = row.value(name)
    good = isinstance(texts, list) and all(isinstance(t, str) and t.strip(BLANKS) for t in texts)
    need(good, f"{row.where}: column {name!r} must be a list of texts, not {str(texts)[:40]}")
    return tuple(texts)


def has_chunks(tags: Iterable[Sequence[str]]) -> bool:
    """Whether tags are those of chunks (IOB1, IOB2, IOBES, BILOU), not of words (parts of speech):
    some tag begins with B- or I-, or all have the form of a chunk's."""
    different = {tag for each in tags for tag in each if tag != "O"}
    letters = {chunk[0] if (chunk := chunk_of(tag)) else "" for tag in different}
    return letters <= LETTERS or any(tag.startswith(("B-", "I-")) for tag in different)


def to_iob2(tags: Sequence[str]) -> tuple[str, ...]:
    """The same chunks with B- on the first word of each and I- on its others. Tags outside of
    chunks stay as they are."""
    out = list(tags)
    for _, start, stop in spans(tags):
        for i in range(start, stop):
            out[i] = ("B" if i == start else "I") + tags[i][1:]
    return tuple(out)


def tagging_of(
    name: str, train: tuple[Sentence, ...], validation: tuple[Sentence, ...], **more: Any
) -> TaskData:
    """A task of sentences, their chunks as IOB2. The metrics are those of spans if tags have
    chunks, else accuracy. more: further fields of the task."""
    chunked = has_chunks(s.tags for s in train)

    def read(part: tuple[Sentence, ...]) -> tuple[Sentence, ...]:
        return tuple(Sentence(s.words, to_iob2(s.tags)) for s in part) if chunked else part

    train = read(train)
    more["also"] = tuple((key, read(part)) for key, part in more.get("also", ()))
    return TaskData(
        name=name,
        kind="tagging",
        labels=tuple(sorted({tag for s in train for tag in s.tags})),
        metrics=TASKS["conll2000" if chunked else "ud"].metrics,
        train=train,
        validation=read(validation),
        min_updates=MIN_UPDATES,
        **more,
    )


# ------------------------------------------------------------------ questions

LAYOUT = 'it is {"data": [{"paragraphs": [{"context": ..., "qas": [...]}]}]}, and for lines .jsonl'


def question_rows(path: str, *, advance: Advance = None, **how: Any) -> Iterator[Row]:
    """The rows of a file: SQuAD's .json, or a table, see `rows`."""
    json_file = ending_of(path) == ".json"
    return _nested(path, advance) if json_file else rows(path, advance=advance, **how)


def _nested(path: str, advance: Advance) -> Iterator[Row]:
    """The questions of SQuAD's JSON, or of a list of its paragraphs (simpletransformers)."""
    place, numbers = "data", count(1)
    try:
        top = json.loads(b"".join(read_chunks(Path(path), advance=advance)))
        articles = top["data"] if isinstance(top, dict) else [{"paragraphs": top}]
        for i, article in enumerate(articles):
            for j, paragraph in enumerate(article["paragraphs"]):
                for k, qa in enumerate(paragraph["qas"]):
                    place = f"data[{i}].paragraphs[{j}].qas[{k}]"
                    cells = qa | {"context": paragraph["context"]}
                    yield Row(f"{path}, {place}", next(numbers), cells)
    except (KeyError, TypeError, ValueError, RecursionError) as e:
        raise UserError(f"{path}: not SQuAD's layout at or after {place} ({e})", LAYOUT) from e


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
    need(isinstance(given, list), f"{row.where}: 'answers' must be a text, a list or an object")
    answers = (_answer(each, context, f"{row.where}, answers[{n}]") for n, each in enumerate(given))
    return Question(str(row.cells.get("id", row.number)), question, context, tuple(answers))


def _answer(item: Any, context: str, where: str) -> Answer:
    """Without blanks around it: one at its end would teach that the next word belongs to it."""
    if isinstance(item, str):
        item = {"text": item.strip(), "answer_start": context.find(item.strip())}
    match item:
        case {"text": str(text), "answer_start": int(start)} if text.strip() and start >= 0:
            if context.startswith(text, start):
                return Answer(text.strip(), start + len(text) - len(text.lstrip()))
    raise UserError(
        f"{where}: the context does not hold its 'text' at its 'answer_start': {str(item)[:60]}",
        "an answer is a piece of it, and its start counts characters from 0",
    )


def answering_of(
    name: str, train: tuple[Question, ...], validation: tuple[Question, ...] = (), **more: Any
) -> TaskData:
    """A task of questions. validation: none if the first part is to be split. If some validation
    questions have no answer, the metrics are SQuAD 2.0's. more: further fields of the task."""
    validation = validation or train
    answered = sum(bool(q.answers) for q in validation)
    metrics = TASKS["squad1" if answered == len(validation) else "squad2"].metrics
    if not answered:
        metrics = tuple(m for m in metrics if not m.startswith("has_answer"))
    more |= {"train": train, "validation": validation}
    return TaskData(name=name, kind="answering", metrics=metrics, **more)


# ------------------------------------------------------------------ own files


def read_own(options: FinetuneConfig, labels: tuple[str, ...] = ()) -> TaskData:
    """A task of the user's own files. Without a validation file, the validation examples are split
    off. labels: the classes, if those of the files are not to decide. Raises UserError naming file
    and line."""
    path, fraction = options.train_file or "", options.validation_fraction
    files = [file for file in (path, options.validation_file) if file is not None]
    kind = _kind_of_file(path) if options.problem_type == "auto" else options.problem_type
    name = _name_of(Path(path))
    for option, usual in UNUSED.get(kind, {}).items():
        need(getattr(options, option) in (None, usual), f"{option} is not for {kind}")
    if kind == "answering":
        parts: Any = (tuple(map(question_of, question_rows(file))) for file in files)
        task = answering_of(name, *parts, epochs=2, min_updates=MIN_UPDATES)
    elif kind == "tagging":
        word, tag = options.text_column, options.label_column
        parts = [read_sentences(file, word=word, tag=tag) for file in files]
        notes = tuple(
            _about_columns(row, word_column(path, row, word), None, [tag_column(path, row, tag)])
            for row in islice(sentence_rows(path), 1)
        )
        # Without a validation file the training file stands for both until it is split.
        task = tagging_of(name, parts[0], parts[-1], epochs=OWN_EPOCHS, notes=notes)
    else:
        task = _texts(files, name, kind, options, labels)
    return validated(task if fraction is None else split(task, fraction, seed=options.seed))


def _kind_of_file(path: str) -> Any:
    """What the ending, or the names of the columns, show; otherwise auto."""
    ending = ending_of(path)
    if ending == ".json":
        return "answering"
    if ending in (*COLUMN_FILES, ".txt") or (ending == ".tsv" and holds_words(path)):
        return "tagging"
    keys = set(next((row.cells for row in rows(path)), ())) if ending in WITH_LISTS else set()
    if {"context", "question"} <= keys:
        return "answering"
    return "tagging" if keys & {*TOKENS} and keys & {*TAGS} else "auto"


def _name_of(train_file: Path) -> str:
    """The name of the task: that of the file. Under a known name, the report would compare it with
    published scores."""
    name = train_file.name.split(".")[0]
    return f"own-{name}" if name.lower() in TASKS else name


# ------------------------------------------------------------------ own texts


def _texts(
    files: Sequence[str], name: str, wanted: str, options: FinetuneConfig, known: Sequence[str]
) -> TaskData:
    """A task of texts, or pairs of them. wanted: the kind of label, or auto. known: its classes,
    none if those of the first file are meant."""
    tables = [list(rows(path, header=options.header)) for path in files]
    columns = {each: getattr(options, f"{each}_column") for each in ("text", "pair", "label")}
    text, pair, labels = labelled_columns(files[0], tables[0], **columns)
    parts: list[Part] = []
    for path, table in zip(files, tables, strict=True):
        both = ((row, _label_of(row, labels, wanted)) for row in table)
        parts.append([(row, label) for row, label in both if label is not None])
        need(bool(parts[-1]), f"{path}: no example has a label, so there is nothing to learn")
    kind = _kind_of(parts[0]) if wanted == "auto" else cast(Kind, wanted)
    classes = Classes(parts[0], labels, kind, known)

    def example(row: Row, label: Label) -> Example:
        both = row.text(text), None if pair is None else row.text(pair)
        return Example(*both, *classes.read(row, label))

    examples = [tuple(example(*each) for each in part) for part in parts]
    for path, part in zip(files, examples, strict=True):
        given = any(e.whole.strip() for e in part)
        need(given, f"{path}: every text ({text!r}) is empty. Is another column meant?")
    number = f"{len(classes.names):,}"
    fact = f"--metrics f1 is for two classes, and {files[0]} has {number}. Take macro_f1"
    need("f1" not in options.metrics or kind != "classification" or number == "2", fact)
    notes = [_about_columns(tables[0][0], text, pair, labels)]
    if out := sum(map(len, tables)) - sum(map(len, parts)):
        notes.append(f"{out:,} examples without a label are left out")
    about = f"{number} classes ({first(classes.names)})"
    if kind == "regression":
        values: list[Any] = [e.label for e in examples[0]]
        about = f"labels from {min(values):g} to {max(values):g}"
    return TaskData(
        name=name,
        kind=kind,
        labels=tuple(classes.names),
        metrics=chosen(options.metrics, kind) or OWN_METRICS[kind],
        epochs=OWN_EPOCHS,
        train=examples[0],
        validation=examples[-1],
        min_updates=MIN_UPDATES,
        notes=(*notes, f"task: {kind}, {about}"),
    )


def _about_columns(row: Row, text: str, pair: str | None, labels: list[str]) -> str:
    unread = [repr(name) for name in row.cells if name not in (text, pair, *labels)]
    second = "" if pair is None else f", second text {pair!r}"
    what = "label" if len(labels) == 1 else "one class each"
    ignored = f"; not read: {first(unread)}" if unread else ""
    return f"columns: text {text!r}{second}, {what} {first(list(map(repr, labels)))}{ignored}"


def _label_of(row: Row, columns: list[str], wanted: str) -> Label | None:
    """The label of a row, or None if it has none. Lists may be written as JSON or Python writes
    them; for `multilabel`, also with bars. Raises UserError."""
    if len(columns) > 1:
        marks = [_written(row.value(column)).lower() for column in columns]
        odd = [repr(c) for c, mark in zip(columns, marks, strict=True) if mark not in MARKS]
        need(not odd, f"{row.where}: {', '.join(odd)} must be 0, 1 or empty (not known)")
        return marks if any(MARKS[mark] is not None for mark in marks) else None
    value = row.value(columns[0])
    written = _written(value)
    if written.startswith("[") and wanted in ("auto", "multilabel"):
        for read in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError):  # otherwise it is a name
                value = read(written)
    elif wanted == "multilabel" and isinstance(value, str) and written.lower() != "nan":
        value = [part for part in value.split("|") if part.strip()]
    given = value if isinstance(value, list) else [value]
    known = value is None or all(isinstance(each, str | int | float) for each in given)
    need(known, f"{row.where}: {columns[0]!r} must hold texts or numbers, not {written[:40]}")
    if isinstance(value, list):
        return list(map(_written, value))
    return None if written.lower() in ("", "nan") else written


def _written(value: Any) -> str:
    if value is None:
        return "nan"
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


def _kind_of(part: Part) -> Kind:
    """Decimal numbers are values, but two whole ones (0.0 and 1.0) are classes. Raises UserError
    where most labels are decimal numbers and some are not: one such cell would make a class of each
    number."""
    if any(isinstance(label, list) for _, label in part):
        return "multilabel"
    numbers = [number_of(label) for _, label in part]
    whole = all(n is None or n.is_integer() for n in numbers)
    if None not in numbers:
        written = all(_WHOLE.fullmatch(str(label)) for _, label in part)
        two = whole and len(set(numbers)) == 2
        return "classification" if two or written else "regression"
    row, odd = part[numbers.index(None)]
    # If every label is a number once commas and % are read (0,5 and 10.5 %), the odd ones are only
    # written differently.
    written = [number_of(str(label).replace(",", ".").rstrip(" %")) for _, label in part]
    whole = all(n is None or n.is_integer() for n in written)
    numbers = numbers if None in written else written
    need(
        whole or numbers.count(None) > FEW * len(part),
        f"{row.where}: label {str(odd)[:40]!r} is not a number, and most others are",
        "write numbers as 0.5, or give --problem-type classification if labels are names",
    )
    return "classification"


class Classes:
    """The names of all classes, and what a label stands for.

    Lists that hold only 0 and 1 and have one length are vectors with a place for each class
    (multi-hot), and so are several columns. Where all names are whole numbers, 1.0 is 1: pandas
    writes so where other cells are empty. known: the classes, if they are given.
    """

    def __init__(self, part: Part, columns: list[str], kind: Kind, known: Sequence[str]) -> None:
        self.kind, self.own = kind, list[str]()
        listed = [label for _, label in part if isinstance(label, list)]
        sizes = {len(label) for label in listed}
        values = {v for _, label in part for v in (label if isinstance(label, list) else [label])}
        marked = all(MARKS.get(value.lower()) is not None for value in values)
        alike = len(listed) == len(part) and len(sizes) == 1 and min(sizes) > 1
        self.marked = len(columns) > 1 or (alike and marked)
        """Whether a label is a vector of marks."""
        numbers = [number_of(value) for value in values]
        self.whole = all(number is not None and number.is_integer() for number in numbers)
        if len(columns) > 1:
            self.own = columns
        elif self.marked:
            self.own = [f"label_{k}" for k in range(max(sizes))]
        elif kind != "regression":
            self.own = sorted({*map(self.spelt, values)}, key=_order)
        self.names = known or self.own
        self.numbers = {name: k for k, name in enumerate(self.names)}

    def spelt(self, value: str) -> str:
        return value.removesuffix(".0") if self.whole else value

    def read(self, row: Row, label: Label) -> tuple[Any, tuple[int, ...]]:
        """The class or value, or the classes that apply; and those that are not known. Raises
        UserError."""
        held = label if isinstance(label, list) else [label]
        if self.kind != "multilabel":
            fact = f"{row.where}: several labels"
            need(isinstance(label, str), fact, "give --problem-type multilabel")
            return self.number(row, self.spelt(held[0])), ()
        marks = [value.lower() for value in held]
        if self.marked and len(marks) == len(self.own) and {*marks} <= MARKS.keys():
            of = {self.number(row, c): MARKS[m] for c, m in zip(self.own, marks, strict=True)}
            return tuple(k for k in of if of[k]), tuple(k for k in of if of[k] is None)
        return tuple(sorted({self.number(row, self.spelt(value)) for value in held})), ()

    def number(self, row: Row, value: str) -> Any:
        is_value = self.kind == "regression"
        found = number_of(value) if is_value else self.numbers.get(value)
        what = "not a number" if is_value else f"none of the classes {first(self.names)}"
        known = found is not None and math.isfinite(found)
        need(known, f"{row.where}: label {value[:40]!r} is {what}")
        return found


def _order(name: str) -> tuple[float, str]:
    return (int(name), name) if _WHOLE.fullmatch(name) else (math.inf, name)
