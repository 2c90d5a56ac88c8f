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
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from ..errors import UserError, need
from ..text.columns import column_named, labelled_columns, number_of
from ..text.streams import Advance, ending_of, read_chunks
from ..text.tables import BLANKS, COLUMN_FILES, WITH_LISTS, Row, column_sentences, holds_words, rows
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
MOST, SOME = 0.8, 0.1
"""From these shares of numbers, and of decimal ones, labels are not taken for names of classes."""
# What a label may be if each class has a column, or a place in a list, of its own.
_MARKS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}
_UNKNOWN = ("", "nan")
_WHOLE = re.compile(r"[-+]?[0-9]+")


class Label(NamedTuple):
    """The label of a row as written: one, or all that apply (listed). unknown: the classes of which
    nobody knows."""

    held: list[str]
    listed: bool = False
    unknown: Sequence[str] = ()


Part = list[tuple[Row, Label]]


# ------------------------------------------------------------------ sentences

TOKENS = ("tokens", "words")
TAGS = ("tags", "ner_tags", "labels")
UD_TAGS = {"upos": "3", "xpos": "4"}


def read_sentences(
    path: str, *, word: str | None = None, tag: str | None = None, prefix: str = ""
) -> tuple[Sentence, ...]:
    """The sentences of a column file (see `column_sentences`), or of rows with a list of texts
    `tokens` (else `words`) and one `tags` (else `ner_tags`, else `labels`). Raises UserError naming
    file and line.

    Args:
        word: Column of a column file, from 0; by default the first, in .conllu FORM.
        tag: The same; by default the last, in .conllu UPOS. There it may be "upos" or "xpos".
        prefix: What every word begins with, and what is removed, as "en:" in WikiANN's own files.
    """
    treebank = ending_of(path) == ".conllu"
    tag = UD_TAGS.get(tag or "upos", tag) if treebank else tag
    listed = ending_of(path) in WITH_LISTS
    sentences = []
    for row in rows(path) if listed else column_sentences(path):
        if listed:
            words, tags = texts_of(row), texts_of(row, TAGS)
        else:
            need(len(row.cells) > 1, f"{row.where}: one column; words need tags")
            words = texts_of(row, [word_column(path, row, word)])
            tags = texts_of(row, [column_named(path, [row], tag or list(row.cells)[-1])])
        fact = f"{row.where}: {len(words)} words, but {len(tags)} tags; every word needs one"
        need(len(words) == len(tags) > 0, fact)
        sentences.append(Sentence(tuple(word.removeprefix(prefix) for word in words), tags))
    return tuple(sentences)


def word_column(path: str, row: Row, given: str | None) -> str:
    """The column of the words in a column file. Raises UserError."""
    usual = "1" if ending_of(path) == ".conllu" else "0"
    return usual if given is None else column_named(path, [row], given)


def texts_of(row: Row, names: Sequence[str] = TOKENS) -> tuple[str, ...]:
    """The words or tags of a row: a list of texts. names: of its column. Raises UserError."""
    name = next((name for name in names if name in row.cells), names[0])
    value = row.value(name)
    texts = value if isinstance(value, list) else [None]
    if not all(isinstance(each, str) and each.strip(BLANKS) for each in texts):
        fact = (
            f"{row.where}: column {name!r} must be a list of texts that are not empty, not numbers"
        )
        raise UserError(f"{fact}: {str(value)[:40]}")
    return tuple(value)


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
            _, hyphen, kind = tags[i].partition("-")
            out[i] = ("B" if i == start else "I") + hyphen + kind
    return tuple(out)


