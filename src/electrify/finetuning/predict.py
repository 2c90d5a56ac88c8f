"""`electrify predict`: a fine-tuned model on files of any size, in bounded memory, or on a list of
texts."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..console import harmless
from ..errors import UserError
from ..export.places import check_place
from ..files import written
from ..progress import Progress, duration, say
from ..scoring.given import given_texts
from .new_texts import BLOCK_ITEMS, Files, Head, Item
from .saved import kept, kind_in, pairs_in
from .sentences import TOKENS
from .tables import ending_of
from .tasks import MAX_SEQ_LENGTH, Example, Question, Sentence

if TYPE_CHECKING:
    from .options import EmbedConfig, PredictConfig

MEGABYTE = 1e6
BLOCK_PROBABILITIES = 1 << 20
"""Probabilities of all labels that are held at once."""
USED_BY = {
    "threshold": ("multilabel",),
    "no_answer_threshold": ("answering",),
    "probabilities": ("classification", "multilabel"),
}
"""Options that are not for every kind of task."""
_BREAKS = str.maketrans("\t\n\r", "   ")


# ------------------------------------------------------------------ predictions


@dataclass(frozen=True)
class Labelled:
    """The most probable class of a text, and the probability of each class."""

    label: str
    probability: float
    probabilities: dict[str, float]

    def columns(self) -> dict[str, Any]:
        return {"predicted_label": self.label, "probability": rounded(self.probability)}


@dataclass(frozen=True)
class Several:
    """The labels of a text whose probability is above the threshold, and the probability of each
    label."""

    labels: tuple[str, ...]
    probabilities: dict[str, float]

    def columns(self) -> dict[str, Any]:
        sure = [rounded(self.probabilities[label]) for label in self.labels]
        return {"predicted_labels": list(self.labels), "probability": sure}


@dataclass(frozen=True)
class Value:
    """A regression's value for a text."""

    value: float

    def columns(self) -> dict[str, Any]:
        return {"predicted_value": rounded(self.value)}


