"""Replaced token detection. Shape suffixes: T flat tokens, M chosen positions, R rows, L row
length, S sequence number, D hidden width."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ..corruption.choosing import Plan, count
from ..corruption.corruptor import Corrupted, Corruptor
from ..model.costs import Pass
from ..model.encoder import Encoder
from ..model.heads import Head, LinearHead
from ..terms import Loss, Terms, term
from ..tokens import Tokens, of_sequence, per_sequence
from .objective import (
    Graded,
    Objective,
    Parts,
    apart,
    binary_ce,
    entropy,
    histogram,
    replaced_share,
)


@dataclass(frozen=True, kw_only=True)
class Judged(Graded):
    """What the forward pass leaves, with predictions about whole sequences."""

    sentence_T: Tensor | None
    """The sentence head's logit at every token; None without that head."""


class Electra(Objective):
    """The encoder says of EVERY token whether it is original or replaced (ELECTRA, 2003.10555
    section 2): loss = generator + 50 * rtd.

    Relations: `electra-15` grades the chosen tokens only (section 3.5); `unigram` and `uniform`
    replace without a network; `two-stage` freezes the generator; with a generator that is never
    wrong nothing is replaced and the task is empty. sentence_head: on [CLS], was anything in the
    sequence replaced (appendix of negative results; needs sequences left whole).
    correct_as_replaced: a draw equal to the original counts as replaced, too, as in Electric;
    section 2 says that the label `original` helps a little.
    """

    def __init__(
        self,
        corruptor: Corruptor,
        encoder: Encoder,
        head: Head,
        *,
        loss_on: Literal["all", "chosen"] = "all",
        correct_as_replaced: bool = False,
        sentence_head: LinearHead | None = None,
    ) -> None:
        super().__init__()
        self.corruptor = corruptor
        self.encoder = encoder
        self.head = head
        self.loss_on = loss_on
        self.correct_as_replaced = correct_as_replaced
        self.sentence_head = sentence_head

    @classmethod
    def build(
        cls,
        parts: Parts,
        *,
        rtd_head: str,
        loss_on: Literal["all", "chosen"],
        correct_as_replaced: bool,
    ) -> Electra:
        head = parts.rtd_head(rtd_head)
        sentence = LinearHead(parts.shape.hidden_size) if "sentence" in parts.losses else None
        own = {
            "loss_on": loss_on,
            "correct_as_replaced": correct_as_replaced,
            "sentence_head": sentence,
        }
        return cls(parts.corruptor, parts.encoder, head, **own)

    def counts(self, tokens: Tokens, plan: Plan) -> dict[str, Tensor]:
        counts = {"rtd": tokens.real_T.sum() if self.loss_on == "all" else count(plan)}
        return counts if self.sentence_head is None else counts | {"sentence": tokens.first_T.sum()}

    def passes(self) -> list[Pass]:
        graded = 1.0 if self.loss_on == "all" else self.corruptor.chooser.share
        heads = [Pass(self.head, graded, True)]
        if self.sentence_head is not None:
            heads.append(Pass(self.sentence_head, 1.0, True))
        return [*self.corruptor.passes(), Pass(self.encoder, 1.0, True), *heads]

    def label_T(self, z: Corrupted) -> Tensor:
        """[T] True for the tokens that it should call replaced."""
        return z.chosen_T if self.correct_as_replaced else z.replaced_T

    def forward(self, tokens: Tokens, plan: Plan) -> Judged:
        z = self.corruptor(tokens, plan)
        states_TD = self.states(z)
        x_TD = self.head.inputs(states_TD, z.tokens)
        losses = self.corruptor.likelihood(z)
        if self.loss_on == "all":
            logits = self.head(x_TD)
            losses["rtd"] = Loss(binary_ce(logits, self.label_T(z)), tokens.real_T)
        else:
            logits = self.head(x_TD[z.at_M])
            losses["rtd"] = Loss(binary_ce(logits, self.label_T(z)[z.at_M]), z.valid_M)
        # Computed for every token, because the number of sequences is not fixed.
        sentence_T = None if self.sentence_head is None else self.sentence_head(states_TD)
        if sentence_T is not None:
            losses["sentence"] = Loss(binary_ce(sentence_T, changed_T(z)), tokens.first_T)
        return Judged(z, losses, states_TD, logits, sentence_T=sentence_T)

    def watch(self, graded: Judged) -> Terms:
        z = graded.corrupted
        label_T = self.label_T(z)
        terms = self.corruptor.rates(z, graded.losses) | replaced_share(z)
        if self.loss_on == "chosen":
            terms |= apart("rtd", graded.losses["rtd"], label_T[z.at_M])
        if graded.sentence_T is not None:
            right_T = (graded.sentence_T > 0) == changed_T(z)
            terms["sentence_accuracy"] = term(right_T.float(), z.tokens.first_T)
        if self.training:
            return terms
        logits_T = graded.logits
        if self.loss_on == "chosen":
            logits_T = self.head(self.head.inputs(graded.states_TD, z.tokens))
        terms["rtd_detection"] = histogram(logits_T, label_T, z.tokens.real_T)
        if self.loss_on == "chosen":  # only these have labels in training
            terms["rtd_chosen_detection"] = histogram(logits_T, label_T, z.chosen_T)
        return terms | entropy(z)


def changed_T(z: Corrupted) -> Tensor:
    """[T] True for the tokens of sequences in which something was replaced."""
    tokens = z.tokens
    counts_RS = per_sequence(z.replaced_T & tokens.real_T, tokens)
    return of_sequence(counts_RS, tokens) > 0
