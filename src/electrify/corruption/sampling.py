"""Draws from softmax(logits / temperature). Shape suffixes: M chosen positions, V vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def sample(logits_MV: Tensor, uniform_M: Tensor, *, temperature: float | Tensor = 1.0, never_M: Tensor | None = None) -> Tensor:
    """One token a row, distributed as softmax(logits / temperature), in float32, without gradient; `never_M` names a token a row that has no chance.

    Inverts the cumulative sum with one uniform number a row; a random number for each vocabulary entry (Gumbel) costs a quarter of a step on a CPU.
    """
    plain = isinstance(temperature, float) and temperature == 1.0
    scaled_MV = logits_MV if plain else logits_MV.float() / temperature
    if never_M is not None:
        scaled_MV = scaled_MV.scatter(-1, never_M[:, None], float("-inf"))
    cumulative_MV = scaled_MV.softmax(-1, dtype=torch.float32).cumsum_(-1)
    total_M = cumulative_MV[:, -1]
    # Strictly below the total (rounding may reach it), so that the first larger entry exists, and has some probability.
    target_M = torch.minimum(uniform_M.to(total_M.dtype) * total_M, torch.nextafter(total_M, torch.zeros_like(total_M)))
    token_M = torch.searchsorted(cumulative_MV, target_M[:, None], right=True).squeeze(1)
    # Logits that are not numbers have no larger entry. The loop stops on their loss, before which an id outside the vocabulary would crash.
    return token_M.clamp_(max=logits_MV.shape[-1] - 1)
