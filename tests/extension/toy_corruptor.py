"""A corruptor as a user would add it: a class. It has an option and no network.

Shape suffixes: T flat tokens, M chosen positions, N ordinary tokens.
"""

from __future__ import annotations

from torch import Tensor

from electrify.corruption.choosing import Chooser, Plan
from electrify.corruption.corruptor import Corrupted, Source, ordinary, substitute
from electrify.corruption.masking import WithoutNetwork
from electrify.draws import Draws
from electrify.tokens import Tokens


class Shift(WithoutNetwork):
    """Every chosen token becomes the one so many entries behind it in the vocabulary."""

    card = "A text encoder that read text in which tokens were shifted, {asked}."

    def __init__(self, chooser: Chooser, ordinary_N: Tensor, *, shift: int) -> None:
        super().__init__()
        self.chooser = chooser
        self.shift = shift
        self.register_buffer("ordinary_N", ordinary_N, persistent=False)

    @classmethod
    def build(cls, source: Source, *, shift: int = 1) -> Shift:
        return cls(source.chooser, ordinary(source.special, source.vocab_size), shift=shift)

    def plan(self, tokens: Tokens, draws: Draws, *, fixed: bool = False) -> Plan:
        return self.chooser.plan(tokens, draws, fixed=fixed)

    def forward(self, tokens: Tokens, plan: Plan) -> Corrupted:
        assert isinstance(self.ordinary_N, Tensor)
        new_M = self.ordinary_N[(tokens.ids_T[plan.at_M] + self.shift) % len(self.ordinary_N)]
        return Corrupted(substitute(tokens, plan, new_M), tokens.ids_T, plan)
