"""The numbers that decide an encoder's parameters."""

from __future__ import annotations

from dataclasses import dataclass

from ..values import Count


@dataclass(frozen=True, kw_only=True)
class Shape:
    """An encoder's sizes under Hugging Face's names. An architecture that has more of them uses a
    subclass."""

    vocab_size: Count
    embedding_size: Count
    hidden_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    intermediate_size: Count
    max_position_embeddings: Count
    type_vocab_size: Count = 2
    layer_norm_eps: float = 1e-12

    @property
    def head_width(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def telling_length(self) -> int:
        """The length of a sequence that shows everything that attention does with positions."""
        return 33
