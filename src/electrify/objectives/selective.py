"""Replaced token detection and the selection of the original among candidates, by two branches of
one encoder. Shape suffixes: T flat tokens, M chosen positions, K candidates, J those beside the
original, D hidden width."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..corruption.choosing import Plan, count
from ..corruption.generator import Generator
from ..draws import Draws
from ..errors import need
from ..model.costs import Pass
from ..model.encoder import Encoder, Top
from ..model.heads import Head, Network, SelectionHead, token_ce
from ..terms import Loss, Terms
from ..tokens import Tokens
from .objective import (
    Graded,
    Objective,
    Parts,
    binary_ce,
    chosen_rates,
    entropy,
    histogram,
    replaced_share,
)


@dataclass(frozen=True)
class SelectivePlan(Plan):
    uniform_MJ: Tensor | None = None
    """float64 in [0, 1): the random numbers with which the candidates are drawn."""


@dataclass(frozen=True, kw_only=True)
class Selected(Graded):
    """logits: of the head that detects, for every token."""

    scores_MK: Tensor
    """The scores of the candidates at the chosen positions, the original first."""


class Selective(Objective):
    """The encoder says of every token whether it was replaced; a second branch of it says at the
    chosen positions which of K candidates stood there (TEAMS, 2106.00139): loss = generator + 5 *
    rtd + 2 * select.

    The branches share everything but their last block. The candidates are the original and K - 1
    others, drawn from the generator one after the other, without replacement and without the
    original. Their order gives nothing away, because each is scored by itself: the original is
    always the first. Both branches read the samples, and each is an encoder of its own afterwards.

    Under Adam the weights hardly matter, since the size of an update does not depend on that of a
    gradient: they act in the shared blocks, and where gradients are clipped together.

    Relations: without `select` it is Electra; with all words as candidates `select` is Replace MLM
    by a branch of its own.
    """

    corruptor: Generator

    def __init__(
        self,
        corruptor: Generator,
        encoder: Encoder,
        head: Head,
        selector: Encoder,
        selection: SelectionHead,
    ) -> None:
        """selector: shares all blocks but the last with `encoder`."""
        super().__init__()
        self.corruptor = corruptor
        self.encoder = encoder
        self.head = head
        self.selector = selector
        self.selection = selection

    @classmethod
    def build(cls, parts: Parts, *, rtd_head: str, candidates: int) -> Selective:
        words = parts.shape.vocab_size
        need(
            candidates <= words,
            f"candidates {candidates} are more than the {words} words of the vocabulary",
            "give fewer",
        )
        head = parts.rtd_head(rtd_head)
        selection = parts.selection_head(candidates)
        selector = parts.branch()
        return cls(parts.corruptor, parts.encoder, head, selector, selection)

    @property
    def shared(self) -> int:
        """How many blocks both branches run through."""
        return len(self.encoder.blocks) - 1

    def networks(self) -> dict[str, Network]:
        return super().networks() | {"selector": Network(self.selector, self.selection)}

    def plan(self, tokens: Tokens, draws: Draws, *, fixed: bool = False) -> SelectivePlan:
        plan = SelectivePlan(**vars(self.corruptor.plan(tokens, draws, fixed=fixed)))
        others = range(self.selection.candidates - 1)
        drawn = [draws.uniform_T("candidates", k)[plan.at_M] for k in others]
        plan = replace(plan, uniform_MJ=torch.stack(drawn, 1))
        return plan.counting(**self.counts(tokens, plan))

    def counts(self, tokens: Tokens, plan: Plan) -> dict[str, Tensor]:
        return {"rtd": tokens.real_T.sum(), "select": count(plan)}

    def passes(self) -> list[Pass]:
        return [
            *self.corruptor.passes(),
            Pass(self.encoder, 1.0, True),
            Pass(self.head, 1.0, True),
            Pass(Top(self.selector, self.shared), 1.0, True),
            Pass(self.selection, self.corruptor.chooser.share, True),
        ]

    def forward(self, tokens: Tokens, plan: Plan) -> Selected:
        assert isinstance(plan, SelectivePlan)
        assert plan.uniform_MJ is not None
        z = self.corruptor(tokens, plan)
        assert z.rows_ME is None, "both branches read tokens"
        candidates_MK = self.corruptor.candidates(z, plan.uniform_MJ)
        encoder, selector, shared = self.encoder, self.selector, self.shared
        x_TD = encoder.embed(z.tokens)
        context = encoder.context(z.tokens, x_TD)
        below_TD = encoder.through(x_TD, context, encoder.blocks[:shared])
        states_TD = encoder.read(encoder.through(below_TD, context, encoder.blocks[shared:]))
        chosen_TD = selector.read(selector.through(below_TD, context, selector.blocks[shared:]))
        logits_T = self.head(self.head.inputs(states_TD, z.tokens))
        scores_MK = self.selection.choose(chosen_TD[z.at_M], candidates_MK)
        losses = self.corruptor.likelihood(z) | {
            "rtd": Loss(binary_ce(logits_T, z.replaced_T), tokens.real_T),
            "select": Loss(token_ce(scores_MK, torch.zeros_like(z.at_M)), z.valid_M),
        }
        return Selected(z, losses, states_TD, logits_T, scores_MK=scores_MK)

    def watch(self, graded: Selected) -> Terms:
        z = graded.corrupted
        right_M = first_is_best(graded.scores_MK)
        terms = self.corruptor.rates(z, graded.losses) | replaced_share(z)
        terms |= chosen_rates("select", graded.losses["select"], right_M, z)
        if self.training:
            return terms
        terms["rtd_detection"] = histogram(graded.logits, z.replaced_T, z.tokens.real_T)
        return terms | entropy(z)


def first_is_best(scores_MK: Tensor) -> Tensor:
    """[M] 1 where the first score is the highest, 0 where it is not; among equal ones the chance
    that it is picked."""
    best_MK = (scores_MK == scores_MK.amax(-1, keepdim=True)).float()
    return best_MK[:, 0] / best_MK.sum(-1).clamp(min=1)
