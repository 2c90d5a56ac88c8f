"""The result of corruption, and the corruptor without parameters: [MASK], the same, or a random
token.

Shape suffixes: T flat tokens, M chosen positions, V vocabulary, N ordinary tokens, D hidden width,
E embedding width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from ..draws import Draws
from ..model.costs import Pass
from ..model.heads import Network
from ..terms import Loss, Terms
from ..tokens import SpecialIds, Tokens
from .choosing import Chooser
from .plan import Plan
from .source import Source


@dataclass(frozen=True)
class Corrupted:
    """Corrupted text and everything that an objective may need to know about it. A corruptor that
    knows more returns a subclass."""

    tokens: Tokens
    """The changed text."""
    original_T: Tensor
    plan: Plan
    logits_MV: Tensor | None = None
    """The predictions (logits) of a learned corruptor; None for one without parameters."""
    rows_ME: Tensor | None = None
    """What the discriminator adds to its word vectors at `at_M`: zeros whose gradient leads
    from its losses to the corruptor. None if no gradient does."""

    @property
    def at_M(self) -> Tensor:
        return self.plan.at_M

    @property
    def valid_M(self) -> Tensor | None:
        """Which entries of at_M are chosen positions; None where all are."""
        return self.plan.valid_M

    @property
    def was_M(self) -> Tensor:
        return self.original_T[self.at_M]

    @property
    def now_M(self) -> Tensor:
        return self.tokens.ids_T[self.at_M]

    @property
    def chosen_T(self) -> Tensor:
        """True at the chosen positions."""
        chosen_T = torch.zeros_like(self.original_T, dtype=torch.bool).index_fill(
            0, self.at_M, True
        )
        if self.valid_M is None:
            return chosen_T
        # Fillers point at token 0, which is never chosen.
        return chosen_T & (torch.arange(len(chosen_T), device=chosen_T.device) > 0)

    @property
    def replaced_T(self) -> Tensor:
        """True where a token differs from the original: a sample equal to the original counts as
        original."""
        return self.tokens.ids_T != self.original_T


class Corruptor(Protocol):
    """Changes text. It decides in `plan`, on the CPU, and runs its networks, if it has any, when it
    is called. Its class has a class method `build(source, **options)`, which takes the fields of
    its row's own options (tables.py)."""

    chooser: Chooser

    def plan(self, tokens: Tokens, draws: Draws, *, fixed: bool = False) -> Plan:
        """Everything that is chosen in this batch, and the count of the corruptor's own loss.
        fixed: pad lists to one of a few lengths."""
        ...

    def __call__(self, tokens: Tokens, plan: Plan) -> Corrupted: ...

    def likelihood(self, z: Corrupted) -> dict[str, Loss]:
        """Its own loss, under the name `generator`; nothing if it has no network."""
        ...

    def rates(self, z: Corrupted, losses: dict[str, Loss]) -> Terms:
        """What is watched of its network beside the loss; nothing if it has none. losses: those of
        the forward pass, its own among them. A masked language model gives `lm_rates` of
        corruption/rates.py: its loss on [MASK] tells train/monitor.py whether it learns."""
        ...

    def passes(self) -> list[Pass]: ...

    def networks(self) -> dict[str, Network]:
        """Its networks that can be exported, by the name of their folder."""
        ...


def ordinary(special: SpecialIds, vocab_size: int) -> Tensor:
    """Ids that a random token may have: neither special nor [UNK]."""
    return torch.tensor(sorted(set(range(vocab_size)) - set(special.never_chosen) - {special.unk}))


@dataclass(frozen=True, kw_only=True)
class Masked(Corrupted):
    """A text with [MASK], from a corruptor whose row says `shows_mask`."""

    mask_id: int


class MaskMix(nn.Module):
    """A share of the chosen positions becomes [MASK], a share stays, a share becomes a random
    token: BERT's 80/10/10 is mix=(0.8, 0.1, 0.1), ELECTRA's generator 85/15/0. Random tokens are
    never special. BERT, 1810.04805 section 3.1 and Table 8.

    As a corruptor it is the whole of `bert`; a Generator uses it to make its input. No parameters.
    """

    def __init__(
        self, chooser: Chooser, special: SpecialIds, vocab_size: int, *, mix: tuple[float, ...]
    ) -> None:
        super().__init__()
        if len(mix) != 3 or min(mix) < 0 or not math.isclose(sum(mix), 1.0, abs_tol=1e-6):
            raise ValueError(
                f"mask_mix is three shares (mask, same, random) that sum to 1, not {mix}"
            )
        self.chooser = chooser
        self.mask_id = special.mask
        self.mix = mix
        self.ordinary_N = ordinary(special, vocab_size)

    @classmethod
    def build(cls, source: Source) -> MaskMix:
        return cls(source.chooser, source.special, source.vocab_size, mix=source.mask_mix)

    def passes(self) -> list[Pass]:
        return []

    def networks(self) -> dict[str, Network]:
        return {}

    def likelihood(self, z: Corrupted) -> dict[str, Loss]:
        return {}

    def rates(self, z: Corrupted, losses: dict[str, Loss]) -> Terms:
        return {}

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


def substitute(tokens: Tokens, plan: Plan, new_M: Tensor) -> Tokens:
    """`tokens` with `new_M` written at the chosen positions."""
    if plan.valid_M is not None:  # the fillers write the first token to its own place
        new_M = torch.where(plan.valid_M, new_M, tokens.ids_T[0])
    return tokens.with_ids(tokens.ids_T.index_copy(0, plan.at_M, new_M))
