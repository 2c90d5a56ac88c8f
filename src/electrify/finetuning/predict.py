"""`electrify predict`: a fine-tuned model on files of any size, in bounded memory, or on a list of
texts. A folder with model.onnx is run by onnxruntime, without torch.

Shape suffixes: N texts, L tokens, C classes.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..errors import need
from ..onnx_models import OnnxModel, is_onnx, probabilities
from ..progress import say
from ..text.streams import ending_of
from ..values import given_texts
from .encoding import Frame, Truncation, fitting, rows_of_texts, rows_of_words
from .new_texts import (
    After,
    Files,
    Prediction,
    done,
    must_be_ready,
    rounded,
    tell,
    unknown_note,
    write_results,
)
from .options import PredictConfig
from .spans import (
    LONGEST_ANSWER,
    N_BEST,
    NEVER,
    Spans,
    answerless,
    best_spans,
    guesses_of,
    rows_of_questions,
)
from .tasks import KEY, MAX_SEQ_LENGTH, Example, Kind, Question, Sentence, config_of, kind_of

USED_BY = {
    "threshold": ("multilabel",),
    "no_answer_threshold": ("answering",),
    "probabilities": ("classification", "multilabel"),
}
"""Options that are not for every kind of task."""


# ------------------------------------------------------------------ predictions


class Predictor:
    """A fine-tuned model: examples -> predictions."""

    def __init__(self, options: PredictConfig) -> None:
        """Loads the model. Raises UserError if that fails, or for an option of another kind."""
        from ..train.machine import pick_device
        from . import loop
        from .answering import Answering
        from .model import computing_in_bf16, load_finetuned
        from .texts import Tagging, Texts

        self.options = options
        self.device = pick_device(options.device)
        self.bf16 = loop.computes_in_bf16(options.bf16, self.device)
        model = load_finetuned(options.model, device=self.device)
        self.reader, self.net = model.reader, model.net
        self.kind: Kind = model.kind
        self.labels, self.reading = model.labels, model.reading
        must_be_for(options, self.kind)
        if self.bf16:
            computing_in_bf16(self.net.encoder)
        wanted = options.max_seq_length or self.reading.get("max_seq_length")
        length = self.reader.fitting(wanted, MAX_SEQ_LENGTH[self.kind])
        how: dict[str, Any] = {"max_seq_length": length, "device": self.device}
        made = {"tagging": Tagging, "answering": Answering}.get(self.kind, Texts)
        if self.kind == "answering":
            how["answerless"] = self.none_above is not None
        self.problem: Any = made(self.reader, self.kind, self.labels, **how)
        self.examples = 0
        self.truncation = Truncation(self.reader, length)

    @property
    def none_above(self) -> float | None:
        """Above it a question has no answer; None: each has one."""
        given = self.options.no_answer_threshold
        return self.reading.get("no_answer_threshold") if given is None else given

    def __call__(self, examples: list[Any], after: After = lambda _: None) -> list[Prediction]:
        """A prediction for each example, whose label or tags are ignored."""
        self.examples += len(examples)
        full: list[Any] = [e for e in examples if not isinstance(e, Sentence) or e.words]
        if not full:
            return [{"predicted_tags": []} for _ in examples]
        return self._predicted(examples, full, after)

    def _predicted(self, examples: list[Any], full: list[Any], after: After) -> list[Prediction]:
        """full: the examples without sentences that have no words, at least one."""
        from . import loop

        problem, rows = self.problem, self.problem.rows(full)
        outputs = loop.predict(self.net, problem, rows, after=after)
        found = loop.Answered(examples, rows, outputs)
        if self.kind == "tagging":
            return [{"predicted_tags": list(tags)} for tags in problem.tags(found)]
        if self.kind == "answering":
            return list(map(self._answer, *problem.best(found)))
        self.truncation.add(full, rows.lengths_N.tolist())
        if self.kind == "regression":
            return [{"predicted_value": rounded(value)} for value in problem.values(outputs)]
        chosen = problem.chosen(outputs, threshold=self.options.threshold or 0.5).tolist()
        return list(map(self._labels, chosen, problem.probabilities(outputs).tolist()))

    def _labels(self, chosen: Any, probabilities: list[float]) -> Prediction:
        """chosen: the number of a class, or whether each label applies."""
        sure = dict(zip(self.labels, map(rounded, probabilities), strict=True))
        if self.kind == "multilabel":
            on = [name for name, applies in zip(sure, chosen, strict=True) if applies]
            found: Prediction = {"predicted_labels": on, "probability": [sure[k] for k in on]}
        else:
            label = self.labels[chosen]
            found = {"predicted_label": label, "probability": sure[label]}
        return found | ({"probabilities": sure} if self.options.probabilities else {})

    def _answer(self, guesses: list[Any], none: float) -> Prediction:
        """guesses: best first; none: the higher, the less likely there is an answer."""
        silent = not guesses or (self.none_above is not None and none > self.none_above)
        return {
            "predicted_answer": "" if silent else guesses[0].text,
            "answer_score": rounded(guesses[0].score) if guesses else None,
            "no_answer_score": rounded(none),
        }


class OnnxPredictor(Predictor):
    """A fine-tuned graph: examples -> predictions."""

    def __init__(self, options: PredictConfig) -> None:
        """Loads the graph. Raises UserError if that fails, or for an option of another kind."""
        name = options.model
        plain = options.device in ("auto", "cpu") and options.bf16 != "true"
        need(plain, f"{name} is an ONNX model, which electrify runs on the CPU in float32")
        self.options, self.device = options, None
        self.reader = graph = OnnxModel.of(name, options.threads)
        self.kind = kind_of(name, graph.config)
        must_be_for(options, self.kind)
        names = graph.config["id2label"]
        self.labels = tuple(names[str(k)] for k in range(len(names)))
        self.reading = graph.config.get(KEY) or {}
        wanted = options.max_seq_length or self.reading.get("max_seq_length")
        self.length = fitting(name, graph.positions, wanted, MAX_SEQ_LENGTH[self.kind])
        self.examples = 0
        self.truncation = Truncation(graph, self.length)

    def _predicted(self, examples: list[Any], full: list[Any], after: After) -> list[Prediction]:
        if self.kind == "tagging":
            return self._tagged(examples, full, after)
        if self.kind == "answering":
            return self._answered(full, after)
        ids, types = rows_of_texts(self.reader, examples, self.length)
        logits_NC = np.stack(self.reader.logits(ids, types, after=after))
        self.truncation.add(examples, list(map(len, ids)))
        if self.kind == "regression":
            return [{"predicted_value": rounded(value)} for value in logits_NC[:, 0].tolist()]
        chosen = logits_NC.argmax(-1)
        if self.kind == "multilabel":
            threshold = self.options.threshold or 0.5
            chosen = logits_NC > math.log(threshold / (1 - threshold))
        sure_NC = probabilities(logits_NC, self.reader.config, {})
        return list(map(self._labels, chosen.tolist(), sure_NC.tolist()))

    def _tagged(
        self, sentences: list[Sentence], full: list[Sentence], after: After
    ) -> list[Prediction]:
        """The mean of the logits of a word's tokens decides, as in `Tagging`."""
        tokenizer = self.reader.tokenizer
        rows = list(rows_of_words(tokenizer, Frame.of(tokenizer, "a"), full, self.length))
        ids, types = [row.ids for row in rows], [row.types for row in rows]
        tags = iter(
            self.labels[logits_LC[start:stop].mean(0).argmax()]
            for row, logits_LC in zip(
                rows, self.reader.logits(ids, types, after=after), strict=True
            )
            for _, start, stop in row.words
        )
        return [{"predicted_tags": [next(tags) for _ in s.words]} for s in sentences]

    def _answered(self, questions: list[Question], after: After) -> list[Prediction]:
        """The class token as start and end is no answer, as in `Answering`."""
        tokenizer = self.reader.tokenizer
        frame = Frame.of(tokenizer, "a", "b")
        ids, types, windows = zip(
            *rows_of_questions(tokenizer, frame, questions, self.length), strict=True
        )
        logits = self.reader.logits(ids, types, after=after)
        spans = []
        for window, logits_L2 in zip(windows, logits, strict=True):
            masked = np.full((2, 1, len(logits_L2)), NEVER, np.float32)
            inside = slice(window.start, window.stop)
            masked[:, 0, inside] = logits_L2[inside].T
            spans.append(best_spans(*masked, longest=LONGEST_ANSWER, keep=N_BEST))
        guesses = guesses_of(
            questions, windows, Spans(*map(np.concatenate, zip(*spans, strict=True)))
        )
        null = [float(logits_L2[0].sum()) for logits_L2 in logits]
        return list(map(self._answer, guesses, answerless(guesses, windows, null)))


