"""The learned corruptor. Shape suffixes: T flat tokens, M chosen positions, V vocabulary."""

from __future__ import annotations

from torch import Tensor, nn

from ..draws import Draws
from ..model.heads import MaskedLM
from ..tokens import Tokens
from .masking import Corrupted, MaskMix, substitute
from .sampling import sample


class Generator(nn.Module):
    """Fills masked positions with samples from a masked LM (ELECTRA, 2003.10555 section 2).

    The corrupted text starts from the ORIGINAL, also where the mix kept or randomised a token, with the samples at the chosen positions.
    """

    def __init__(self, mask: MaskMix, lm: MaskedLM, *, temperature: float) -> None:
        super().__init__()
        self.mask, self.lm, self.temperature = mask, lm, temperature

    def count(self, tokens: Tokens) -> Tensor:
        return self.mask.count(tokens)

    def forward(self, tokens: Tokens, draws: Draws) -> Corrupted:
        masked = self.mask(tokens, draws)
        logits_MV = self.lm(masked.tokens, masked.at_M)
        sampled_M = sample(logits_MV, draws.uniform_T("sample")[masked.at_M], temperature=self.temperature)
        return substitute(tokens, masked.at_M, sampled_M, shown_M=masked.shown_M, logits_MV=logits_MV)
