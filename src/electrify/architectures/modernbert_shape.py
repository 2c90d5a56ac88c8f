"""The shape of ModernBERT's encoder: its sizes, and how far each block sees."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.attention import Kind, Reach
from ..model.positions import Rotary
from ..model.shape import Shape
from ..values import Count


@dataclass(frozen=True, kw_only=True)
class ModernBertShape(Shape):
    """Its sizes, and the numbers that its attention needs. It has no segments, and its embeddings
    are as wide as its blocks."""

    type_vocab_size: Count = 1
    layer_norm_eps: float = 1e-5
    local_attention: Count
    """Tokens that a local block sees, half of them on either side."""
    global_attn_every_n_layers: Count
    global_rope_theta: float
    local_rope_theta: float

    @property
    def telling_length(self) -> int:
        """Long enough for tokens beyond either edge of the window."""
        return max(super().telling_length, self.local_attention + 3)

    @property
    def kinds(self) -> list[Kind]:
        """The kind of each block: the lowest one, and every n-th above it, is global."""
        every = self.global_attn_every_n_layers
        return ["local" if n % every else "global" for n in range(self.num_hidden_layers)]

    @property
    def reaches(self) -> dict[Kind, Reach]:
        """What the attention of each kind of block knows of positions."""
        known = {
            "global": Reach(rotary=Rotary(self.global_rope_theta, self.head_width)),
            "local": Reach(
                rotary=Rotary(self.local_rope_theta, self.head_width),
                window=self.local_attention // 2,
            ),
        }
        return {kind: known[kind] for kind in dict.fromkeys(self.kinds)}

    @property
    def least_parameters(self) -> int:
        d = self.hidden_size
        block = 4 * d * d + 3 * d * self.intermediate_size
        return self.vocab_size * d + self.num_hidden_layers * block
