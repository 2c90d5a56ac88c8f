"""A corruptor as a user would add it: a file, and a row. It has an option and no network.

Shape suffixes: T flat tokens, M chosen positions, N ordinary tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from electrify.config.given import Checked
from electrify.corruption.choosing import Chooser
from electrify.corruption.masking import Corrupted, ordinary, substitute
from electrify.corruption.plan import Plan
from electrify.corruption.source import Source
from electrify.draws import Draws
from electrify.model.forward_passes import Pass
from electrify.model.network import Network
from electrify.tables import CorruptorRow
from electrify.terms import Loss, Terms
from electrify.tokens import Tokens


class Shift(nn.Module):
    """Every chosen token becomes the one so many entries behind it in the vocabulary."""

    def __init__(self, chooser: Chooser, ordinary_N: Tensor, *, shift: int) -> None:
        super().__init__()
        self.chooser = chooser
        self.shift = shift
        self.register_buffer("ordinary_N", ordinary_N, persistent=False)

    @classmethod
    def build(cls, source: Source, *, shift: int) -> Shift:
        return cls(source.chooser, ordinary(source.special, source.vocab_size), shift=shift)

    def passes(self) -> list[Pass]:
        return []

    def networks(self) -> dict[str, Network]:
        return {}

    def likelihood(self, z: Corrupted) -> dict[str, Loss]:
        return {}

    def rates(self, z: Corrupted, losses: dict[str, Loss]) -> Terms:
        return {}

    def plan(self, tokens: Tokens, draws: Draws, *, fixed: bool = False) -> Plan:
        return self.chooser.plan(tokens, draws, fixed=fixed)

    def forward(self, tokens: Tokens, plan: Plan) -> Corrupted:
        assert isinstance(self.ordinary_N, Tensor)
        new_M = self.ordinary_N[(tokens.ids_T[plan.at_M] + self.shift) % len(self.ordinary_N)]
        return Corrupted(substitute(tokens, plan, new_M), tokens.ids_T, plan)


@dataclass(frozen=True, kw_only=True)
class ShiftOptions(Checked):
    """The options of the toy."""

    shift: int = 1
    """For toy_shift: how far behind the original the replacement stands."""


ROW = CorruptorRow(
    cls="toy_corruptor:Shift",
    help="the token that stands behind the original in the vocabulary",
    options=ShiftOptions,
    check=lambda model, o: None if o.shift else "shift must not be 0",
    card="A text encoder that read text in which tokens were shifted, {asked}.",
)
