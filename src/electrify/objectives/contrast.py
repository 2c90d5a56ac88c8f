"""Contrast of sequences: which part of a text belongs to which corrupted sequence (COCO-LM,
2102.08473 section 3.2).

A crop is a contiguous part of every sequence, in place, after a [CLS] of its own. Rows, slots and
kernels stay as they are: what is cut off counts as padding.

Shape suffixes: T flat tokens, R rows, L row length, D hidden width, S sequences of all rows,
K = 2 S views of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ..corruption.choosing import enough, positions
from ..draws import Draws
from ..model.costs import Pass
from ..model.encoder import Encoder
from ..model.heads import VectorHead
from ..terms import Loss
from ..tokens import Tokens, of_sequence, per_sequence


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

    def view(self, tokens: Tokens, draws: Draws, *, fixed: bool) -> View:
        return crop(tokens, draws, share=self.crop_share, fixed=fixed)

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
