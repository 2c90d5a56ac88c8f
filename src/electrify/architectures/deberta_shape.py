"""The shape of DeBERTa's encoder: its sizes, and the buckets of its distances."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.shape import Shape
from ..values import Count


@dataclass(frozen=True, kw_only=True)
class DebertaShape(Shape):
    """Its sizes, and the number that its attention needs. It has no segments, and its embeddings
    are as wide as its blocks."""

    type_vocab_size: Count = 1
    layer_norm_eps: float = 1e-7
    position_buckets: Count
    """Buckets of the distances on either side of a token."""

    @property
    def telling_length(self) -> int:
        """Long enough for some distances to share a bucket."""
        return max(super().telling_length, self.position_buckets + 3)

    @property
    def least_parameters(self) -> int:
        d = self.hidden_size
        block = 4 * d * d + 2 * d * self.intermediate_size
        tables = (self.vocab_size + 2 * self.position_buckets) * d
        return tables + self.num_hidden_layers * block
