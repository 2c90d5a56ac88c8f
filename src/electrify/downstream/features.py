"""The states of an encoder that is left as it is, as the features of a small head.

Shape suffixes: N words or texts, F features.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from .encoder import Loaded


def layers_taken(layers: str, loaded: Loaded) -> int:
    """How many of the encoder's states, counted from the last one, are concatenated. layers: last,
    last4 or all, which means those of every block and the embeddings."""
    depth = loaded.encoder.config.num_hidden_layers
    return {"last": 1, "last4": min(4, depth + 1), "all": depth + 1}[layers]


class Standard(NamedTuple):
    """Mean and deviation of each feature over the training examples."""

    mean_F: Tensor
    std_F: Tensor

    @classmethod
    def of(cls, states_NF: Tensor) -> Standard:
        return cls(states_NF.mean(0), states_NF.std(0, correction=0).clamp(min=1e-6))

    def apply(self, states_NF: Tensor) -> None:
        """Gives each feature, in place, mean 0 and deviation 1 of the training examples."""
        states_NF.sub_(self.mean_F).div_(self.std_F)
