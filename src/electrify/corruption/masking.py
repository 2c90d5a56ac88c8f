"""Corruptors without a network: [MASK], the same, or a random token; draws from one distribution.

Shape suffixes: T flat tokens, M chosen positions, V vocabulary, N ordinary tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..draws import Draws
from ..model.costs import Pass
from ..model.heads import Network
from ..terms import Loss, Terms
from ..tokens import SpecialIds, Tokens
from .choosing import Chooser, Plan
from .corruptor import Corrupted, Source, ordinary, substitute

# log q of a token that is never drawn, in place of minus infinity, whose product with 0 is not a
# number: the smallest normal float32.
NEVER = math.log(torch.finfo(torch.float32).tiny)


@dataclass(frozen=True, kw_only=True)
class Masked(Corrupted):
    """A text with [MASK], from a corruptor whose row says `shows_mask`."""

    mask_id: int


class WithoutNetwork(nn.Module):
    """A corruptor that runs no network, and so has no loss."""

    def passes(self) -> list[Pass]:
        return []

    def networks(self) -> dict[str, Network]:
        return {}

    def likelihood(self, z: Corrupted) -> dict[str, Loss]:
        return {}

    def rates(self, z: Corrupted, losses: dict[str, Loss]) -> Terms:
        return {}


class MaskMix(WithoutNetwork):
    """A share of the chosen positions becomes [MASK], a share stays, a share becomes a random
    token: BERT's 80/10/10 is mix=(0.8, 0.1, 0.1), ELECTRA's generator 85/15/0. Random tokens are
    never special. BERT, 1810.04805 section 3.1 and Table 8.

    As a corruptor it is the whole of `bert`; a Generator uses it to make its input. No parameters.
    """

    def __init__(
        self, chooser: Chooser, special: SpecialIds, vocab_size: int, *, mix: tuple[float, ...]
    ) -> None:
        super().__init__()
        self.chooser = chooser
        self.mask_id = special.mask
        self.mix = mix
        self.ordinary_N = ordinary(special, vocab_size)

    @classmethod
    def build(cls, source: Source) -> MaskMix:
        return cls(source.chooser, source.special, source.vocab_size, mix=source.mask_mix)

    def plan(self, tokens: Tokens, draws: Draws, *, fixed: bool = False) -> Plan:
        plan = self.chooser.plan(tokens, draws, fixed=fixed)
        at_M = plan.at_M
        u_M = draws.uniform_T("mix")[at_M]
        was_M = tokens.ids_T[at_M]
        random_M = self.ordinary_N[draws.bits_T("random_token")[at_M] % len(self.ordinary_N)]
        mask, same, _ = self.mix
        shown_M = torch.where(
            u_M < mask, self.mask_id, torch.where(u_M < mask + same, was_M, random_M)
        )
        return replace(plan, shown_M=shown_M)

    def forward(self, tokens: Tokens, plan: Plan) -> Masked:
        assert plan.shown_M is not None
        return Masked(
            substitute(tokens, plan, plan.shown_M), tokens.ids_T, plan, mask_id=self.mask_id
        )


class Frequency(WithoutNetwork):
    """Fills the chosen positions from one distribution, regardless of the context: with the
    corpus's counts the "unigram generator" of ELECTRA (2003.10555 section 3.2), with equal counts
    uniform. Never a special token or [UNK]. It shows that replacements must be plausible to teach.
    """

    def __init__(
        self, chooser: Chooser, special: SpecialIds, vocab_size: int, *, counts_V: Tensor
    ) -> None:
        super().__init__()
        self.chooser = chooser
        allowed = ordinary(special, vocab_size)
        count_V = torch.zeros(vocab_size, dtype=torch.float64).index_copy(
            0, allowed, counts_V.double()[allowed]
        )
        if not count_V.is_meta and not bool(count_V.sum() > 0):
            raise ValueError(
                "no ordinary token has a count; random replacements have nothing to be drawn from"
            )
        self.register_buffer("cumulative_V", count_V.cumsum(0), persistent=False)
        self.register_buffer(
            "log_q_V", (count_V / count_V.sum()).log().clamp(min=NEVER).float(), persistent=False
        )

    def log_q_now(self, z: Corrupted) -> Tensor:
        """[T] log q of the CURRENT token at each position: the noise with which Electric contrasts.
        NEVER for tokens that are never drawn."""
        assert isinstance(self.log_q_V, Tensor)
        return self.log_q_V[z.tokens.ids_T]

    def plan(self, tokens: Tokens, draws: Draws, *, fixed: bool = False) -> Plan:
        plan = self.chooser.plan(tokens, draws, fixed=fixed)
        return replace(plan, uniform_M=draws.uniform_T("sample")[plan.at_M])

    def forward(self, tokens: Tokens, plan: Plan) -> Corrupted:
        assert isinstance(self.cumulative_V, Tensor)
        assert plan.uniform_M is not None
        target_M = plan.uniform_M * self.cumulative_V[-1]
        # A draw below the total, so the first entry above it exists and has a count.
        new_M = torch.searchsorted(self.cumulative_V, target_M, right=True).clamp_(
            max=len(self.cumulative_V) - 1
        )
        return Corrupted(substitute(tokens, plan, new_M), tokens.ids_T, plan)


class Unigram(Frequency):
    """By the corpus's counts; all alike where nothing is trained and so nothing was counted."""

    @classmethod
    def build(cls, source: Source) -> Unigram:
        size = source.vocab_size
        counts_V = torch.ones(size) if source.counts_V is None else source.counts_V
        return cls(source.chooser, source.special, size, counts_V=counts_V)


class Uniform(Frequency):
    """All alike."""

    @classmethod
    def build(cls, source: Source) -> Uniform:
        size = source.vocab_size
        return cls(source.chooser, source.special, size, counts_V=torch.ones(size))
