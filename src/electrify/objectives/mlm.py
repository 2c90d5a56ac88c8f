"""Masked language modelling. Shape suffixes: T flat tokens, M chosen positions, V vocabulary."""

from __future__ import annotations

from torch import Tensor, nn

from ..corruption.masking import MaskMix
from ..draws import Draws
from ..model.heads import MaskedLM
from ..tokens import Tokens
from .terms import Terms, lm_terms


class MLM(nn.Module):
    """The encoder predicts the original token at the chosen positions (BERT, 1810.04805 section 3.1, without next-sentence prediction).

    Relations: `bert` with mix (.8, .1, .1); with mix (.85, .15, 0) it is what ELECTRA's generator trains.
    """

    def __init__(self, corruptor: MaskMix, lm: MaskedLM) -> None:
        super().__init__()
        self.corruptor, self.lm = corruptor, lm

    def counts(self, tokens: Tokens) -> dict[str, Tensor]:
        return {"mlm": self.corruptor.count(tokens)}

    def forward(self, tokens: Tokens, draws: Draws) -> Terms:
        z = self.corruptor(tokens, draws)
        return lm_terms("mlm", self.lm(z.tokens, z.at_M), z, self.corruptor.mask_id)
