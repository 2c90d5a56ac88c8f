"""Fixed shapes: how many places the chosen positions of each batch get, so that a compiled step (and a CUDA graph of it) fits every batch.

The number chosen is known from tokens and draws alone, on the CPU, while the device still computes an earlier update.
"""

from __future__ import annotations

import copy
from dataclasses import replace

from torch import nn

from ..corruption.choosing import Chooser
from ..draws import Draws
from ..tokens import Tokens

SPARE, STEP, WHOLE = 1.05, 1.25, 64  # places beyond the expected number; further ones where a batch has more; a multiple of this


class Rooms:
    """Gives draws a `room`: a few sizes for all batches of a run, each at least as large as the number of chosen positions."""

    def __init__(self, objective: nn.Module) -> None:
        self.chooser = copy.deepcopy(next(part for part in objective.modules() if isinstance(part, Chooser))).cpu()

    def prepare(self, tokens: Tokens, draws: Draws, *, pin: bool) -> tuple[Tokens, Draws]:
        """A batch on the CPU, with room; pin: in memory that a GPU reads without making anybody wait."""
        draws = self.fit(tokens, draws)
        tokens = replace(tokens, runs=_enough(tokens.num_rows, tokens.runs)) if tokens.runs else tokens
        return (tokens.pin(), draws.pin()) if pin else (tokens, draws)

    def fit(self, tokens: Tokens, draws: Draws) -> Draws:
        """The draws of a batch with their room."""
        chosen, slots = int(self.chooser.count(tokens, draws)), len(tokens.ids_T)
        return replace(draws, room=min(_enough(SPARE * self.chooser.share * slots, chosen), slots))


def _enough(expected: float, number: int) -> int:
    """One of few sizes that hold the number."""
    size = _whole(expected)
    while size < number:
        size = _whole(STEP * size)
    return size


def _whole(number: float) -> int:
    return WHOLE * -(-int(number) // WHOLE)
