"""`electrify predict` on a folder with model.onnx: files, rows and columns of predict.py, and
outputs by onnxruntime.

Shape suffixes: N texts, L tokens, C classes.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..errors import need
from ..onnx_models import OnnxModel, probabilities
from .encoding import Frame, Truncation, encoded, pieces_of, windows
from .options import PredictConfig
from .predict import After, Prediction, Predictor, must_be_for, rounded
from .saved import Reading, kind_of
from .tasks import MAX_SEQ_LENGTH, Sentence


class OnnxPredictor(Predictor):
    """A fine-tuned graph: examples -> predictions, except answers of questions."""

    def __init__(self, model: str, options: PredictConfig) -> None:
        """Loads the graph. Raises UserError if that fails, or for an option of another kind."""
        plain = options.device in ("auto", "cpu") and options.bf16 != "true"
        need(plain, f"{model} is an ONNX model, which electrify runs on the CPU in float32")
        self.options, self.device, self.bf16 = options, None, False
        self.graph = OnnxModel.of(model, options.threads)
        self.kind = kind_of(model, self.graph.config)
        need(
            self.kind != "answering",
            f"{model} answers questions, which predict reads from Hugging Face folders only",
        )
        must_be_for(options, self.kind)
        reading, positions = Reading.of(self.graph.config), self.graph.positions
        wanted = options.max_seq_length or reading.max_seq_length
        need(
            (wanted or 0) <= positions,
            f"{model} reads at most {positions} tokens. Give --max-seq-length {positions}",
        )
        self.length = wanted or min(MAX_SEQ_LENGTH[self.kind], positions)
        names = self.graph.config["id2label"]
        labels = tuple(names[str(k)] for k in range(len(names)))
        self.model: Any = SimpleNamespace(labels=labels, reading=reading)
        known = {"tokenizer": self.graph.tokenizer, "segments": self.graph.segments}
        self.reader: Any = SimpleNamespace(name=model, made_for=positions, **known)
        self.examples, self.long_questions = 0, []
        self.truncation = Truncation(self.reader, self.length)

    def __call__(self, examples: list[Any], after: After = lambda _: None) -> list[Prediction]:
        """A prediction for each example, whose label or tags are ignored."""
        self.examples += len(examples)
        if self.kind == "tagging":
            return self._tagged(examples, after)
        found = encoded(self.reader, examples, truncation=True, max_length=self.length)
        # A model without special tokens reads an empty text as padding.
        rows = [row or [self.reader.tokenizer.pad_token_id] for row in found["input_ids"]]
        types = [row or [0] for row in found["token_type_ids"]] if self.reader.segments else None
        logits_NC = np.stack(self.graph.logits(rows, types, after=after))
        self.truncation.add(examples, list(map(len, rows)))
        if self.kind == "regression":
            return [{"predicted_value": rounded(value)} for value in logits_NC[:, 0].tolist()]
        chosen = logits_NC.argmax(-1)
        if self.kind == "multilabel":
            threshold = self.options.threshold or 0.5
            chosen = logits_NC > math.log(threshold / (1 - threshold))
        sure_NC = probabilities(logits_NC, self.graph.config, {})
        return list(map(self._labels, chosen.tolist(), sure_NC.tolist()))

    def _tagged(self, sentences: list[Sentence], after: After) -> list[Prediction]:
        """The mean of the logits of a word's tokens decides, as in tagging.py."""
        frame = Frame.of(self.reader.tokenizer, "a")
        room = self.length - frame.room
        pieces = pieces_of(self.reader.tokenizer, sentences)
        rows, types, places = list[list[int]](), list[list[int]](), list[list[slice]]()
        for sentence in sentences:
            words = [pieces[word][:room] for word in sentence.words]
            for window in windows(list(map(len, words)), room) if words else ():
                inside = words[window.begin : window.end]
                row, segments, (start,) = frame.around([i for ids in inside for i in ids])
                ends = start + np.cumsum([0, *map(len, inside)])
                own = range(window.first - window.begin, window.last - window.begin)
                rows.append(row)
                types.append(segments)
                places.append([slice(ends[k], ends[k + 1]) for k in own])
        logits = self.graph.logits(rows, types, after=after)
        tags = iter(
            self.model.labels[logits_LC[word].mean(0).argmax()]
            for logits_LC, words in zip(logits, places, strict=True)
            for word in words
        )
        return [{"predicted_tags": [next(tags) for _ in s.words]} for s in sentences]
