"""All-Tokens MLM. Shape suffixes: T flat tokens, D hidden width."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..corruption.frequency import Frequency
from ..corruption.generator import Generator
from ..draws import Draws
from ..model.encoder import Encoder
from ..model.heads import LinearHead, LMHead
from ..model.likelihood import CHUNK, log_probability
from ..model.passes import Pass
from ..tokens import Tokens
from .terms import Terms, apart, generator_terms, histogram, term


def copy_log_probability(log_p_T: Tensor, copy_T: Tensor, same_T: Tensor) -> Tensor:
    """[T] log of c * 1[token = input] + (1 - c) * p(token), with c = sigmoid(copy) and same_T true where the token asked for is the input."""
    new_T = F.logsigmoid(-copy_T) + log_p_T
    return torch.where(same_T, torch.logaddexp(F.logsigmoid(copy_T), new_T), new_T)


class AllTokensMLM(nn.Module):
    """The encoder predicts EVERY original token from the corrupted text, with a gate that copies the input (ELECTRA, 2003.10555 section 3.5):
    p(x) = c * 1[x = input] + (1 - c) * softmax(x), c = sigmoid(w . h).

    Relations: Replace MLM grades the chosen positions only and has no gate; the gate alone is replaced token detection, one minus c being its answer.
    copy_head: None leaves the gate out, p(x) = softmax(x).
    """

    def __init__(self, corruptor: Generator | Frequency, encoder: Encoder, head: LMHead, copy_head: LinearHead | None) -> None:
        super().__init__()
        self.corruptor, self.encoder, self.head, self.copy_head = corruptor, encoder, head, copy_head

    def counts(self, tokens: Tokens, draws: Draws) -> dict[str, Tensor]:
        c = self.corruptor
        counts = {"generator": c.count(tokens, draws)} if isinstance(c, Generator) and c.trains else {}
        return counts | {"all_tokens": tokens.real_T.sum()}

    def passes(self) -> list[Pass]:
        gate = [] if self.copy_head is None else [Pass(self.copy_head, 1.0, True)]
        return [*self.corruptor.passes(), Pass(self.encoder, 1.0, True), Pass(self.head, 1.0, True, again_above=CHUNK), *gate]

    def forward(self, tokens: Tokens, draws: Draws) -> Terms:
        z = self.corruptor(tokens, draws)
        real_T, replaced_T = tokens.real_T, z.replaced_T
        x_TD = self.encoder(z.tokens)
        log_p_T, right_T = log_probability(self.head, x_TD, z.original_T)
        copy_T = None if self.copy_head is None else self.copy_head(x_TD).float()
        loss_T = -log_p_T if copy_T is None else -copy_log_probability(log_p_T, copy_T, ~replaced_T)
        terms = generator_terms(z, self.corruptor.mask_id) | apart("all_tokens", loss_T, replaced_T, real_T)
        # Of the softmax by itself: the loss above pays for the gate, too, which says "copy" of most replaced tokens.
        terms["softmax_loss_replaced"] = term(-log_p_T.detach(), replaced_T & real_T)
        terms["all_tokens_accuracy"] = term(right_T[z.at_M].float(), z.there_M)
        terms["replaced"] = term(replaced_T.float(), real_T)
        if copy_T is not None and not self.training:
            terms["copy_detection"] = histogram(-copy_T, replaced_T, real_T)
        return terms
