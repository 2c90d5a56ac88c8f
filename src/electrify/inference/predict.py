"""`electrify predict`: a fine-tuned model on files of any size, in bounded memory, or on texts that
a program gives."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..downstream import loop
from ..downstream.read.files import ending_of
from ..errors import UserError
from ..progress import Progress, duration, say
from ..scoring.given import given_texts
from ..text.small_files import must_be_characters
from ..train.machine import choose, computing_with
from .options import PredictConfig
from .output import Layout, must_be_free, sink
from .predictions import Prediction
from .predictor import Predictor, as_example
from .source import BLOCK_ITEMS, Files, Head, Item

MEGABYTE = 1e6
BLOCK_PROBABILITIES = 1 << 20  # probabilities, of all labels, that are held at once


@dataclass(frozen=True)
class Summary:
    """What `predict` or `embed` did."""

    texts: int
    seconds: float
    output_file: str | None
    facts: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        return f"{self.output_file}: {self.texts:,} texts in {duration(self.seconds)}"

    def as_json(self) -> str:
        known = {"texts": self.texts, "seconds": round(self.seconds, 3)}
        return json.dumps(known | {"output_file": self.output_file} | self.facts)


def predict_files(options: PredictConfig) -> Summary:
    """Predicts for every text of the files, in their order, and writes the predictions into the
    output file, whole or not at all, or to standard output.

    Raises UserError for a model that was not fine-tuned, files that cannot be read, and an output
    file that is there already.
    """
    must_be_free(options)
    began = time.monotonic()
    predictor = Predictor(options)
    files = Files(options, predictor.saved.kind, pairs=predictor.saved.reading.pairs)
    head = files.check()
    layout = Layout(
        _ending(options),
        head,
        labels=predictor.saved.labels,
        every=options.probabilities,
        shown=options.output_file is None,
    )
    for about in _about(head, options, trained=predictor.saved.reading.pairs):
        say(about)
    number = _run(predictor, files, layout, options)
    notes = tuple(note for note in (predictor.cut.text(), _cut_questions(predictor)) if note)
    if layout.left_out:
        names = ", ".join(map(repr, layout.left_out))
        columns = "columns" if len(layout.left_out) > 1 else "column"
        way = "--json has" if options.output_file is None else ".csv and .jsonl have"
        notes += (f"a word and its tag leave no place for the {columns} {names}; {way} one",)
    if layout.blanks and options.output_file is not None:
        notes += (f"{layout.blanks:,} cells held a tab or a line break: .tsv has a blank there",)
    for note in notes:
        say(note)
    facts = predictor.cut.facts() if predictor.kind not in ("tagging", "answering") else {}
    return Summary(number, time.monotonic() - began, options.output_file, facts, notes)


def _run(predictor: Predictor, files: Files, layout: Layout, options: PredictConfig) -> int:
    """The number of texts. Reads, predicts and writes one block after the other."""
    most = max(1, min(BLOCK_ITEMS, BLOCK_PROBABILITIES // max(1, len(predictor.saved.labels))))
    threads = choose(
        options.threads,
        device=predictor.device,
        width=predictor.width,
        tokens=loop.most_tokens(predictor.device),
        bf16=predictor.bf16,
    )
    if threads.text():
        say(threads.text())
    number = 0
    files.bytes_read = 0
    with (
        computing_with(threads),
        sink(options.output_file) as write,
        Progress(files.size / MEGABYTE, title="predict", unit="MB") as progress,
    ):
        for block, share in shares(files, most):
            found = predictor.predict(
                [item.example for item in block],
                after=lambda part, share=share: progress.advance(part * share),
            )
            write(layout.text(block, found))
            number += len(block)
    return number


def shares(files: Files, most: int = BLOCK_ITEMS) -> Iterable[tuple[list[Item], float]]:
    """Blocks of items, each with the megabytes of the files that were read for it."""
    before = 0
    for block in files.blocks(most):
        yield block, (files.bytes_read - before) / MEGABYTE
        before = files.bytes_read


def _ending(options: PredictConfig) -> str:
    if options.output_file is None:
        return ".jsonl" if options.json else ".tsv"
    return Path(options.output_file).suffix.lower()


def _about(head: Head, options: PredictConfig, *, trained: bool | None) -> Iterator[str]:
    """What to say of the files before they are read."""
    pairs = _about_pairs(head, trained=trained)
    if pairs:
        yield pairs
    for one in (head, *head.others):
        column = options.text_column
        if one.guessed and (column is None or ending_of(one.path) == ".tsv"):
            place = "the first" if column is None else f"number {column}"
            yield (
                f"{one.path} is read as columns, the words in {place}; if it holds texts, "
                "give them as .jsonl or .csv"
            )


def _about_pairs(head: Head, *, trained: bool | None) -> str:
    """A warning if the model reads other inputs than it was trained on, and a note if a second text
    is left out. trained: whether on pairs; None if that is not known."""
    if trained is False and head.pair:
        return f"warning: {head.path} has a second text, and the model was trained on single ones"
    if trained is False and head.unread:
        return (
            f"{head.path}: {head.unread} is not read, since the model was trained on single texts; "
            "--pair-column would give it to the model"
        )
    if trained and not head.pair:
        return (
            f"warning: the model was trained on pairs of texts, and {head.path} has no second one; "
            "name its column with --pair-column"
        )
    return ""


def _cut_questions(predictor: Predictor) -> str:
    lengths = predictor.cut_questions
    if not lengths:
        return ""
    return f"{len(lengths):,} questions were cut; the longest has {max(lengths):,} tokens"


def predict(
    model: str,
    texts: Iterable[Any],
    *,
    pairs: Iterable[str] | None = None,
    max_seq_length: int | None = None,
    threshold: float | None = None,
    no_answer_threshold: float | None = None,
    device: str = "auto",
    bf16: str = "auto",
) -> list[Prediction]:
    """What a fine-tuned model says about each text.

    texts: texts; for a tagger lists of words; for question answering the questions. pairs: the
    second texts, or the contexts of the questions. The other arguments are those of
    `PredictConfig`. Returns Labelled, Several, Value, Tagged or Answered objects, see
    inference/predictions.py. Raises UserError.
    """
    options = PredictConfig(
        model=model,
        files=(),
        max_seq_length=max_seq_length,
        threshold=threshold,
        no_answer_threshold=no_answer_threshold,
        device=device,
        bf16=bf16,  # type: ignore[arg-type]
    )
    if isinstance(texts, str):
        raise UserError("texts must be a list, not one text")
    predictor = Predictor(options)
    examples = _examples(predictor.kind, list(texts), pairs)
    trained = predictor.saved.reading.pairs
    if trained is not None and trained != (pairs is not None):
        on, given = ("pairs of texts", "no pairs") if trained else ("single texts", "pairs")
        say(f"warning: the model was trained on {on}, and {given} are given")
    found = predictor.predict(examples) if examples else []
    if predictor.cut.text():
        say(predictor.cut.text())
    return found


def _examples(kind: str, given: list[Any], pairs: Iterable[str] | None) -> list[Any]:
    """What a caller in Python gives, as examples. Raises UserError."""
    if kind == "tagging" and pairs is not None:
        raise UserError("pairs are for texts, and this model tags words: leave them out")
    texts = _of_words(given) if kind == "tagging" else given_texts(given)
    others: list[Any] = [None] * len(texts) if pairs is None else given_texts(pairs)
    if len(others) != len(texts):
        raise UserError(f"{len(texts)} texts and {len(others)} pairs: there must be one for each")
    if kind == "answering" and pairs is None:
        raise UserError("the model answers questions: give their contexts as pairs")
    return [as_example(kind, a, b) for a, b in zip(texts, others, strict=True)]


def _of_words(texts: list[Any]) -> list[list[str]]:
    """Sentences as lists of words. Raises UserError for anything else."""
    found: list[list[str]] = []
    for i, given in enumerate(texts, 1):
        words = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else None
        if words is None or not all(isinstance(w, str) and w.strip() for w in words):
            raise UserError(f"text {i} must be a list of words, since the model tags words")
        for word in words:
            must_be_characters(word, f"text {i}")
        found.append(words)
    return found
