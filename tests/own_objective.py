"""Replaced token detection as somebody else might write it, with a second head of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from electrify.corruption.choosing import Plan
from electrify.model.costs import Pass, linear_flops
from electrify.model.heads import LinearHead, OneLogit
from electrify.objectives import objective
from electrify.objectives.objective import Graded, Parts, binary_ce, replaced_share
from electrify.terms import Loss, Terms
from electrify.tokens import Tokens


class Detector(objective.Objective):
    """Two heads, whose logits are added."""

    corruptors = ("generator", "unigram", "uniform")
    losses: ClassVar = {"rtd": 50.0}
    title = "own discriminator"
    tag = "own"
    asked: ClassVar = {"rtd": "to detect replaced tokens"}

    head_type: ClassVar[Any] = LinearHead

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.corruptor, self.encoder = parts.corruptor, parts.encoder
        self.head = parts.rtd_head("dense")
        self.own = self.head_type(parts.shape.hidden_size)

    @classmethod
    def build(cls, parts: Parts) -> Detector:
        return cls(parts)

    def counts(self, tokens: Tokens, plan: Plan) -> dict[str, Tensor]:
        return {"rtd": tokens.real_T.sum()}

    def passes(self) -> list[Pass]:
        heads = [Pass(self.head, 1.0, True), Pass(self.own, 1.0, True)]
        return [*self.corruptor.passes(), Pass(self.encoder, 1.0, True), *heads]

    def forward(self, tokens: Tokens, plan: Plan) -> Graded:
        z = self.corruptor(tokens, plan)
        states_TD = self.states(z)
        logits_T = self.head(states_TD) + self.own(states_TD)
        loss = Loss(binary_ce(logits_T, z.replaced_T), tokens.real_T)
        return Graded(z, self.corruptor.likelihood(z) | {"rtd": loss}, states_TD, logits_T)

    def watch(self, graded: Graded) -> Terms:
        z = graded.corrupted
        return self.corruptor.rates(z, graded.losses) | replaced_share(z)


class ScaledHead(OneLogit):
    """Parts whose values are neither 0 nor drawn."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.out = nn.Linear(width, 1)
        self.scale = nn.Parameter(torch.tensor(5.0))

    def forward(self, x_ND: Tensor) -> Tensor:
        return self.scale * self.out(self.norm(x_ND)).squeeze(-1)

    def paper_flops(self, row_length: int) -> float:
        return linear_flops(self)


class GruHead(LinearHead):
    """Reads the states one after the other, and says what that costs."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.gru = nn.GRU(width, width)

    def forward(self, x_ND: Tensor) -> Tensor:
        return super().forward(self.gru(x_ND)[0])

    def hardware_flops(self, row_length: int) -> float:
        return linear_flops(self) + sum(2 * p.numel() for p in self.gru.parameters() if p.ndim > 1)

    def paper_flops(self, row_length: int) -> float:
        return self.hardware_flops(row_length)


class Misnamed(Detector):
    """Returns its loss under another name than it counts it."""

    def forward(self, tokens: Tokens, plan: Plan) -> Graded:
        graded = super().forward(tokens, plan)
        losses = {"found" if name == "rtd" else name: one for name, one in graded.losses.items()}
        return replace(graded, losses=losses)


class Recurrent(Detector):
    head_type = GruHead