@dataclass(frozen=True)
class Tagged:
    """The words of a sentence with a tag each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]

    def columns(self) -> dict[str, Any]:
        return {"words": list(self.words), "predicted_tags": list(self.tags)}


@dataclass(frozen=True)
class Answered:
    """The answer to a question, "" for none. score: the sum of its logits, None if the context has
    no words. no_answer_score: the higher, the less likely the context holds an answer."""

    answer: str
    score: float | None
    no_answer_score: float

    def columns(self) -> dict[str, Any]:
        return {
            "predicted_answer": self.answer,
            "answer_score": None if self.score is None else rounded(self.score),
            "no_answer_score": rounded(self.no_answer_score),
        }


Prediction = Labelled | Several | Value | Tagged | Answered


def rounded(number: float) -> float:
    """To seven digits, the precision of float32."""
    return float(f"{number:.7g}")


class Predictor:
    """A fine-tuned model: examples -> predictions."""

    def __init__(self, model: str, options: PredictConfig) -> None:
        """Loads the model. Raises UserError if that fails, or for an option of another kind."""
        from . import loop
        from .answering import Answering
        from .model import computing_in_bf16, load_finetuned
        from .tagging import Tagging
        from .texts import Texts, Truncation

        self.device = loop.device_named(options.device)
        self.bf16 = loop.computes_in_bf16(options.bf16, self.device)
        self.model = load_finetuned(model, device=self.device)
        self.kind = self.model.kind
        must_be_for(options, self.kind)
        if self.bf16:
            computing_in_bf16(self.model.net.encoder)
        noted, reader, labels = self.model.reading, self.model.reader, self.model.labels
        self.threshold = options.threshold or 0.5
        given = options.no_answer_threshold
        self.none_above = noted.no_answer_threshold if given is None else given
        wanted = options.max_seq_length or noted.max_seq_length
        length = reader.fitting(wanted, MAX_SEQ_LENGTH[self.kind])
        how: dict[str, Any] = {"max_seq_length": length, "device": self.device}
        match self.kind:
            case "tagging":
                self.problem: Any = Tagging(reader, labels, **how)
            case "answering":
                how |= {"doc_stride": noted.doc_stride, "longest_answer": noted.max_answer_length}
                self.problem = Answering(reader, answerless=self.none_above is not None, **how)
            case _:
                self.problem = Texts(reader, self.kind, labels, **how)
        self.truncation = Truncation(reader, length)
        self.long_questions: list[int] = []
        """Lengths in tokens of the questions that were truncated."""

    def predict(
        self, examples: Sequence[Any], *, after: Callable[[float], None] = lambda share: None
    ) -> list[Prediction]:
        """A prediction for each example, whose label or tags are ignored. after: called with the
        share of the work that each forward pass did."""
        from . import loop

        full: list[Any] = [e for e in examples if not isinstance(e, Sentence) or e.words]
        if not full:
            return [Tagged((), ()) for _ in examples]
        net, problem = self.model.net, self.problem
        rows = problem.rows(full)
        number = len(rows.lengths_N)
        outputs = loop.predict(net, problem, rows, after=lambda done: after(done / number))
        if self.kind == "tagging":
            tags = iter(problem.tags(full, rows, outputs))
            return [Tagged(e.words, next(tags) if e.words else ()) for e in examples]
        if self.kind == "answering":
            self.long_questions += problem.truncated_questions(full)
            return list(map(self._answer, *problem.best(full, rows, outputs)))
        self.truncation.add(full, rows.lengths_N.tolist())
        if self.kind == "regression":
            return [Value(value) for value in problem.values(outputs)]
        chosen = problem.chosen(outputs, threshold=self.threshold).tolist()
        return list(map(self._labels, chosen, problem.probabilities(outputs).tolist()))

    def _labels(self, chosen: Any, probabilities: list[float]) -> Prediction:
        names = self.model.labels
        each = dict(zip(names, probabilities, strict=True))
        if self.kind == "multilabel":
            return Several(tuple(n for n, on in zip(names, chosen, strict=True) if on), each)
        return Labelled(names[chosen], probabilities[chosen], each)

    def _answer(self, guesses: list[Any], none: float) -> Prediction:
        if not guesses:
            return Answered("", None, none)
        silent = self.none_above is not None and none > self.none_above
        return Answered("" if silent else guesses[0].text, guesses[0].score, none)

    def notes(self) -> list[str]:
        """Warnings about truncated texts and questions."""
        notes = [self.truncation.text()]
        if long := self.long_questions:
            notes.append(f"{len(long):,} questions were truncated, of up to {max(long):,} tokens")
        return [note for note in notes if note]


def must_be_for(options: PredictConfig, kind: str) -> None:
    """Raises UserError for an option that a model of this kind does not use."""
    for name, kinds in USED_BY.items():
        if getattr(options, name) not in (None, False) and kind not in kinds:
            flag = f"--{name.replace('_', '-')}"
            raise UserError(f"{flag} is for {' or '.join(kinds)}. {options.model} is for {kind}")


# ------------------------------------------------------------------ files


@dataclass(frozen=True)
class Summary:
    """What `predict` or `embed` did."""

    texts: int
    seconds: float
    output_file: str | None
    facts: dict[str, Any]

    def text(self) -> str:
        return f"{self.output_file}: {self.texts:,} texts in {duration(self.seconds)}"

    def as_json(self) -> str:
        known = {"texts": self.texts, "seconds": round(self.seconds, 3)}
        return json.dumps(known | {"output_file": self.output_file} | self.facts)


def predict_files(options: PredictConfig) -> Summary:
    """Writes a prediction for every text of the files, in order, into the output file, whole or not
    at all, or to standard output. Mistakes in files and options are reported before the model is
    loaded. Raises UserError."""
    began = time.monotonic()
    model = kept(options.model)
    check_place(model)
    must_be_free(options)
    kind = kind_in(model)
    if kind is not None:  # that of a model on the Hub is known later
        must_be_for(options, kind)
        _files(options, kind, pairs_in(model)).check()
    predictor = Predictor(model, options)
    files = _files(options, predictor.kind, predictor.model.reading.pairs)
    head = files.check()
    layout = Layout(options, head)
    for note in _about(head, options, trained=predictor.model.reading.pairs):
        say(note)
    reader, number = predictor.model.reader, 0
    most = max(1, min(BLOCK_ITEMS, BLOCK_PROBABILITIES // max(1, len(predictor.model.labels))))
    with (
        chosen_threads(options, reader, predictor.device, bf16=predictor.bf16),
        sink(options.output_file) as write,
    ):
        for block, found in in_blocks(files, predictor.predict, reader, title="predict", most=most):
            write(layout.text(block, found))
            number += len(block)
    for note in (*predictor.notes(), *layout.notes()):
        say(note)
    facts = predictor.truncation.facts() if predictor.truncation.texts else {}
    return Summary(number, time.monotonic() - began, options.output_file, facts)


def _files(options: PredictConfig, kind: Any, pairs: bool | None) -> Files:
    columns = {"text_column": options.text_column, "pair_column": options.pair_column}
    return Files(options.files, kind, **columns, header=options.header, pairs=pairs)


@contextmanager
def chosen_threads(
    options: PredictConfig | EmbedConfig, reader: Any, device: Any, *, bf16: bool
) -> Iterator[None]:
    """Computes with the threads of --threads."""
    from ..train.machine import choose, computing_with
    from .loop import most_tokens

    tokens = most_tokens(device)
    threads = choose(options.threads, device=device, width=reader.width, tokens=tokens, bf16=bf16)
    if threads.text():
        say(threads.text())
    with computing_with(threads):
        yield


def in_blocks(
    files: Files, answer: Callable[..., Any], reader: Any, *, title: str, most: int = BLOCK_ITEMS
) -> Iterator[tuple[list[Item], Any]]:
    """Every block of items with what `answer` gives for its examples. Shows a progress bar, and
    warns if many words of the first block are unknown to the tokenizer."""
    from .model import unknown_note

    files.bytes_read = before = 0
    with Progress(files.size / MEGABYTE, title=title, unit="MB") as progress:
        for block in files.blocks(most):
            examples: list[Any] = [item.example for item in block]
            if before == 0 and (note := unknown_note(reader, texts_in(examples))):
                say(note)
            read = (files.bytes_read - before) / MEGABYTE
            before = files.bytes_read
            yield (
                block,
                answer(examples, after=lambda part, read=read: progress.advance(part * read)),
            )


def texts_in(examples: Iterable[Any]) -> Iterator[str]:
    """The texts of examples, each with its pair."""
    for example in examples:
        match example:
            case Example(text=text, pair=pair):
                yield f"{text} {pair or ''}"
            case Sentence(words=words):
                yield " ".join(words)
            case Question(question=question, context=context):
                yield f"{question} {context}"


def must_be_free(options: PredictConfig | EmbedConfig) -> None:
    """Raises UserError if the output file cannot be written, exists, or is one of the inputs."""
    if options.output_file is None:
        return
    path = Path(options.output_file)
    if not path.parent.is_dir():
        raise UserError(f"{path.parent}: no such folder. Make it first")
    if path.is_dir():
        raise UserError(f"{path} is a folder. Give the name of a file")
    if any(os.path.exists(f) and path.exists() and path.samefile(f) for f in options.files):
        raise UserError(f"{path} is an input. Choose another --output-file")
    if path.exists() and not options.overwrite:
        raise UserError(f"{path} exists. Choose another --output-file or --overwrite")


def _about(head: Head, options: PredictConfig, *, trained: bool | None) -> Iterator[str]:
    """Notes on the files before they are read. trained: whether on pairs, None if not known."""
    if trained is False and head.pair:
        yield f"warning: {head.path} has a second text. The model was trained on single texts"
    elif trained is False and head.unread:
        what = (
            f"{head.path}: {head.unread} is not read, since the model was trained on single texts"
        )
        yield f"{what}. To use it, give --pair-column"
    elif trained and not head.pair:
        what = f"the model was trained on pairs of texts, and {head.path} has no second one"
        yield f"warning: {what}. Name its column with --pair-column"
    for one in (head, *head.others):
        if one.guessed and (options.text_column is None or ending_of(one.path) == ".tsv"):
            what = f"{one.path} is read as columns, the words in {options.text_column or 0}"
            yield f"{what}. If it holds texts, give them as .jsonl or .csv"


# ------------------------------------------------------------------ output


@contextmanager
def sink(output_file: str | None) -> Iterator[Callable[[str], object]]:
    """Takes text for the file, which appears when the block ends without an error, or for standard
    output."""
    if output_file is None:
        yield sys.stdout.write
        return
    with (
        written(Path(output_file)) as part,
        part.open("w", encoding="utf-8", newline="") as stream,
    ):
        yield stream.write


class Layout:
    """How predictions are written: the input's columns, then those of the prediction. For tags, a
    .tsv repeats the lines of a column file with the tag appended, a .csv has a row a word."""

    def __init__(self, options: PredictConfig, head: Head) -> None:
        """Raises UserError if the columns of several files do not fit into one table."""
        self.shown = options.output_file is None
        self.ending = Path(options.output_file or "").suffix.lower() or ".tsv"
        if self.shown and options.json:
            self.ending = ".jsonl"
        self.columns = dict.fromkeys(head.columns)
        self.every = options.probabilities
        self.blanks = 0  # cells of a .tsv in which a blank replaced a tab or line break
        self.left_out: tuple[str, ...] = ()  # columns for which a .tsv of words has no place
        self._beside: tuple[str, ...] = ()
        self._number = 0
        repeated = self.ending == ".tsv" and all(one.lines for one in (head, *head.others))
        if self.ending != ".jsonl" and not repeated:
            for other in head.others:
                must_fit(other.columns, self.columns, other.path, ending=".jsonl")

    def text(self, items: list[Item], predictions: list[Prediction]) -> str:
        """What the file holds for some items. The first call includes the header."""
        rows = []
        for item, found in zip(items, predictions, strict=True):
            self._number += 1
            rows += (
                self._words(item, found) if isinstance(found, Tagged) else self._row(item, found)
            )
        if self.ending == ".csv":
            table = io.StringIO()
            csv.writer(table).writerows(rows)  # its line end makes it quote carriage returns
            return table.getvalue()
        if self.ending == ".tsv":
            rows = ["\t".join(map(self._cell, row)) for row in rows]
        return "".join(f"{row}\n" for row in rows)

    def _row(self, item: Item, found: Prediction) -> Iterator[Any]:
        """The row of an item, for the first one also the header."""
        added = found.columns()
        if isinstance(found, Tagged) and any(
            isinstance(item.columns.get(name), list) and name not in item.beside for name in TOKENS
        ):
            added.pop("words")
        if self.every and isinstance(found, Labelled | Several):
            every = {label: rounded(p) for label, p in found.probabilities.items()}
            if self.ending == ".jsonl":
                added["probabilities"] = every
            else:
                added |= {f"probability_{label}": p for label, p in every.items()}
        must_be_new(added, item.columns)
        if self.ending == ".jsonl":
            yield json.dumps(item.columns | added, ensure_ascii=self.shown, default=str)
            return
        if self._number == 1:
            yield [*self.columns, *added]
        must_fit(item.columns, self.columns, ending=".jsonl")
        yield [*map(as_text, map(item.columns.get, self.columns)), *map(as_text, added.values())]

    def _words(self, item: Item, found: Tagged) -> Iterator[Any]:
        if self.ending == ".jsonl":
            yield from self._row(item, found)
        elif self.ending == ".tsv":  # a blank line ends a sentence
            if not item.cells:
                self.left_out = self.left_out or item.beside
            cells = item.cells or [(word,) for word in found.words]
            yield from ([*row, tag] for row, tag in zip(cells, found.tags, strict=True))
            yield []
        else:
            names = ["sentence", "word", "predicted_tag"]
            if self._number == 1:
                self._beside = item.beside
                must_be_new(names, item.beside)
                yield [*names, *item.beside]
            must_fit(item.columns, self.columns, ending=".jsonl")
            values: list[Any] = [item.columns.get(name) for name in self._beside]
            for k, (word, tag) in enumerate(zip(found.words, found.tags, strict=True)):
                own = [column[k] if item.cells and column else column for column in values]
                yield [self._number, word, tag, *map(as_text, own)]

    def _cell(self, text: str) -> str:
        clean = text.translate(_BREAKS)
        self.blanks += clean != text
        return harmless(clean) if self.shown else clean

    def notes(self) -> Iterator[str]:
        if self.left_out:
            names = ", ".join(map(repr, self.left_out))
            way = "--json" if self.shown else ".csv or .jsonl"
            yield f"columns that a line with a word and its tag does not hold: {names}. Use {way}"
        if self.blanks and not self.shown:
            yield f"{self.blanks:,} cells held a tab or a line break. The .tsv has a blank there"


def must_be_new(added: Iterable[str], columns: Iterable[str]) -> None:
    """Raises UserError if the input has a column with the name of an added one."""
    taken = next((name for name in added if name in columns), None)
    if taken is not None:
        raise UserError(f"the input already has a column {taken!r}. Rename it")


def must_fit(
    columns: Iterable[str], known: Container[str], where: str = "a row", *, ending: str
) -> None:
    """Raises UserError for a column that the first row does not have, so that one table cannot hold
    it. ending: of a file that can."""
    odd = next((name for name in columns if name not in known), None)
    if odd is not None:
        what = f"{where} has a column {odd!r} that the first row does not have"
        raise UserError(f"{what}. Write {ending}, or run a command for each file")


def as_text(value: Any) -> str:
    """A value in a cell of a table: nothing for null, a list with bars between."""
    match value:
        case None:
            return ""
        case list() if all(isinstance(one, str | int | float) for one in value):
            return "|".join(map(str, value))
        case bool() | int() | float() | list() | dict():
            return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)  # of parquet also times


# ------------------------------------------------------------------ from Python


def predict(
    model: str | os.PathLike[str],
    texts: Iterable[Any],
    *,
    pairs: Iterable[str] | None = None,
    max_seq_length: int | None = None,
    threshold: float | None = None,
    no_answer_threshold: float | None = None,
    device: str = "auto",
    bf16: str = "auto",
) -> list[Prediction]:
    """The predictions of a fine-tuned model: Labelled, Several, Value, Tagged or Answered objects.

    Args:
        texts: Texts; for a tagger lists of words; for question answering the questions.
        pairs: The second texts, or the contexts of the questions.

    The other arguments are those of `PredictConfig`. Raises UserError.
    """
    from .model import unknown_note
    from .options import PredictConfig

    options = PredictConfig(
        model=os.fspath(model),
        files=(),
        max_seq_length=max_seq_length,
        threshold=threshold,
        no_answer_threshold=no_answer_threshold,
        device=device,
        bf16=bf16,  # type: ignore[arg-type]
    )
    if isinstance(texts, str):
        raise UserError("texts must be a list, not one text")
    predictor = Predictor(kept(options.model), options)
    examples = _examples(predictor.kind, list(texts), pairs)
    trained = predictor.model.reading.pairs
    if trained is not None and trained != (pairs is not None):
        on, given = ("pairs of texts", "no pairs") if trained else ("single texts", "pairs")
        say(f"warning: the model was trained on {on}, and {given} are given")
    found = predictor.predict(examples) if examples else []
    unknown = unknown_note(predictor.model.reader, texts_in(examples))
    for note in (*[unknown] * bool(unknown), *predictor.notes()):
        say(note)
    return found


def _examples(kind: str, texts: list[Any], pairs: Iterable[str] | None) -> list[Any]:
    """What a caller in Python gives, as examples. Raises UserError."""
    if kind == "tagging":
        if pairs is not None:
            raise UserError("pairs are for texts, and this model tags words. Leave them out")
        for k, words in enumerate(texts, 1):
            if isinstance(words, str) or not all(isinstance(w, str) and w.strip() for w in words):
                raise UserError(f"text {k} must be a list of words, since the model tags words")
        return [Sentence(tuple(words), ()) for words in texts]
    texts = given_texts(texts)
    if kind == "answering" and pairs is None:
        raise UserError("the model answers questions. Give their contexts as pairs")
    others: list[Any] = [None] * len(texts) if pairs is None else given_texts(pairs)
    if len(others) != len(texts):
        raise UserError(f"{len(texts)} texts and {len(others)} pairs: there must be one for each")
    both = zip(texts, others, strict=True)
    if kind == "answering":
        return [Question("", question, context, ()) for question, context in both]
    label = () if kind == "multilabel" else 0.0
    return [Example(text, pair, label) for text, pair in both]
