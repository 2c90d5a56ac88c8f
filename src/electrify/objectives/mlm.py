"""Masked language modelling. Shape suffixes: T flat tokens, M chosen positions, V vocabulary."""

from __future__ import annotations

from torch import Tensor, nn

from ..corruption.frequency import Frequency
from ..corruption.generator import Generator
from ..corruption.masking import MaskMix
from ..draws import Draws
from ..model.heads import MaskedLM
from ..model.passes import Pass
from ..tokens import Tokens
from .terms import Terms, apart, generator_terms, likeliest, lm_terms, term, token_ce


class MLM(nn.Module):
    """The encoder predicts the original token at the chosen positions (BERT, 1810.04805 section 3.1, without next-sentence prediction).

    Relations: `bert` with mix (.8, .1, .1); with mix (.85, .15, 0) it is what ELECTRA's generator trains; with a Generator in place of the mix it is
    Replace MLM (ELECTRA, 2003.10555 section 3.5): samples stand where BERT puts [MASK], so pre-training sees no token that fine-tuning does not.
    With a Frequency, Replace MLM without a network; over equal counts that is mix (0, 0, 1).
    """

    def __init__(self, corruptor: MaskMix | Generator | Frequency, lm: MaskedLM) -> None:
        super().__init__()
        self.corruptor, self.lm = corruptor, lm

    def counts(self, tokens: Tokens, draws: Draws) -> dict[str, Tensor]:
        chosen = self.corruptor.chooser.count(tokens, draws)
        return {"generator": chosen, "mlm": chosen} if self.corruptor.trains else {"mlm": chosen}

    def passes(self) -> list[Pass]:
        return [*self.corruptor.passes(), Pass(self.lm.encoder, 1.0, True), Pass(self.lm.head, self.corruptor.chooser.share, True)]

    def forward(self, tokens: Tokens, draws: Draws) -> Terms:
        z = self.corruptor(tokens, draws)
        logits_MV = self.lm(z.tokens, z.at_M)
        if isinstance(self.corruptor, MaskMix):
            return lm_terms("mlm", logits_MV, z, self.corruptor.mask_id)
        replaced_M = z.replaced_T[z.at_M]
        terms = generator_terms(z, self.corruptor.mask_id) | apart("mlm", token_ce(logits_MV, z.was_M), replaced_M, z.there_M)
        terms["mlm_accuracy"] = term((likeliest(logits_MV.detach()) == z.was_M).float(), z.there_M)
        return terms | {"replaced": term(z.replaced_T.float(), tokens.real_T)}