def predictor_of(options: PredictConfig) -> Predictor:
    """Raises UserError if the model cannot be loaded."""
    if is_onnx(options.model):
        return OnnxPredictor(options)
    return Predictor(options)


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
    must_be_ready(options, options.output_file)
    config = config_of(options.model)
    kind = kind_of(options.model, config)
    must_be_for(options, kind)
    trained = (config.get(KEY) or {}).get("pairs")
    columns: dict[str, Any] = {
        "text_column": options.text_column,
        "pair_column": options.pair_column,
    }
    files = Files(options.files, kind, pairs=trained, header=options.header, **columns)
    firsts = files.check()
    predictor = predictor_of(options)
    tell([pairs_warning(trained, firsts[0].is_pair)])
    for path, item in zip(files.paths, firsts, strict=True):
        if item.cells and ending_of(path) in (".txt", ".tsv"):
            say(f"{path} is read as columns. If it holds texts, give them as .jsonl or .csv")
    write_results(options, files, predictor, title="predict")
    tell([predictor.truncation.text()])
    return done(options.output_file, predictor.examples, began)


# ------------------------------------------------------------------ from Python


def load_predictor(model: str | os.PathLike[str], **options: Any) -> Predictor:
    """options: max_seq_length, threshold, no_answer_threshold, probabilities, device, bf16: see
    `PredictConfig`. Raises UserError."""
    return predictor_of(PredictConfig(model=os.fspath(model), files=(), **options))


def predict(
    predictor: Predictor, texts: Iterable[Any], *, pairs: Iterable[str] | None = None
) -> list[Prediction]:
    """The predictions for texts: for each a dict of the columns that the command writes. See
    `electrify.predict`. Raises UserError."""
    examples = _examples(predictor.kind, texts, pairs)
    tell([pairs_warning(predictor.reading.get("pairs"), pairs is not None)])
    found = predictor(examples)
    tell([unknown_note(predictor, examples), predictor.truncation.text()])
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
    fact = f"{len(texts)} texts and {len(others)} pairs: there must be one for each"
    need(len(others) == len(texts), fact)
    label = () if kind == "multilabel" else 0.0
    both = zip(texts, others, strict=True)
    return [Question("", a, b, ()) if asks else Example(a, b, label) for a, b in both]
