"""The numbers that decide an encoder's parameters."""

from __future__ import annotations

from dataclasses import dataclass

from ..files.schema import Positive


@dataclass(frozen=True, kw_only=True)
class Shape:
    """An encoder's sizes under Hugging Face's names. An architecture that has more of them uses a
    subclass."""

    vocab_size: Positive
    embedding_size: Positive
    hidden_size: Positive
    num_hidden_layers: Positive
    num_attention_heads: Positive
    intermediate_size: Positive
    max_position_embeddings: Positive
    type_vocab_size: Positive = 2
    layer_norm_eps: float = 1e-12

    @property
    def head_width(self) -> int:
        return self.hidden_size // self.num_attention_heads
