"""Replaced token detection and correction by one encoder. Shape suffixes: T flat tokens, M chosen
positions, V vocabulary, D hidden width."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..corruption.masking import Corruptor
from ..corruption.plan import Plan, count
from ..model.encoder import Encoder
from ..model.forward_passes import Pass
from ..model.heads import Head, LinearHead
from ..model.likelihood import likeliest, token_ce
from ..model.network import Network
from ..terms import Loss, Terms, term
from ..tokens import Tokens
from .losses import binary_ce, copy_log_probability
from .metrics import apart, entropy, generator_rates, histogram, replaced_share
from .objective import Graded, Objective, Parts

Correction = Literal["plain", "gate", "copy"]


@dataclass(frozen=True, kw_only=True)
class Corrected(Graded):
    """logits: of the head that detects, for every token."""

    logits_MV: Tensor
    """Of the head that corrects."""


class Corrective(Objective):
    """The encoder says of every token whether it was replaced, and at the chosen positions which
    token stood there (COCO-LM, 2102.08473 section 3.2, without its contrast; METRO-LM, 2204.06644):
    loss = generator + 50 * rtd + correct.

    With z the logit of `replaced` and c = sigmoid(-z), the encoder's belief that a token is the
    original, which gets no gradient here, the loss at a chosen position is

    - plain: -log p(x), as Replace MLM
    - gate: (1 - c) * -log p(x): what it takes for the original teaches little
    - copy: -log(c * 1[x = x'] + (1 - c) * p(x)), where a replaced token teaches as in `plain`

    Relations: with weight 0 for `correct` it is Electra, with weight 0 for `rtd` and plain it is
    Replace MLM; All-Tokens MLM asks both of one probability. The detecting and the correcting head
    are left with the same encoder, as two networks.
    """

    def __init__(
        self,
        corruptor: Corruptor,
        encoder: Encoder,
        head: Head,
        corrector: Head,
        *,
        correction: Correction = "plain",
    ) -> None:
        super().__init__()
        self.corruptor = corruptor
        self.encoder = encoder
        self.head = head
        self.corrector = corrector
        self.correction: Correction = correction

    @classmethod
    def build(
        cls, parts: Parts, *, correction: Correction, rtd_head: Literal["dense", "linear"]
    ) -> Corrective:
        linear = rtd_head == "linear"
        head = LinearHead(parts.shape.hidden_size) if linear else parts.binary_head()
        return cls(parts.corruptor, parts.encoder, head, parts.lm_head(), correction=correction)

    def networks(self) -> dict[str, Network]:
        return super().networks() | {"corrector": Network(self.encoder, self.corrector)}

    def counts(self, tokens: Tokens, plan: Plan) -> dict[str, Tensor]:
        return {"rtd": tokens.real_T.sum(), "correct": count(plan)}

    def passes(self) -> list[Pass]:
        return [
            *self.corruptor.passes(),
            Pass(self.encoder, 1.0, True),
            Pass(self.head, 1.0, True),
            Pass(self.corrector, self.corruptor.chooser.share, True),
        ]

    def forward(self, tokens: Tokens, plan: Plan) -> Corrected:
        z = self.corruptor(tokens, plan)
        states_TD = self.encoder(z.tokens)
        replaced_T = self.head(states_TD)
        logits_MV = self.corrector(states_TD[z.at_M])
        ce_M = token_ce(logits_MV, z.was_M)
        kept_M = ~z.replaced_T[z.at_M]
        correct_M = corrected(ce_M, replaced_T[z.at_M], kept_M, self.correction)
        losses = self.corruptor.likelihood(z) | {
            "rtd": Loss(binary_ce(replaced_T, z.replaced_T), tokens.real_T),
            "correct": Loss(correct_M, z.valid_M),
        }
        return Corrected(z, losses, states_TD, replaced_T, logits_MV=logits_MV)

    def watch(self, graded: Corrected) -> Terms:
        z = graded.corrupted
        right_M = (likeliest(graded.logits_MV) == z.was_M).float()
        replaced_M = z.replaced_T[z.at_M]
        where_M = replaced_M if z.valid_M is None else replaced_M & z.valid_M
        terms = generator_rates(z, graded.losses) | replaced_share(z)
        terms |= apart("correct", graded.losses["correct"], replaced_M)
        terms["correct_accuracy"] = term(right_M, z.valid_M)
        terms["correct_accuracy_replaced"] = term(right_M, where_M)
        if self.training:
            return terms
        terms["rtd_detection"] = histogram(graded.logits, z.replaced_T, z.tokens.real_T)
        return terms | entropy(z)


def corrected(ce_M: Tensor, replaced_M: Tensor, kept_M: Tensor, correction: Correction) -> Tensor:
    """[M] the loss of the correction in nats: ce_M the cross-entropy of the original, replaced_M
    the detecting head's logits, kept_M where the original stands."""
    if correction == "plain":
        return ce_M
    with torch.no_grad():
        copy_M = -replaced_M.float()
    if correction == "gate":
        return F.sigmoid(-copy_M) * ce_M
    return -copy_log_probability(-ce_M, copy_M, kept_M)
