"""An objective as a user would add it: a class. It has options, three losses and heads
of its own, and leaves a second network of the encoder that it keeps.

Shape suffixes: T flat tokens, R rows, G rows of a group, D hidden width.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electrify.corruption.choosing import Plan, count
from electrify.errors import UserError
from electrify.methods import Exported
from electrify.model import costs
from electrify.model.costs import Pass
from electrify.model.heads import Head, Network, token_ce
from electrify.objectives.objective import Graded, Objective, Parts, histogram, replaced_share
from electrify.terms import Loss, Terms
from electrify.tokens import Tokens


class SquaredHead(Head):
    """sum of gelu(W h), scaled: one logit a token, without a vector of its own."""

    kind = "binary"

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, x_ND: Tensor) -> Tensor:
        return F.gelu(self.dense(x_ND)).mean(-1) - 0.1

    def paper_flops(self, row_length: int) -> float:
        return costs.binary_flops(self.dense.in_features)

    def tensors(self) -> dict[str, Tensor]:
        """With the output layer that computes the mean."""
        width, weight = self.dense.in_features, self.dense.weight
        out = {
            "out.weight": weight.new_full((1, width), 1 / width),
            "out.bias": weight.new_full((1,), -0.1),
        }
        return {"dense.weight": weight, "dense.bias": self.dense.bias} | out


class Margin(Objective):
    """Replaced and original tokens are told apart by a margin; the first tokens of a group of rows
    are kept apart by a contrast; a second head names the original at the chosen positions.

    Options: margin, how far apart replaced and original tokens are kept; group, the rows that the
    contrast compares.
    """

    corruptors = ("generator", "uniform")
    losses: ClassVar = {"margin": 20.0, "contrast": 0.5, "named": 1.0}
    title = "margin detector"
    tag = "toy-margin"
    asked: ClassVar = {"margin": "to keep replaced tokens {margin:g} apart from others"}
    leaves: ClassVar = {
        "namer": Exported(
            title="encoder that names the original",
            purpose="The same encoder with the head that names the original of a replaced token.",
            logits="token",
            fills=False,
        )
    }

    @staticmethod
    def group_rows(o: Any) -> int:
        return o.objective_options["group"] if "contrast" in o.term_weights else 1

    def __init__(self, parts: Parts, margin: float, group: int) -> None:
        super().__init__()
        self.corruptor, self.encoder = parts.corruptor, parts.encoder
        self.head: Head = SquaredHead(parts.shape.hidden_size)
        self.namer = parts.lm_head()
        self.margin, self.group = margin, group

    @classmethod
    def build(cls, parts: Parts, *, margin: float = 0.5, group: int = 2) -> Margin:
        if margin <= 0:
            raise UserError(f"objective_options: margin must be positive, not {margin}")
        return cls(parts, margin, group)

    def counts(self, tokens: Tokens, plan: Plan) -> dict[str, Tensor]:
        rows = tokens.used_R.sum()
        return {"margin": tokens.real_T.sum(), "contrast": rows, "named": count(plan)}

    def passes(self) -> list[Pass]:
        share = self.corruptor.chooser.share
        heads = [Pass(self.head, 1.0, True), Pass(self.namer, share, True)]
        return [*self.corruptor.passes(), Pass(self.encoder, 1.0, True), *heads]

    def networks(self) -> dict[str, Network]:
        return super().networks() | {"namer": Network(self.encoder, self.namer)}

    def forward(self, tokens: Tokens, plan: Plan) -> Graded:
        z = self.corruptor(tokens, plan)
        states_TD = self.encoder(z.tokens)
        logits_T = self.head(states_TD).float()
        sign_T = torch.where(z.replaced_T, 1.0, -1.0)
        first_RD = F.normalize(
            states_TD.float().view(tokens.num_rows, tokens.row_length, -1)[:, 0], dim=-1
        )
        groups_RGD = first_RD.view(-1, self.group, first_RD.shape[-1])
        alike_RGG = (groups_RGD @ groups_RGD.transpose(1, 2)).flatten(0, 1)
        own_R = torch.arange(self.group, device=alike_RGG.device).repeat(len(groups_RGD))
        losses = {
            "margin": Loss((self.margin - sign_T * logits_T).relu(), tokens.real_T),
            "contrast": Loss(F.cross_entropy(alike_RGG, own_R, reduction="none"), tokens.used_R),
            "named": Loss(token_ce(self.namer(states_TD[z.at_M]), z.was_M), z.valid_M),
        }
        return Graded(z, self.corruptor.likelihood(z) | losses, states_TD, logits_T)

    def watch(self, graded: Graded) -> Terms:
        z = graded.corrupted
        terms = self.corruptor.rates(z, graded.losses) | replaced_share(z)
        if not self.training:
            terms["margin_detection"] = histogram(graded.logits, z.replaced_T, z.tokens.real_T)
        return terms
