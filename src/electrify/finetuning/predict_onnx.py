"""`electrify predict` on a folder with model.onnx: files, rows and columns of predict.py, and
outputs by onnxruntime.

Shape suffixes: N texts, L tokens, C classes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import need
from ..onnx_models import OnnxModel, probabilities
from .encoding import Frame, Truncation, fitting, rows_of_texts, rows_of_words
from .options import PredictConfig
from .predict import After, Prediction, Predictor, must_be_for, rounded
from .tasks import KEY, MAX_SEQ_LENGTH, Sentence, kind_of


class OnnxPredictor(Predictor):
    """A fine-tuned graph: examples -> predictions, except answers of questions."""

    def __init__(self, options: PredictConfig) -> None:
        """Loads the graph. Raises UserError if that fails, or for an option of another kind."""
        name = options.model
        plain = options.device in ("auto", "cpu") and options.bf16 != "true"
        need(plain, f"{name} is an ONNX model, which electrify runs on the CPU in float32")
        self.options, self.device = options, None
        self.reader = graph = OnnxModel.of(name, options.threads)
        self.kind = kind_of(name, graph.config)
        need(
            self.kind != "answering",
            f"{name} answers questions, which predict reads from Hugging Face folders only",
        )
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
        """The mean of the logits of a word's tokens decides, as in tagging.py."""
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
