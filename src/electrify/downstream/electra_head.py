"""ELECTRA's own head for questions, as its public code has it (google-research/electra,
finetune/qa/qa_tasks.py).

Shape suffixes: B windows, L tokens, D width, H hidden units, J starts of the beam.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .answer_heads import ANSWERABLE_WEIGHT, JOINT_WIDTH, NEVER, best, class_tokens
from .heads import Batch, linear


class ElectraHead(nn.Module):
    """Start, the end given the start, and whether the question has an answer at all.

    The class token may be start and end: a window without the answer is trained to point at it,
    also for SQuAD 1.1.

    - start: linear, D -> 1;
    - end: linear, 2 D -> 512, gelu, linear, 512 -> 1, on the start's state and the token's;
    - none: the same shape, on the class token's state and the mean state under the probabilities of
      starts.

    loss: (cross-entropy of the start + that of the end given the true start) / 2 + .5 * binary
    cross-entropy of `none`, of all windows. `none` says whether the QUESTION has no answer: a
    window without the answer of a question that has one is a 0 there.

    Answers are the `beam` likeliest starts, each with its `beam` likeliest ends, whatever they are:
    [B, beam^2] scores (log-probabilities), starts, ends. Which of them are spans of a context is
    decided by problems/answering.py, as in the public code.
    """

    def __init__(
        self, width: int, *, dropout: float, std: float | None, last: bool, beam: int
    ) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.last = last
        self.beam = beam
        self.start = linear(width, 1, std)
        self.hidden = linear(2 * width, JOINT_WIDTH, std)
        self.end = linear(JOINT_WIDTH, 1, std)
        self.none = nn.Sequential(
            linear(2 * width, JOINT_WIDTH, std), nn.GELU(), linear(JOINT_WIDTH, 1, std)
        )

    def loss(self, states_BLD: Tensor, batch: Batch) -> Tensor:
        """batch.targets: start, end, whether the question has no answer, [B, 3]."""
        states_BLD = self.dropout(states_BLD.float())
        start_B, end_B, none_B = batch.targets.long().unbind(1)
        allowed_BL = self._allowed(batch)
        start_BL = self._starts(states_BLD, allowed_BL)
        end_BL = self._ends(self._of_tokens(states_BLD), _at(states_BLD, start_B), allowed_BL)
        spans = (F.cross_entropy(start_BL, start_B) + F.cross_entropy(end_BL, end_B)) / 2
        return spans + ANSWERABLE_WEIGHT * F.binary_cross_entropy_with_logits(
            self._none(states_BLD, start_BL, batch), none_B.float()
        )

    def answers(self, states_BLD: Tensor, batch: Batch) -> dict[str, Tensor]:
        states_BLD = states_BLD.float()
        allowed_BL = self._allowed(batch)
        start_BL = self._starts(states_BLD, allowed_BL)
        start_BJ, at_BJ = best(start_BL.log_softmax(-1), self.beam)
        hidden_BLH = self._of_tokens(states_BLD)
        scores = list[Tensor]()
        ends = list[Tensor]()
        # One start after the other: all at once would be beam * L * 512 numbers a row.
        for j in range(self.beam):
            end_BL = self._ends(hidden_BLH, _at(states_BLD, at_BJ[:, j]), allowed_BL)
            end_BJ, to_BJ = best(end_BL.log_softmax(-1), self.beam)
            scores.append(start_BJ[:, j, None] + end_BJ)
            ends.append(to_BJ)
        starts_BK = at_BJ.repeat_interleave(self.beam, dim=1)
        none_B = self._none(states_BLD, start_BL, batch)
        return {
            "scores": torch.cat(scores, 1),
            "starts": starts_BK.int(),
            "ends": torch.cat(ends, 1).int(),
            "null": none_B,
        }

    def _allowed(self, batch: Batch) -> Tensor:
        """[B, L]: the places of the batch and the class token."""
        assert batch.places_BL is not None
        return batch.places_BL.scatter(1, class_tokens(batch, last=self.last)[:, None], True)

    def _starts(self, states_BLD: Tensor, allowed_BL: Tensor) -> Tensor:
        return self.start(states_BLD)[..., 0].masked_fill(~allowed_BL, NEVER)

    def _of_tokens(self, states_BLD: Tensor) -> Tensor:
        """The contribution of the tokens' states to the hidden layer, which is the same for every
        start: [B, L, H]."""
        return F.linear(states_BLD, self.hidden.weight[:, states_BLD.shape[-1] :], self.hidden.bias)

    def _ends(self, hidden_BLH: Tensor, given_BD: Tensor, allowed_BL: Tensor) -> Tensor:
        from_start_BH = F.linear(given_BD, self.hidden.weight[:, : given_BD.shape[-1]])
        return self.end(F.gelu(hidden_BLH + from_start_BH[:, None]))[..., 0].masked_fill(
            ~allowed_BL, NEVER
        )

    def _none(self, states_BLD: Tensor, start_BL: Tensor, batch: Batch) -> Tensor:
        mean_BD = torch.einsum("bl,bld->bd", start_BL.softmax(-1), states_BLD)
        return self.none(
            torch.cat([_at(states_BLD, class_tokens(batch, last=self.last)), mean_BD], -1)
        )[:, 0]


def _at(states_BLD: Tensor, at_B: Tensor) -> Tensor:
    """The state at one place of each row, [B, D]."""
    return states_BLD[torch.arange(len(at_B), device=at_B.device), at_B]
