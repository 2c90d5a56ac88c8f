"""Masked language modelling. Shape suffixes: M chosen positions, V vocabulary, D hidden width."""

from __future__ import annotations

from torch import Tensor

from ..corruption.choosing import Plan, count
from ..corruption.corruptor import Corruptor, lm_rates, right
from ..corruption.masking import Masked
from ..model.costs import Pass
from ..model.encoder import Encoder
from ..model.heads import Head
from ..model.likelihood import token_ce
from ..terms import Loss, Terms, term
from ..tokens import Tokens
from .metrics import apart, replaced_share
from .objective import Graded, Objective, Parts


class MLM(Objective):
    """The encoder predicts the original token at the chosen positions (BERT, 1810.04805 section
    3.1, without next-sentence prediction).

    Relations: `bert` with mix (0.8, 0.1, 0.1); with mix (0.85, 0.15, 0) it is what ELECTRA's
    generator trains; with a Generator in place of the mix it is Replace MLM (ELECTRA, 2003.10555
    section 3.5): samples stand where BERT puts [MASK], so pre-training sees no token that
    fine-tuning does not. With a Frequency, Replace MLM without a network; over equal counts that is
    mix (0, 0, 1).
    """

    def __init__(
        self, corruptor: Corruptor, encoder: Encoder, head: Head, *, reads_mask: bool = False
    ) -> None:
        super().__init__()
        self.corruptor = corruptor
        self.encoder = encoder
        self.head = head
        self.reads_mask = reads_mask

    @classmethod
    def build(cls, parts: Parts) -> MLM:
        head = parts.masked_lm_head() if parts.shows_mask else parts.lm_head()
        return cls(parts.corruptor, parts.encoder, head, reads_mask=parts.shows_mask)

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
        if self.reads_mask:
            assert isinstance(z, Masked)
            return lm_rates("mlm", graded.logits, loss, z, mask_id=z.mask_id)
        right_M = right(graded.logits, z)
        own = apart("mlm", loss, z.replaced_T[z.at_M]) | {"mlm_accuracy": term(right_M, z.valid_M)}
        return self.corruptor.rates(z, graded.losses) | own | replaced_share(z)
