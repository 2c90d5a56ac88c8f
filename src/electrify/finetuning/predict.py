"""`electrify predict`: a fine-tuned model on files of any size, in bounded memory, or on a list of
texts. A folder with model.onnx is run by onnxruntime, without torch.

Shape suffixes: N texts, C classes.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..errors import need
from ..onnx_models import OnnxModel, is_onnx, probabilities
from ..progress import say
from ..text.streams import ending_of
from ..values import given_texts
from . import encoding, output
from .encoding import Answers, Lists, TextRows
from .new_texts import Files
from .options import FinetuneConfig, PredictConfig
from .output import After, Predicted, rounded
from .tasks import MAX_SEQ_LENGTH, Example, Kind, Question, Sentence, saved

USED_BY = {
    "threshold": ("multilabel",),
    "no_answer_threshold": ("answering",),
    "probabilities": ("classification", "multilabel"),
}
"""Options that are not for every kind of task."""


class Predictor:
    """A fine-tuned model: examples -> predictions. Rows and windows are those of fine-tuning, and
    the logits come from torch, or from onnxruntime."""

    def __init__(self, options: PredictConfig) -> None:
        """Loads the model. Raises UserError if that fails, or for an option of another kind."""
        self.options, what = options, saved(options.model)
        self.kind: Kind = what.kind
        self.labels, self.reading = what.labels, what.reading
        must_be_for(options, self.kind)
        self.device: Any = None
        (self._load_graph if is_onnx(options.model) else self._load_network)()
        wanted = options.max_seq_length or self.reading.get("max_seq_length")
        self.length = encoding.fitting(self.reader, wanted, MAX_SEQ_LENGTH[self.kind])
        self.text_rows = TextRows(self.reader, self.length)

    def _load_network(self) -> None:
        from ..train.machine import pick_device
        from . import loop
        from .model import computing_in_bf16, load_finetuned, probabilities_of

        options = self.options
        self.device = pick_device(options.device)
        self.bf16 = loop.computes_in_bf16(options.bf16, self.device)
        self.reader, net = load_finetuned(options.model, self.kind, device=self.device)
        if self.bf16:
            computing_in_bf16(net.encoder)

        def logits(ids: Lists, types: Lists, each: Any, *, after: After) -> list[Any]:
            rows = loop.Rows.of(self.reader, ids, types)
            return loop.answers(net, rows, lambda batch: [net(batch.inputs)], each, after)

        self.logits, self.sure = logits, partial(probabilities_of, self.kind)

    def _load_graph(self) -> None:
        options = self.options
        plain = options.device in ("auto", "cpu") and options.bf16 != "true"
        fact = f"{options.model} is an ONNX model, which electrify runs on the CPU in float32"
        need(plain, fact)
        self.reader: Any = OnnxModel.of(options.model, options.threads)
        self.logits = self.reader.logits
        self.sure = partial(probabilities, config=self.reader.config, metadata={})

    def __call__(self, examples: list[Any], after: After = lambda _: None) -> list[Predicted]:
        """A prediction for each example, whose label or tags are ignored."""
        if not examples:
            return []
        read = {"tagging": self._tags, "answering": self._answers}
        return read.get(self.kind, self._texts)(examples, after)

    def _texts(self, examples: list[Example], after: After) -> list[Predicted]:
        ids, types = self.text_rows(examples)
        logits_NC = np.stack(self.logits(ids, types, lambda _, logits_C: logits_C, after=after))
        if self.kind == "regression":
            return [{"predicted_value": rounded(value)} for value in logits_NC[:, 0].tolist()]
        chosen = logits_NC.argmax(-1)
        if self.kind == "multilabel":
            threshold = self.options.threshold or 0.5
            chosen = logits_NC > math.log(threshold / (1 - threshold))
        return list(map(self._labels, chosen.tolist(), self.sure(logits_NC).tolist()))

    def _labels(self, chosen: Any, probabilities: list[float]) -> Predicted:
        """chosen: the number of a class, or whether each label applies."""
        sure = dict(zip(self.labels, map(rounded, probabilities), strict=True))
        if self.kind == "multilabel":
            on = [name for name, applies in zip(sure, chosen, strict=True) if applies]
            found: Predicted = {"predicted_labels": on, "probability": [sure[k] for k in on]}
        else:
            label = self.labels[chosen]
            found = {"predicted_label": label, "probability": sure[label]}
        return found | ({"probabilities": sure} if self.options.probabilities else {})

    def _of_rows(self, rows: Iterable[Any], each: Any, after: After) -> tuple[Any, list[Any]]:
        """The spots of rows, and what `each` makes of them and their logits."""
        ids, types, spots = zip(*rows, strict=True)
        found = self.logits(ids, types, lambda k, logits: each(spots[k], logits), after=after)
        return spots, found

    def _tags(self, sentences: list[Sentence], after: After) -> list[Predicted]:
        full, classes = [s for s in sentences if s.words], list[Any]()
        if full:
            rows = encoding.rows_of_words(self.reader, full, self.length)
            _, classes = self._of_rows(rows, encoding.classes_of, after)
        tags = encoding.tags_of(sentences, classes, self.labels)
        return [{"predicted_tags": list(each)} for each in tags]

    def _answers(self, questions: list[Question], after: After) -> list[Predicted]:
        rows = encoding.rows_of_questions(self.reader, questions, self.length)
        parts, spans = self._of_rows(rows, encoding.spans_of, after)
        return list(map(self._answer, encoding.best_answers(questions, parts, spans, alone=False)))

    def _answer(self, answers: Answers) -> Predicted:
        above = self.options.no_answer_threshold
        above = self.reading.get("no_answer_threshold") if above is None else above
        silent = above is not None and answers.none > above
        return {
            "predicted_answer": "" if silent else answers.text,
            "answer_score": rounded(answers.guesses[0].score) if answers.guesses else None,
            "no_answer_score": rounded(answers.none),
        }


def must_be_for(options: PredictConfig, kind: str) -> None:
    """Raises UserError for an option that a model of this kind does not use."""
    for name, kinds in USED_BY.items():
        given = getattr(options, name) not in (None, False)
        fact = f"--{name.replace('_', '-')} is for {' or '.join(kinds)}"
        need(kind in kinds or not given, f"{fact}. {options.model} is for {kind}")


def pairs_warning(trained: bool | None, given: bool) -> str:
    """A warning if a model that was trained on pairs of texts gets single ones, or the reverse.
    trained: None if that is not known."""
    if trained is None or trained == given:
        return ""
    on, gets = ("pairs of texts", "single texts") if trained else ("single texts", "pairs")
    return f"warning: the model was trained on {on} and gets {gets} (--pair-column)"


# ------------------------------------------------------------------ files


def predict_files(options: PredictConfig) -> str:
    """Writes a prediction for every text of the files, in order, into the output file, whole or not
    at all, or to standard output; returns what it did. Mistakes in files and options are reported
    before the model is loaded. Raises UserError."""
    began = time.monotonic()
    output.must_be_ready(options, options.output_file)
    what = saved(options.model)
    trained = what.reading.get("pairs")
    files = Files.of(options, what.kind, pairs=trained, pair_column=options.pair_column)
    firsts = files.check()
    predictor = Predictor(options)
    output.tell([pairs_warning(trained, getattr(firsts[0].example, "pair", None) is not None)])
    for path, item in zip(files.paths, firsts, strict=True):
        if item.lines and ending_of(path) in (".txt", ".tsv"):
            say(f"{path} is read as columns. If it holds texts, give them as .jsonl or .csv")
    output.write_results(options, files, predictor, title="predict")
    output.tell([predictor.text_rows.note()])
    return output.done(options.output_file, files.texts, began)


# ------------------------------------------------------------------ from Python


def load_predictor(model: str | os.PathLike[str], **options: Any) -> Predictor:
    """A model that gives the probability of every label. options: max_seq_length, threshold,
    no_answer_threshold, device, bf16, threads: see `PredictConfig`. Raises UserError."""
    predictor = Predictor(PredictConfig(model=os.fspath(model), files=(), **options))
    if predictor.kind in USED_BY["probabilities"]:
        predictor.options = replace(predictor.options, probabilities=True)
    return predictor


def predict(
    predictor: Predictor, texts: Iterable[Any], *, pairs: Iterable[str] | None = None
) -> list[Predicted]:
    """The predictions for texts: for each a dict of the columns that the command writes. See
    `electrify.predict`. Raises UserError."""
    examples = _examples(predictor.kind, texts, pairs)
    output.tell([pairs_warning(predictor.reading.get("pairs"), pairs is not None)])
    predictor.text_rows.reset()
    measured = predictor.options.threads == "auto"  # not for each call
    with nullcontext() if measured else output.threads_of(predictor.options, predictor):
        found = predictor(examples)
    output.tell([output.unknown_note(predictor, examples), predictor.text_rows.note()])
    return found


def _examples(kind: Kind, texts: Iterable[Any], pairs: Iterable[str] | None) -> list[Any]:
    """What a caller in Python gives, as examples. Raises UserError."""
    if kind == "tagging":
        sentences = list(texts)
        plain = pairs is not None or any(isinstance(words, str) for words in sentences)
        need(not plain, "the model tags words. Give lists of words, and no pairs")
        return [Sentence(tuple(words), ()) for words in sentences]
    texts = given_texts(texts)
    asks = kind == "answering"
    need(not asks or pairs is not None, "the model answers questions. Give their contexts as pairs")
    others: list[Any] = [None] * len(texts) if pairs is None else given_texts(pairs)
    need(len(others) == len(texts), f"{len(texts)} texts, but {len(others)} pairs")
    both = zip(texts, others, strict=True)
    return [Question("", a, b, ()) if asks else Example(a, b) for a, b in both]


def scores(predictor: Predictor, file: str, given: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of a fine-tuned model on the labelled examples of a file. given: the options of
    `finetune` that say how it is read. Raises UserError, also for a class that the model lacks."""
    from . import metrics, read

    if predictor.kind not in ("tagging", "answering"):
        metrics.require()
    how = {"models": (predictor.options.model,), "problem_type": predictor.kind, **given}
    options = FinetuneConfig.of(how | {"train_file": file, "validation_file": file})
    task, labels = read.read_own(options, predictor.labels), predictor.labels
    examples: Any = task.validation
    found = predictor(list(examples))
    if predictor.kind == "answering":
        return metrics.score_answers(examples, [row["predicted_answer"] for row in found])
    if predictor.kind in ("tagging", "regression"):
        column = "predicted_tags" if predictor.kind == "tagging" else "predicted_value"
        return metrics.scores_of(task, examples, [row[column] for row in found])
    sure_NC = np.array([[row["probabilities"][name] for name in labels] for row in found])
    chosen: Any = sure_NC.argmax(1)
    if predictor.kind == "multilabel":
        chosen = [[int(name in row["predicted_labels"]) for name in labels] for row in found]
    return metrics.scores_of(task, examples, chosen, sure_NC)
