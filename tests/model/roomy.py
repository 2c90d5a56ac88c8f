"""Networks that are wide enough for a look at the spread of their initial values."""

import math
from typing import Any

from torch import Tensor

from batches import SPECIAL, tiny
from electrify.build import Built, Vocabulary, build

# The deviation of a standard normal that is cut at 2: what `std .02` and `.1` of the tables come
# out as.
CUT = 0.879626
VOCAB = 600
ROOMY_VOCABULARY = Vocabulary(VOCAB, SPECIAL)
RELATIVE = {
    "hidden_size": 128,
    "embedding_size": 128,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "generator_size": 1.0,
    "generator_num_hidden_layers": 2,
    "max_position_embeddings": 256,
}  # heads that know distances, 32 wide; six blocks in both halves


def roomy(recipe: str, **fields: Any) -> Built:
    return build(tiny(recipe, **fields), ROOMY_VOCABULARY)


def std(t: Tensor) -> float:
    """Root mean square."""
    return float(t.detach().double().pow(2).mean().sqrt())


def close_to(t: Tensor, expected: float) -> bool:
    """Root mean square within 4 standard errors."""
    return abs(std(t) / expected - 1) < 4 / math.sqrt(2 * t.numel())
