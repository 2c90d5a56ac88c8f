"""Masked language modelling, at the chosen positions and at all of them.

Shape suffixes: T flat tokens, M chosen positions, V vocabulary, D hidden width.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..corruption.choosing import Plan, count
from ..corruption.corruptor import Corruptor, is_best, lm_rates
from ..corruption.masking import Masked
from ..model.costs import Pass
from ..model.encoder import Encoder
from ..model.heads import CHUNK, Head, LinearHead, log_probability, token_ce
from ..terms import Loss, Terms, term
from ..tokens import Tokens
from .objective import (
    Graded,
    Objective,
    Parts,
    apart,
    copy_log_probability,
    histogram,
    replaced_share,
)


class MLM(Objective):
    """The encoder predicts the original token at the chosen positions (BERT, 1810.04805 section
    3.1, without next-sentence prediction).

    Relations: `bert` with mix (0.8, 0.1, 0.1); with mix (0.85, 0.15, 0) it is what ELECTRA's
    generator trains; with a Generator in place of the mix it is Replace MLM (ELECTRA, 2003.10555
    section 3.5): samples stand where BERT puts [MASK], so pre-training sees no token that
    fine-tuning does not. With a Frequency, Replace MLM without a network; over equal counts that is
    mix (0, 0, 1).
    """

    def __init__(self, corruptor: Corruptor, encoder: Encoder, head: Head) -> None:
        super().__init__()
        self.corruptor = corruptor
        self.encoder = encoder
        self.head = head

    @classmethod
    def build(cls, parts: Parts) -> MLM:
        head = parts.masked_lm_head() if parts.shows_mask else parts.lm_head()
        return cls(parts.corruptor, parts.encoder, head)

    def counts(self, tokens: Tokens, plan: Plan) -> dict[str, Tensor]:
        return {"mlm": count(plan)}

    def passes(self) -> list[Pass]:
        share = self.corruptor.chooser.share
        return [*self.corruptor.passes(), *self.head.passes(self.encoder, share, trains=True)]

    def forward(self, tokens: Tokens, plan: Plan) -> Graded:
        z = self.corruptor(tokens, plan)
        assert z.rows_ME is None, "its head reads tokens"
        states_MD = self.head.read(self.encoder, z.tokens, z.at_M)
        logits_MV = self.head(states_MD)
        losses = {"mlm": Loss(token_ce(logits_MV, z.was_M), z.valid_M)}
        return Graded(z, self.corruptor.likelihood(z) | losses, states_MD, logits_MV)

    def watch(self, graded: Graded) -> Terms:
        z = graded.corrupted
        loss = graded.losses["mlm"]
        if isinstance(z, Masked):
            return lm_rates("mlm", graded.logits, loss, z, mask_id=z.mask_id)
        right_M = is_best(graded.logits, z)
        own = apart("mlm", loss, z.replaced_T[z.at_M]) | {"mlm_accuracy": term(right_M, z.valid_M)}
        return self.corruptor.rates(z, graded.losses) | own | replaced_share(z)


@dataclass(frozen=True, kw_only=True)
class Predicted(Graded):
    """logits: of the gate; log p of the softmax where there is none."""

    log_p_T: Tensor
    """log p of the original token, by the softmax alone."""
    right_T: Tensor
    """Whether that is the most probable one."""


class AllTokensMLM(Objective):
    """The encoder predicts EVERY original token from the corrupted text, with a gate that copies
    the input (ELECTRA, 2003.10555 section 3.5): p(x) = c * 1[x = input] + (1 - c) * softmax(x), c =
    sigmoid(w . h).

    Relations: Replace MLM grades the chosen positions only and has no gate; the gate alone is
    replaced token detection, one minus c being its answer. copy_head: None leaves the gate out,
    p(x) = softmax(x).
    """

    def __init__(
        self, corruptor: Corruptor, encoder: Encoder, head: Head, copy_head: LinearHead | None
    ) -> None:
        super().__init__()
        self.corruptor = corruptor
        self.encoder = encoder
        self.head = head
        self.copy_head = copy_head

    @classmethod
    def build(cls, parts: Parts, *, copy_gate: bool) -> AllTokensMLM:
        gate = LinearHead(parts.shape.hidden_size) if copy_gate else None
        return cls(parts.corruptor, parts.encoder, parts.lm_head(), gate)

    def counts(self, tokens: Tokens, plan: Plan) -> dict[str, Tensor]:
        return {"all_tokens": tokens.real_T.sum()}

    def passes(self) -> list[Pass]:
        gate = [] if self.copy_head is None else [Pass(self.copy_head, 1.0, True)]
        head = Pass(self.head, 1.0, True, again_above=CHUNK)
        return [*self.corruptor.passes(), Pass(self.encoder, 1.0, True), head, *gate]

    def forward(self, tokens: Tokens, plan: Plan) -> Predicted:
        z = self.corruptor(tokens, plan)
        x_TD = self.states(z)
        log_p_T, right_T = log_probability(self.head, x_TD, z.original_T)
        copy_T = None if self.copy_head is None else self.copy_head(x_TD).float()
        loss_T = (
            -log_p_T if copy_T is None else -copy_log_probability(log_p_T, copy_T, ~z.replaced_T)
        )
        losses = self.corruptor.likelihood(z) | {"all_tokens": Loss(loss_T, tokens.real_T)}
        return Predicted(
            z, losses, x_TD, log_p_T if copy_T is None else copy_T, log_p_T=log_p_T, right_T=right_T
        )

    def watch(self, graded: Predicted) -> Terms:
        z = graded.corrupted
        real_T = z.tokens.real_T
        replaced_T = z.replaced_T
        terms = self.corruptor.rates(z, graded.losses) | apart(
            "all_tokens", graded.losses["all_tokens"], replaced_T
        )
        # The loss of the softmax by itself: the one above also pays for the gate, which says "copy"
        # for most replaced tokens.
        terms["softmax_loss_replaced"] = term(-graded.log_p_T, replaced_T & real_T)
        terms["all_tokens_accuracy"] = term(graded.right_T[z.at_M].float(), z.valid_M)
        if self.copy_head is not None and not self.training:
            terms["copy_detection"] = histogram(-graded.logits, replaced_T, real_T)
        return terms | replaced_share(z)
