"""A corruptor with a network as a user would add it: a class.

Shape suffixes: T flat tokens, M chosen positions, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from electrify.corruption.masking import Corrupted, MaskMix, substitute
from electrify.corruption.plan import Plan, count
from electrify.corruption.rates import lm_rates
from electrify.corruption.source import Source
from electrify.draws import Draws
from electrify.model.costs import Pass
from electrify.model.heads import MaskedLM, Network
from electrify.model.likelihood import token_ce
from electrify.tables import Exported
from electrify.terms import Loss, Terms
from electrify.tokens import Tokens


@dataclass(frozen=True, kw_only=True)
class Guessed(Corrupted):
    """Corrupted text, with the id that its masked language model read as [MASK]."""

    mask_id: int


class Guess(nn.Module):
    """Every chosen token becomes the one that a masked language model finds the likeliest."""

    learned = True
    leaves: ClassVar = {
        "generator": Exported(
            title="masked language model",
            purpose="The masked language model that proposed the replacements.",
            logits="token",
            fills=True,
        )
    }
    card = "A text encoder that read text in which tokens were guessed, {asked}."

    def __init__(self, mask: MaskMix, lm: MaskedLM) -> None:
        super().__init__()
        self.mask = mask
        self.lm = lm
        self.chooser = mask.chooser

    @classmethod
    def build(cls, source: Source) -> Guess:
        networks = source.networks
        lm = MaskedLM(networks.encoder(), networks.lm_head())
        return cls(MaskMix.build(source), lm)

    def passes(self) -> list[Pass]:
        return self.lm.head.passes(self.lm.encoder, self.chooser.share, trains=True)

    def networks(self) -> dict[str, Network]:
        return {"generator": Network(self.lm.encoder, self.lm.head)}

    def plan(self, tokens: Tokens, draws: Draws, *, fixed: bool = False) -> Plan:
        plan = self.mask.plan(tokens, draws, fixed=fixed)
        return plan.counting(generator=count(plan))

    def forward(self, tokens: Tokens, plan: Plan) -> Guessed:
        masked = self.mask(tokens, plan)
        logits_MV = self.lm(masked.tokens, plan.at_M)
        changed = substitute(tokens, plan, logits_MV.argmax(-1))
        return Guessed(changed, tokens.ids_T, plan, logits_MV, mask_id=masked.mask_id)

    def likelihood(self, z: Corrupted) -> dict[str, Loss]:
        assert z.logits_MV is not None
        return {"generator": Loss(token_ce(z.logits_MV, z.was_M), z.valid_M)}

    def rates(self, z: Corrupted, losses: dict[str, Loss]) -> Terms:
        assert isinstance(z, Guessed)
        assert z.logits_MV is not None
        return lm_rates("generator", z.logits_MV, losses["generator"], z, mask_id=z.mask_id)
