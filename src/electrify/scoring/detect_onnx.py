"""`electrify detect` on a folder with model.onnx: the windows, words and output of detect.py, and
probabilities by onnxruntime."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from ..errors import need
from ..exporting.places import mark_of
from ..onnx_models import Array, OnnxModel, probabilities
from .detect import Detector

REPLACED = {"logits": "replaced"}
"""In the mark of a graph that detects."""


@dataclass(frozen=True)
class OnnxDetector(Detector):
    """A graph with a head that detects."""

    @classmethod
    def of(cls, model: str, threads: str = "auto") -> OnnxDetector:
        """Raises UserError for a graph of another network."""
        need(
            REPLACED.items() <= mark_of(model).items(),
            f"{model}: the graph has no replaced-token head. Export the discriminator of a run",
        )
        graph = OnnxModel.of(model, threads)
        return cls(model, graph, graph.tokenizer)

    @property
    def positions(self) -> int:
        return self.network.positions

    def probabilities(self, ids_BL: Array, mask_BL: Array) -> Array:
        (logits,) = self.network.outputs(ids_BL, mask_BL)
        return probabilities(logits, {}, REPLACED)

    def computing(self, threads: str, tokens: int, most: int) -> AbstractContextManager[Any]:
        return nullcontext()
