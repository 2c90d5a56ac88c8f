"""Replaced token detection. Shape suffixes: T flat tokens, M chosen positions, V vocabulary, D hidden width."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from ..corruption.choosing import per_sequence
from ..corruption.frequency import Frequency
from ..corruption.generator import Generator
from ..corruption.two_tower import TwoTower
from ..draws import Draws
from ..model.encoder import Encoder
from ..model.heads import BinaryHead, LinearHead
from ..model.passes import Pass
from ..tokens import Tokens
from .terms import Terms, apart, binary_ce, entropy_term, generator_terms, histogram, term


class Electra(nn.Module):
    """The encoder says of EVERY token whether it is original or replaced (ELECTRA, 2003.10555 section 2): loss = generator + 50 * rtd.

    Relations: `electra-15` grades the chosen tokens only (section 3.5); `unigram` and `uniform` replace without a network; `two-stage` freezes the
    generator; with a generator that is never wrong nothing is replaced and the task is empty. sentence_head: on [CLS], was anything in the sequence
    replaced (appendix of negative results; needs sequences left whole). correct_as_replaced: a draw equal to the original counts as replaced, too,
    as in Electric; section 2 says that the label `original` is worth a little.
    """

    def __init__(
        self,
        corruptor: Generator | Frequency | TwoTower,
        encoder: Encoder,
        head: BinaryHead,
        *,
        loss_on: Literal["all", "chosen"] = "all",
        correct_as_replaced: bool = False,
        sentence_head: LinearHead | None = None,
    ) -> None:
        super().__init__()
        self.corruptor, self.encoder, self.head, self.loss_on, self.sentence_head = corruptor, encoder, head, loss_on, sentence_head
        self.correct_as_replaced = correct_as_replaced

    def counts(self, tokens: Tokens, draws: Draws) -> dict[str, Tensor]:
        c = self.corruptor
        counts = {"generator": c.count(tokens, draws)} if not isinstance(c, Frequency) and c.trains else {}
        counts["rtd"] = tokens.real_T.sum() if self.loss_on == "all" else self.corruptor.chooser.count(tokens, draws)
        if self.sentence_head is not None:
            counts["sentence"] = first_T(tokens).sum()
        return counts

    def passes(self) -> list[Pass]:
        graded = 1.0 if self.loss_on == "all" else self.corruptor.chooser.share
        return [*self.corruptor.passes(), Pass(self.encoder, 1.0, True), Pass(self.head, graded, True)]

    def forward(self, tokens: Tokens, draws: Draws) -> Terms:
        z = self.corruptor(tokens, draws)
        real_T, replaced_T = tokens.real_T, z.chosen_T if self.correct_as_replaced else z.replaced_T
        terms = generator_terms(z, self.corruptor.mask_id)
        x_TD = self.encoder(z.tokens)
        if self.loss_on == "all":
            logits_T = self.head(x_TD)
            terms |= {"rtd": term(binary_ce(logits_T, replaced_T), real_T)}
        else:
            terms |= apart("rtd", binary_ce(self.head(x_TD[z.at_M]), replaced_T[z.at_M]), replaced_T[z.at_M], z.there_M)
        terms["replaced"] = term(z.replaced_T.float(), real_T)
        if not self.training:
            logits_T = self.head(x_TD)
            terms["rtd_detection"] = histogram(logits_T, replaced_T, real_T)
            if self.loss_on == "chosen":  # what it learns; of the other tokens it has never been told
                terms["rtd_chosen_detection"] = histogram(logits_T, replaced_T, z.chosen_T)
            if z.logits_MV is not None:
                terms["generator_entropy"] = entropy_term(z.logits_MV, z.there_M)
        if self.sentence_head is not None:
            at_T = first_T(tokens)
            counts_RS, seq_RL = per_sequence(replaced_T & real_T, tokens), tokens.seq_T.view(-1, tokens.row_length)
            changed_T = counts_RS.gather(1, seq_RL).flatten() > 0
            logits_T = self.sentence_head(x_TD)  # of every token: how many sequences there are is no fixed number
            terms["sentence"] = term(binary_ce(logits_T, changed_T), at_T)
            terms["sentence_accuracy"] = term(((logits_T > 0) == changed_T).float(), at_T)
        return terms


def first_T(tokens: Tokens) -> Tensor:
    """True at the first token of each sequence: [CLS]."""
    return (tokens.pos_T == 0) & tokens.real_T
