"""Which part of a text belongs to which corrupted sequence. Shape suffixes: T flat tokens, D hidden
width, S sequences, K = 2 S views of them."""

from __future__ import annotations

import torch
from torch import Tensor

from ..corruption.cropping import View, crop
from ..draws import Draws
from ..model.costs import Pass
from ..model.encoder import Encoder
from ..model.heads import VectorHead
from ..terms import Loss
from ..tokens import Tokens
from .losses import partner_ce


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