def tagging_of(
    name: str, train: tuple[Sentence, ...], validation: tuple[Sentence, ...], **more: Any
) -> TaskData:
    """A task of sentences, their chunks as IOB2. The metrics are those of spans if tags have
    chunks, else accuracy. more: further fields of the task."""
    chunked = has_chunks(s.tags for s in train)

    def read(part: tuple[Sentence, ...]) -> tuple[Sentence, ...]:
        return tuple(Sentence(s.words, to_iob2(s.tags)) for s in part) if chunked else part

    more["also"] = tuple((key, read(part)) for key, part in more.get("also", ()))
    return TaskData(
        name=name,
        kind="tagging",
        labels=tuple(sorted({tag for s in read(train) for tag in s.tags})),
        metrics=TASKS["conll2000" if chunked else "ud"].metrics,
        train=read(train),
        validation=read(validation),
        min_updates=MIN_UPDATES,
        **more,
    )


# ------------------------------------------------------------------ questions

LAYOUT = (
    'the layout of SQuAD is {"data": [{"paragraphs": [{"context": ..., "qas": [...]}]}]}, and '
    "files with one JSON object on each line end in .jsonl"
)


def read_questions(path: str | Path) -> tuple[Question, ...]:
    """The questions of a file. Raises UserError naming the file and the place in it."""
    return tuple(map(question_of, question_rows(str(path))))


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
    fact = f"{where}: the context does not hold its 'text' at its 'answer_start': {str(item)[:60]}"
    advice = "an answer is a piece of it, and its start counts characters from 0"
    if not isinstance(text, str) or type(start) is not int or not text.strip() or start < 0:
        raise UserError(fact, advice)
    need(context.startswith(text, start), fact, advice)
    return Answer(text.strip(), start + len(text) - len(text.lstrip()))


def answering_of(
    name: str, train: tuple[Question, ...], validation: tuple[Question, ...] = (), **more: Any
) -> TaskData:
    """A task of questions. validation: none if the first part is to be split. If some validation
    questions have no answer, the metrics are SQuAD 2.0's. more: further fields of the task."""
    shared = {q.context for q in train} & {q.context for q in validation}
    note = f"{len(shared):,} contexts of validation questions also occur in the training set"
    more["notes"] = (*more.get("notes", ()), *[f"{note}. Scores are optimistic."] * bool(shared))
    validation = validation or train
    answered = sum(bool(q.answers) for q in validation)
    metrics = TASKS["squad1" if answered == len(validation) else "squad2"].metrics
    if not answered:
        metrics = tuple(m for m in metrics if not m.startswith("has_answer"))
    parts: dict[str, Any] = {"train": train, "validation": validation}
    return TaskData(name=name, kind="answering", metrics=metrics, **parts, **more)


# ------------------------------------------------------------------ own files


def read_own(options: FinetuneConfig) -> TaskData:
    """A task of the user's own files. Without a validation file, the validation examples are split
    off, or with no share given, they are the training examples. Raises UserError naming file and
    line."""
    path, fraction = options.train_file or "", options.validation_fraction
    files = [path]
    if options.validation_file is not None and fraction is None:
        files.append(options.validation_file)
    kind = options.problem_type
    kind = _kind_of_file(path) if kind == "auto" else kind
    name = _name_of(Path(path))
    if kind in ("tagging", "answering"):
        chosen(options.metrics, kind)
    if kind == "answering":
        train, *validation = map(read_questions, files)
        task = answering_of(name, train, *validation, epochs=2, min_updates=MIN_UPDATES)
    elif kind == "tagging":
        word, tag = options.text_column, options.label_column
        parts = [read_sentences(path, word=word, tag=tag) for path in files]
        shared = _shared(*([sentence.words for sentence in part] for part in parts))
        task = tagging_of(name, parts[0], parts[-1], epochs=OWN_EPOCHS, notes=shared)
    else:
        task = _texts(files, name, kind, options)
    return validated(task if fraction is None else split(task, fraction, seed=options.seed))


def _kind_of_file(path: str) -> Kind | Literal["auto"]:
    """What the ending, or the names of the columns, show; otherwise auto."""
    ending = ending_of(path)
    if ending == ".json":
        return "answering"
    if ending in (*COLUMN_FILES, ".txt") or (ending == ".tsv" and holds_words(path)):
        return "tagging"
    keys = set(next((row.cells for row in rows(path)), ())) if ending in WITH_LISTS else set()
    if {"context", "question"} <= keys:
        return "answering"
    return "tagging" if keys & set(TOKENS) and keys & set(TAGS) else "auto"


