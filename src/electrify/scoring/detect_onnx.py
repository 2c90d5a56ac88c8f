"""`electrify detect` on a folder with model.onnx: the windows, words and output of detect.py, and
probabilities by onnxruntime.

Shape suffixes: B windows, L tokens of a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Self

from ..errors import need
from ..exporting.places import mark_of
from ..onnx_models import Array, OnnxModel, padded, probabilities

REPLACED = {"logits": "replaced"}
"""In the mark of a graph that detects."""


class OnnxDetector(OnnxModel):
    """A graph with a head that detects, as pll.Scorer."""

    @classmethod
    def of(cls, name: str, threads: str = "auto") -> Self:
        """Raises UserError for a graph of another network."""
        need(
            REPLACED.items() <= mark_of(name).items(),
            f"{name}: the graph has no replaced-token head. Export the discriminator of a run",
        )
        return super().of(name, threads)

    def probabilities(self, rows: Sequence[list[int]]) -> Array:
        """Of each token that it was replaced, [B, L]."""
        (logits,) = self.outputs(*padded(rows, self.tokenizer.pad_token_id))
        return probabilities(logits, {}, REPLACED)

    def computing(self, threads: str, *, tokens: int) -> AbstractContextManager[None]:
        """onnxruntime has the threads that it was given when the graph was loaded."""
        return nullcontext()
