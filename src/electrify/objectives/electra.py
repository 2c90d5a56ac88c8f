"""Replaced token detection. Shape suffixes: T flat tokens, M chosen positions, V vocabulary."""

from __future__ import annotations

from torch import Tensor, nn

from ..corruption.generator import Generator
from ..draws import Draws
from ..model.encoder import Encoder
from ..model.heads import BinaryHead
from ..tokens import Tokens
from .terms import Terms, binary_ce, histogram, lm_terms, term


class Electra(nn.Module):
    """The encoder says of EVERY token whether it is original or replaced (ELECTRA, 2003.10555 section 2): loss = generator + 50 * rtd.

    Relations: the generator trains as MLM does; with a generator that is never wrong nothing is replaced and the task is empty.
    """

    def __init__(self, corruptor: Generator, encoder: Encoder, head: BinaryHead) -> None:
        super().__init__()
        self.corruptor, self.encoder, self.head = corruptor, encoder, head

    def counts(self, tokens: Tokens) -> dict[str, Tensor]:
        return {"generator": self.corruptor.count(tokens), "rtd": tokens.real_T.sum()}

    def forward(self, tokens: Tokens, draws: Draws) -> Terms:
        z = self.corruptor(tokens, draws)
        logits_T, real_T, replaced_T = self.head(self.encoder(z.tokens)), tokens.real_T, z.replaced_T
        assert z.logits_MV is not None
        terms = lm_terms("generator", z.logits_MV, z, self.corruptor.mask.mask_id)
        terms["rtd"] = term(binary_ce(logits_T, replaced_T), real_T)
        terms["replaced"] = term(replaced_T.float(), real_T)
        if not self.training:
            terms["rtd_detection"] = histogram(logits_T, replaced_T, real_T)
        return terms