def _name_of(train_file: Path) -> str:
    """The name of the task: that of the file, or of its folder if the file's name tells nothing.
    Under a known name, the report would compare it with published scores."""
    name = train_file.name.split(".")[0]
    if name.lower() in ("train", "training", "train_data", "data"):
        name = train_file.resolve().parent.name or name
    return f"own-{name}" if name.lower() in TASKS else name


def _shared(train: Iterable[Hashable], validation: Sequence[Hashable] = ()) -> tuple[str, ...]:
    """A note on validation texts that training has, too. validation: none if it is to be split
    off."""
    known = set(train)
    shared = sum(text in known for text in validation)
    note = f"{shared:,} of {len(validation):,} validation examples also occur in the training set"
    return (f"{note}. Scores are optimistic.",) if shared else ()


# ------------------------------------------------------------------ own texts


def _texts(files: Sequence[str], name: str, wanted: str, options: FinetuneConfig) -> TaskData:
    """A task of texts, or pairs of them. wanted: the kind of label, or auto."""
    tables = [list(rows(path, header=options.header)) for path in files]
    columns = {each: getattr(options, f"{each}_column") for each in ("text", "pair", "label")}
    found = labelled_columns(files[0], tables[0], **columns)
    text, pair, labels = found
    notes = [_about_columns(tables[0][0], text, pair, labels)]
    read = [[(row, _label_of(row, labels, wanted)) for row in table] for table in tables]
    parts = [[(row, label) for row, label in part if label is not None] for part in read]
    if out := sum(map(len, read)) - sum(map(len, parts)):
        notes.append(f"{out:,} examples without a label are left out")
    for path, part in zip(files, parts, strict=True):
        need(bool(part), f"{path}: no example has a label, so there is nothing to learn")
    kind = _kind_of(parts[0]) if wanted == "auto" else cast(Kind, wanted)
    names, spelt = _classes(parts[0], labels)
    names = [] if kind == "regression" else names
    numbers = {each: number for number, each in enumerate(names)}

    def number(row: Row, value: str) -> Any:
        found = number_of(value) if kind == "regression" else numbers.get(value)
        what = f"none of the classes {first(names)}" if names else "not a number"
        known = found is not None and math.isfinite(found)
        need(known, f"{row.where}: label {value[:40]!r} is {what}")
        return found

    def example(row: Row, label: Label) -> Example:
        fact = f"{row.where}: several labels. Give --problem-type multilabel"
        need(kind == "multilabel" or not label.listed, fact)
        both = row.text(text), None if pair is None else row.text(pair)
        held = sorted({number(row, value) for value in spelt(label.held)})
        if kind != "multilabel":
            return Example(*both, held[0])
        return Example(*both, tuple(held), tuple(sorted(numbers[name] for name in label.unknown)))

    examples = [tuple(example(*each) for each in part) for part in parts]
    for path, part in zip(files, examples, strict=True):
        given = any((e.text + (e.pair or "")).strip() for e in part)
        need(given, f"{path}: every text ({text!r}) is empty; is another column meant?")
    both = ([(e.text, e.pair) for e in part] for part in examples)
    about = f"{len(names):,} classes ({first(names)})"
    if kind == "regression":
        values: list[Any] = [example.label for example in examples[0]]
        about = f"labels from {min(values):g} to {max(values):g}"
    fact = f"--metrics f1 is for two classes, and {files[0]} has {len(names):,}. Take macro_f1"
    need("f1" not in options.metrics or kind != "classification" or len(names) == 2, fact)
    return TaskData(
        name=name,
        kind=kind,
        labels=tuple(names),
        metrics=chosen(options.metrics, kind) or OWN_METRICS[kind],
        epochs=OWN_EPOCHS,
        train=examples[0],
        validation=examples[-1],
        min_updates=MIN_UPDATES,
        notes=(*_shared(*both), *notes, f"task: {kind}, {about}"),
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
        marks = {column: _written(row.value(column)).lower() for column in columns}
        odd = [column for column in columns if marks[column] not in (*_MARKS, *_UNKNOWN)]
        need(not odd, f"{row.where}: {', '.join(map(repr, odd))} must be 0, 1 or empty (not known)")
        held = [column for column in columns if _MARKS.get(marks[column])]
        unknown = [column for column in columns if marks[column] in _UNKNOWN]
        return Label(held, listed=True, unknown=unknown) if len(unknown) < len(columns) else None
    value = row.value(columns[0])
    written = _written(value)
    if written.startswith("[") and wanted in ("auto", "multilabel"):
        with suppress(ValueError, SyntaxError):  # otherwise it is a name
            value = ast.literal_eval(written)
    elif wanted == "multilabel" and isinstance(value, str) and written.lower() != "nan":
        value = [part for part in value.split("|") if part.strip()]
    listed = isinstance(value, list)
    given = value if listed else [value]
    known = value is None or all(isinstance(each, str | int | float) for each in given)
    fact = f"{row.where}: {columns[0]!r} must be a text, a number, or a list of them"
    need(known, f"{fact}, not {written[:40]}")
    if not listed and written.lower() in _UNKNOWN:
        return None
    return Label(list(map(_written, given)), listed)


def _written(value: Any) -> str:
    if value is None:
        return "nan"
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


def _kind_of(part: Part) -> Kind:
    """Decimal numbers are values, but two whole ones (0.0 and 1.0) are classes. Raises UserError
    where most labels are decimal numbers and some are not: one such cell would make a class of each
    number."""
    if any(label.listed for _, label in part):
        return "multilabel"
    values = [label.held[0] for _, label in part]
    numbers = [number_of(value) for value in values]
    if None not in numbers:
        two = len(set(numbers)) == 2 and all(cast(float, n).is_integer() for n in numbers)
        return "classification" if two or all(map(_WHOLE.fullmatch, values)) else "regression"
    # As written for people: 0,5 and 10.5 %.
    bare = [value.replace(",", ".").rstrip(" %") for value in values]
    alike = [value for value in bare if number_of(value) is not None]
    decimal = [value for value in alike if not _WHOLE.fullmatch(value)]
    (where, *_), odd = part[numbers.index(None)][0], values[numbers.index(None)]
    fact = f"{where}: label {odd[:40]!r} is not a number, and most others are"
    few = len(alike) < MOST * len(part) or len(decimal) < SOME * len(part)
    advice = "write numbers as 0.5, or give --problem-type classification if labels are names"
    need(few, fact, advice)
    return "classification"


def _classes(
    part: Part, columns: list[str]
) -> tuple[list[str], Callable[[list[str]], Sequence[str]]]:
    """The names of all classes, and the function from what is written to names.

    Lists that hold only 0 and 1 and have one length are vectors with a place for each class
    (multi-hot). Where all names are whole numbers, 1.0 is 1: pandas writes so where other cells are
    empty.
    """
    size = len(part[0][1].held)
    alike = all(label.listed and len(label.held) == size > 1 for _, label in part)
    values = {value for _, label in part for value in label.held}
    hot = alike and len(columns) == 1 and all(value.lower() in _MARKS for value in values)
    numbers = [number_of(value) for value in values]
    whole = all(number is not None and number.is_integer() for number in numbers)

    def spelt(held: list[str]) -> Sequence[str]:
        if hot and len(held) == size and all(mark.lower() in _MARKS for mark in held):
            return [f"label_{k}" for k, mark in enumerate(held) if _MARKS[mark.lower()]]
        return [value.removesuffix(".0") if whole else value for value in held]

    if len(columns) > 1:
        return columns, list
    names = [f"label_{k}" for k in range(size)] if hot else sorted(spelt([*values]), key=_order)
    return list(dict.fromkeys(names)), spelt


def _order(name: str) -> tuple[float, str]:
    return (int(name), name) if _WHOLE.fullmatch(name) else (math.inf, name)
