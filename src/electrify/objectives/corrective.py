"""Replaced token detection and correction by one encoder, which may also tell the sequences
of a batch apart.

Shape suffixes: T flat tokens, M chosen positions, V vocabulary, D hidden width, R rows, L row
length, S sequences of all rows, K = 2 S views of them, which a contrast compares.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..corruption.choosing import Plan, count, enough, positions
from ..corruption.corruptor import Corrupted, Corruptor, is_best, lm_rates, substitute
from ..corruption.generator import Generated
from ..draws import Draws
from ..model.costs import Pass, Period
from ..model.encoder import Encoder
from ..model.heads import Head, Network, VectorHead, token_ce
from ..terms import Loss, Terms, term
from ..tokens import Tokens, of_sequence, per_sequence
from .objective import (
    Graded,
    Objective,
    Parts,
    binary_ce,
    chosen_rates,
    copy_log_probability,
    entropy,
    histogram,
    replaced_share,
)

Correction = Literal["plain", "gate", "copy", "none"]


@dataclass(frozen=True)
class CorrectivePlan(Plan):
    masked: bool = False
    """Whether the encoder is a masked language model in this update."""
    view: View | None = None
    """The second view, where a contrast is computed."""


def is_masked(plan: Plan) -> bool:
    return isinstance(plan, CorrectivePlan) and plan.masked


@dataclass(frozen=True, kw_only=True)
class Corrected(Graded):
    """logits: of the head that detects, for every token; none in a batch of a masked language
    model."""

    logits_MV: Tensor
    """The logits of the head that corrects; none where it does not run."""
    found_K: Tensor | None = None
    """Whether each view of a sequence is most similar to its other view; None without a
    contrast."""


class Corrective(Objective):
    """The encoder says of every token whether it was replaced, and at the chosen positions which
    token stood there (COCO-LM, 2102.08473 section 3.2; after METRO-LM, 2204.06644):
    loss = generator + 50 * rtd + correct.

    With z the logit of `replaced` and c = sigmoid(-z), the encoder's belief that a token is the
    original, which gets no gradient here, the loss at a chosen position is

    - plain: -log p(x), as Replace MLM
    - gate: (1 - c) * -log p(x): a token that passes for the original teaches little
    - copy: -log(c * 1[x = x'] + (1 - c) * p(x)), where a replaced token teaches as in `plain`
    - none: nothing is corrected

    mlm_share: for this share of the run, from its start, the encoder is a masked language model
    instead, with the correcting head: it reads the text that the generator reads. Detection then
    begins with an encoder that knows the language. mlm_end_share: the same for the last share.

    contrast: a weighted loss `contrast` also compares sequences (below), which takes a second
    pass through the encoder.

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
        mlm_share: float = 0.0,
        mlm_end_share: float = 0.0,
        contrast: Contrast | None = None,
    ) -> None:
        super().__init__()
        self.corruptor = corruptor
        self.encoder = encoder
        self.head = head
        self.corrector = corrector
        self.correction: Correction = correction
        self.mlm_share = mlm_share
        self.mlm_end_share = mlm_end_share
        self.vectors = contrast  # a vector of each sequence: not word vectors

    @staticmethod
    def group_rows(section: Any) -> int:
        return section.contrast_rows if "contrast" in section.term_weights else 1

    @classmethod
    def build(
        cls,
        parts: Parts,
        *,
        correction: Correction,
        rtd_head: str,
        mlm_share: float,
        mlm_end_share: float,
        contrast_rows: int,
        contrast_temperature: float,
        crop_share: float,
    ) -> Corrective:
        head, corrector, contrast = parts.rtd_head(rtd_head), parts.lm_head(), None
        if "contrast" in parts.losses:
            contrast = Contrast(
                parts.shape.hidden_size,
                rows=contrast_rows,
                temperature=contrast_temperature,
                crop_share=crop_share,
            )
        return cls(
            parts.corruptor,
            parts.encoder,
            head,
            corrector,
            correction=correction,
            mlm_share=mlm_share,
            mlm_end_share=mlm_end_share,
            contrast=contrast,
        )

    def networks(self) -> dict[str, Network]:
        return super().networks() | {"corrector": Network(self.encoder, self.corrector)}

    def plan(self, tokens: Tokens, draws: Draws, *, fixed: bool = False) -> CorrectivePlan:
        plan = self.corruptor.plan(tokens, draws, fixed=fixed)
        # In float32, as the progress is, so that both agree on the update of the change.
        first, last = torch.tensor([self.mlm_share, 1 - self.mlm_end_share])
        # A run without such an end is validated at its end, too.
        ends = self.mlm_end_share > 0 and bool(plan.progress >= last)
        masked = bool(plan.progress < first) or ends
        view = None
        if self.vectors is not None and not masked:
            view = crop(tokens, draws, share=self.vectors.crop_share, fixed=fixed)
        plan = CorrectivePlan(**vars(plan), masked=masked, view=view)
        return plan.counting(**self.counts(tokens, plan))

    def counts(self, tokens: Tokens, plan: Plan) -> dict[str, Tensor]:
        nothing = torch.tensor(0)
        masked = is_masked(plan)
        corrects = masked or self.correction != "none"
        counts = {
            "rtd": nothing if masked else tokens.real_T.sum(),
            "correct": count(plan) if corrects else nothing,
        }
        if self.vectors is not None:
            counts["contrast"] = nothing if masked else self.vectors.count(tokens)
        return counts

    def passes(self) -> list[Pass]:
        return self.periods()[-1].passes

    def _passes(self, *, detects: bool, corrects: bool) -> list[Pass]:
        passes = [*self.corruptor.passes(), Pass(self.encoder, 1.0, True)]
        if detects:
            passes.append(Pass(self.head, 1.0, True))
            passes += [] if self.vectors is None else self.vectors.second_pass(self.encoder)
        share = self.corruptor.chooser.share if corrects else 0.0
        return [*passes, Pass(self.corrector, share, True)]

    def periods(self) -> list[Period]:
        mlm = self._passes(detects=False, corrects=True)
        asks = self._passes(detects=True, corrects=self.correction != "none")
        begins = [Period(0.0, mlm)] if self.mlm_share else []
        ends = [Period(1 - self.mlm_end_share, mlm)] if self.mlm_end_share else []
        return [*begins, Period(self.mlm_share, asks), *ends]

    def forward(self, tokens: Tokens, plan: Plan) -> Corrected:
        z = self.corruptor(tokens, plan)
        if is_masked(plan):
            return self.as_masked_lm(z, tokens, plan)
        states_TD = self.states(z)
        replaced_T = self.head(self.head.inputs(states_TD, z.tokens))
        losses = self.corruptor.likelihood(z)
        losses["rtd"] = Loss(binary_ce(replaced_T, z.replaced_T), tokens.real_T)
        logits_MV, losses["correct"] = self.corrections(z, states_TD, replaced_T)
        found_K = None
        if self.vectors is not None:
            assert isinstance(plan, CorrectivePlan)
            assert plan.view is not None
            losses["contrast"], found_K = self.vectors.partners(self.encoder, states_TD, plan.view)
        return Corrected(z, losses, states_TD, replaced_T, logits_MV=logits_MV, found_K=found_K)

    def corrections(
        self, z: Corrupted, states_TD: Tensor, replaced_T: Tensor
    ) -> tuple[Tensor, Loss]:
        """The logits [M, V] of the words that stood at the chosen positions, and their loss."""
        if self.correction == "none":
            return states_TD[:0], none_of(states_TD)
        logits_MV = self.corrector(states_TD[z.at_M])
        ce_M, kept_M = token_ce(logits_MV, z.was_M), ~z.replaced_T[z.at_M]
        correct_M = correction_loss(ce_M, replaced_T[z.at_M], kept_M, self.correction)
        return logits_MV, Loss(correct_M, z.valid_M)

    def as_masked_lm(self, z: Generated, tokens: Tokens, plan: Plan) -> Corrected:
        """A batch of a part of the run that trains masked language modelling (`mlm_share`,
        `mlm_end_share`). The heads that wait do not run: a parameter without
        a gradient is left as it is by the optimiser, and one with zeros would decay."""
        assert plan.shown_M is not None
        states_TD = self.encoder(substitute(tokens, plan, plan.shown_M))
        logits_MV = self.corrector(states_TD[z.at_M])
        losses = self.corruptor.likelihood(z) | {
            "rtd": none_of(states_TD),
            "correct": Loss(token_ce(logits_MV, z.was_M), z.valid_M),
        }
        if self.vectors is not None:
            losses["contrast"] = none_of(states_TD)
        return Corrected(z, losses, states_TD, states_TD[:0], logits_MV=logits_MV)

    def watch(self, graded: Corrected) -> Terms:
        z = graded.corrupted
        terms = self.corruptor.rates(z, graded.losses) | replaced_share(z)
        if is_masked(z.plan):
            assert isinstance(z, Generated)
            loss = graded.losses["correct"]
            return terms | lm_rates("mlm", graded.logits_MV, loss, z, mask_id=z.mask_id)
        if graded.found_K is not None:
            terms["contrast_accuracy"] = term(
                graded.found_K.float(), graded.losses["contrast"].where_N
            )
        if self.correction != "none":
            correct = graded.losses["correct"]
            terms |= chosen_rates("correct", correct, is_best(graded.logits_MV, z), z)
        if self.training:
            return terms
        terms["rtd_detection"] = histogram(graded.logits, z.replaced_T, z.tokens.real_T)
        return terms | entropy(z)


def none_of(states_TD: Tensor) -> Loss:
    """A loss over no token, on the device of these states."""
    return Loss(
        states_TD.new_zeros(1, dtype=torch.float32), states_TD.new_zeros(1, dtype=torch.bool)
    )


def correction_loss(
    ce_M: Tensor, detected_M: Tensor, kept_M: Tensor, correction: Correction
) -> Tensor:
    """[M] the loss of the correction in nats: ce_M the cross-entropy of the original, detected_M
    the detecting head's logits, kept_M where the token is the original."""
    if correction == "plain":
        return ce_M
    with torch.no_grad():
        copy_M = -detected_M.float()
    if correction == "gate":
        return F.sigmoid(-copy_M) * ce_M
    return -copy_log_probability(-ce_M, copy_M, kept_M)


# ------------------------------------------------------------------ contrast of sequences
#
# Which part of a text belongs to which corrupted sequence (COCO-LM, 2102.08473 section 3.2). A
# crop is a contiguous part of every sequence, in place, after a [CLS] of its own. Rows, slots and
# kernels stay as they are: what is cut off counts as padding.


@dataclass(frozen=True)
class View:
    """The second view of a batch, and where the sequences of both begin."""

    tokens: Tokens
    """The crops."""
    first_S: Tensor
    """Flat position of the [CLS] of each sequence, ascending; filled up with 0 if the list has a
    fixed length."""
    crop_first_S: Tensor
    """The same for the crops."""
    valid_S: Tensor | None
    """Which entries are sequences; None where all are."""


def crop(tokens: Tokens, draws: Draws, *, share: float, fixed: bool = False) -> View:
    """Keeps round(share * tokens), at least one, of the tokens after [CLS] of each sequence; the
    place where the part begins is drawn, each with equal probability. The slot before it becomes
    [CLS], and positions count from there.

    fixed: pad the lists to one of a few lengths.
    """
    rows, length = tokens.num_rows, tokens.row_length
    size_RS = (per_sequence(torch.ones_like(tokens.seq_T), tokens) - 1).clamp(min=0)
    kept_RS = torch.minimum((size_RS.double() * share).round().long().clamp(min=1), size_RS)
    u_T = draws.uniform_T("crop") * tokens.first_T
    u_RS = u_T.new_zeros(size_RS.shape).scatter_add(
        1, tokens.seq_T.view(rows, length), u_T.view(rows, length)
    )
    start_RS = (u_RS * (size_RS - kept_RS + 1)).long()
    # Position of the new [CLS] in the sequence of each token, and of the last token that is kept.
    start_T = of_sequence(start_RS, tokens)
    last_T = start_T + of_sequence(kept_RS, tokens)
    within_T = tokens.real_T & (start_T <= tokens.pos_T) & (tokens.pos_T <= last_T)
    begins_T = within_T & (tokens.pos_T == start_T)
    cls_T = tokens.ids_T[tokens.start_T]
    crops = replace(
        tokens,
        ids_T=torch.where(begins_T, cls_T, tokens.ids_T),
        seq_T=torch.where(within_T, tokens.seq_T, 0),
        pos_T=torch.where(within_T, tokens.pos_T - start_T, 0),
        segment_T=torch.where(begins_T, 0, tokens.segment_T),
        runs=_runs(tokens, fixed=fixed),
    )
    fixed_for = 1 / length if fixed else None
    first_S, valid_S = positions(tokens.first_T, fixed_for=fixed_for)
    crop_first_S, _ = positions(begins_T, fixed_for=fixed_for)
    return View(crops, first_S, crop_first_S, valid_S)


def _runs(tokens: Tokens, *, fixed: bool) -> int | None:
    """A sequence leaves padding on both sides. fixed: one of a few numbers."""
    if tokens.runs is None:
        return None
    return enough(tokens.num_rows, 3 * tokens.runs) if fixed else 3 * tokens.runs


def partner_ce(
    vectors_KD: Tensor, group_S: Tensor, valid_S: Tensor | None, *, temperature: float
) -> tuple[Tensor, Tensor]:
    """[K] cross-entropy, in nats, of finding the partner of each vector, and whether it is the most
    alike (COCO-LM, 2102.08473 section 3.2).

    The list holds a vector for every sequence, then another one for each, its partner. A vector is
    compared, by cosine / temperature, with all others of the same group. valid_S: which entries are
    sequences.
    """
    if not len(vectors_KD):  # a part of a validation may be padding alone
        return vectors_KD.float().sum(-1), torch.zeros(0, dtype=torch.bool, device=group_S.device)
    unit_KD = F.normalize(vectors_KD.float(), dim=-1)
    if valid_S is not None:  # fillers are a group of their own
        group_S = torch.where(valid_S, group_S, -1)
    group_K = group_S.repeat(2)
    itself_KK = torch.eye(len(group_K), dtype=torch.bool, device=group_K.device)
    apart_KK = (group_K[:, None] != group_K[None, :]) | itself_KK
    with torch.autocast(unit_KD.device.type, enabled=False):  # cosines need more than bfloat16
        alike_KK = (unit_KD @ unit_KD.T / temperature).masked_fill(
            apart_KK, torch.finfo(torch.float32).min
        )
    partner_K = torch.arange(len(group_K), device=group_K.device).roll(len(group_S))
    loss_K = F.cross_entropy(alike_KK, partner_K, reduction="none")
    return loss_K, alike_KK.argmax(-1) == partner_K


class Contrast(VectorHead):
    """A sequence is to be most similar to a part of its own text (COCO-LM, 2102.08473 section 3.2).
    The encoder reads a crop of every original, too; of the corrupted sequences and the crops of
    `rows` consecutive rows of the global batch, which belong together? These groups are the same
    however a batch is split.

    temperature: similarities are divided by it. crop_share: the share of a text that a crop keeps.
    """

    def __init__(
        self, hidden_size: int, *, rows: int, temperature: float, crop_share: float
    ) -> None:
        super().__init__(hidden_size)
        self.rows = rows
        self.temperature = temperature
        self.crop_share = crop_share

    def count(self, tokens: Tokens) -> Tensor:
        """How many views are compared."""
        return 2 * tokens.first_T.sum()

    def second_pass(self, encoder: Encoder) -> list[Pass]:
        """In place, the crops fill as many slots as the whole text; the head runs on two tokens of
        a sequence, which is next to nothing."""
        return [Pass(encoder, 1.0, True), Pass(self, 0.0, True)]

    def partners(self, encoder: Encoder, states_TD: Tensor, view: View) -> tuple[Loss, Tensor]:
        """The loss, in nats, and [K] whether each view is most similar to its partner. states_TD:
        what the encoder made of the corrupted text."""
        crops_TD = encoder(view.tokens)
        vectors_KD = self(torch.cat([states_TD[view.first_S], crops_TD[view.crop_first_S]]))
        group_S = view.first_S // (view.tokens.row_length * self.rows)
        temperature = self.temperature
        loss_K, found_K = partner_ce(vectors_KD, group_S, view.valid_S, temperature=temperature)
        return Loss(loss_K, None if view.valid_S is None else view.valid_S.repeat(2)), found_K
