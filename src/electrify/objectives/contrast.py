"""The contrast of two views of a sequence. Shape suffixes: S sequences, K = 2 S vectors, T flat
tokens, D hidden width."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..corruption.cropping import View
from ..model.heads import VectorHead
from ..terms import Loss


class Contrast(nn.Module):
    """Which crop belongs to which corrupted sequence (COCO-LM, 2102.08473 section 3.2).

    The vectors of both views of every sequence lie in one list; each must find its partner among
    all the others of its group, by cosine / temperature: the loss is the cross-entropy, in nats,
    over both views. A group is `rows` consecutive rows of the global batch, so that the loss is the
    same however the batch is split; with `rows` the whole batch it is that of the paper.
    """

    def __init__(self, width: int, *, rows: int, temperature: float) -> None:
        super().__init__()
        self.head = VectorHead(width)
        self.rows = rows
        self.temperature = temperature

    def forward(self, states_TD: Tensor, crops_TD: Tensor, view: View) -> tuple[Loss, Tensor]:
        """The loss, and [K] whether each vector is most alike to its partner."""
        both_KD = torch.cat([states_TD[view.first_S], crops_TD[view.crop_first_S]])
        vectors_KD = F.normalize(self.head(both_KD).float(), dim=-1)
        apart_KK = ~self.together(view)
        alike_KK = vectors_KD @ vectors_KD.T / self.temperature
        alike_KK = alike_KK.masked_fill(apart_KK, torch.finfo(alike_KK.dtype).min)
        half = len(view.first_S)
        partner_K = torch.arange(2 * half, device=alike_KK.device).roll(half)
        valid_K = None if view.valid_S is None else view.valid_S.repeat(2)
        values_K = F.cross_entropy(alike_KK, partner_K, reduction="none")
        return Loss(values_K, valid_K), alike_KK.argmax(-1) == partner_K

    def together(self, view: View) -> Tensor:
        """[K, K] True where two vectors are compared: another one of the same group."""
        group_S = view.first_S // (view.tokens.row_length * self.rows)
        if view.valid_S is not None:  # fillers are a group of their own
            group_S = torch.where(view.valid_S, group_S, -1)
        group_K = group_S.repeat(2)
        alike_KK = group_K[:, None] == group_K[None, :]
        return alike_KK & ~torch.eye(len(group_K), dtype=torch.bool, device=group_K.device)
