"""Heads that answer a question with a span of its context (see heads.py).

Shape suffixes: B examples, L tokens, D width, K spans kept, J starts in the beam, H hidden.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .heads import Batch, linear

# The width of the joint head's hidden layers (google-research/electra), whatever the encoder's
# width.
JOINT_WIDTH = 512
ANSWERABLE_WEIGHT = 0.5
NEVER = -1e30  # a logit that vanishes in a softmax, but gives no NaN if all logits are equal to it


class SpanHead(nn.Module):
    """One linear layer to a start and an end logit (as in BERT). "No answer" is the class token as
    start and end; the no-answer score is its sum of logits minus that of the best span."""

    def __init__(
        self,
        width: int,
        *,
        dropout: float,
        std: float | None,
        last: bool,
        keep: int,
        longest_answer: int,
    ) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out = linear(width, 2, std)
        self.last = last
        self.keep = keep
        self.longest_answer = longest_answer

    def forward(self, states_BLD: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Start and end logits [B, L] at the places and the class token; elsewhere they are very
        large negative numbers."""
        assert batch.places_BL is not None
        logits_BL2 = self.out(self.dropout(states_BLD.float()))
        allowed_BL = batch.places_BL.scatter(1, class_tokens(batch, last=self.last)[:, None], True)
        start_BL, end_BL = logits_BL2.masked_fill(~allowed_BL[..., None], NEVER).unbind(-1)
        return start_BL, end_BL

    def loss(self, states_BLD: Tensor, batch: Batch) -> Tensor:
        start_BL, end_BL = self(states_BLD, batch)
        start_B, end_B, none_B = batch.targets.long().unbind(1)
        null_B = class_tokens(batch, last=self.last)
        start_B, end_B = (torch.where(none_B == 1, null_B, at_B) for at_B in (start_B, end_B))
        return (F.cross_entropy(start_BL, start_B) + F.cross_entropy(end_BL, end_B)) / 2

    def answers(self, states_BLD: Tensor, batch: Batch) -> dict[str, Tensor]:
        start_BL, end_BL = self(states_BLD, batch)
        assert batch.places_BL is not None
        at_B1 = class_tokens(batch, last=self.last)[:, None]
        null_B = (start_BL.gather(1, at_B1) + end_BL.gather(1, at_B1))[:, 0]
        start_BL, end_BL = (x.masked_fill(~batch.places_BL, NEVER) for x in (start_BL, end_BL))
        length = states_BLD.shape[1]
        scores_BLL = start_BL[:, :, None] + end_BL[:, None, :]
        scores_BLL = scores_BLL.masked_fill(
            ~_spans(length, self.longest_answer, start_BL.device), NEVER
        )
        scores_BK, at_BK = best(scores_BLL.flatten(1), self.keep)
        return {
            "scores": scores_BK,
            "starts": at_BK // length,
            "ends": at_BK % length,
            "null": null_B,
        }


class JointHead(nn.Module):
    """Start, then the end given the start, and whether there is an answer at all. ELECTRA's own
    head (electra_head.py) without the class token: it learns spans only from windows with an
    answer, and only spans of the context are in the beam.

    The end's logits come from a hidden layer on the state and the start's state; in training the
    true start, otherwise the `beam` likeliest starts. A separate classifier decides whether there
    is no answer, from the class token's state and the mean of all states weighted with the starts'
    probabilities.
    """

    def __init__(
        self,
        width: int,
        *,
        dropout: float,
        std: float | None,
        last: bool,
        keep: int,
        longest_answer: int,
        beam: int,
        answerable: bool,
    ) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.last = last
        self.keep = keep
        self.longest_answer = longest_answer
        self.beam = beam
        self.start = linear(width, 1, std)
        self.from_state = linear(width, JOINT_WIDTH, std)
        self.from_start = linear(width, JOINT_WIDTH, std)
        self.end = linear(JOINT_WIDTH, 1, std)
        self.none = (
            nn.Sequential(
                linear(2 * width, JOINT_WIDTH, std), nn.GELU(), linear(JOINT_WIDTH, 1, std)
            )
            if answerable
            else None
        )

    def loss(self, states_BLD: Tensor, batch: Batch) -> Tensor:
        states_BLD = self.dropout(states_BLD.float())
        start_B, end_B, none_B = batch.targets.long().unbind(1)
        start_BL = self._starts(states_BLD, batch)
        given_BD = states_BLD[torch.arange(len(start_B), device=start_B.device), start_B]
        end_BL = self._ends(self.from_state(states_BLD), given_BD, batch)
        span_B = (
            F.cross_entropy(start_BL, start_B, reduction="none")
            + F.cross_entropy(end_BL, end_B, reduction="none")
        ) / 2
        loss = (span_B * (none_B == 0)).mean()
        if self.none is None:
            return loss
        return loss + ANSWERABLE_WEIGHT * F.binary_cross_entropy_with_logits(
            self._none(states_BLD, start_BL, batch), none_B.float()
        )

    def answers(self, states_BLD: Tensor, batch: Batch) -> dict[str, Tensor]:
        states_BLD = states_BLD.float()
        start_BL = self._starts(states_BLD, batch)
        b, length = start_BL.shape
        rows_B = torch.arange(len(start_BL), device=start_BL.device)
        beam_BJ, at_BJ = best(start_BL.log_softmax(-1), self.beam)
        may_LL = _spans(length, self.longest_answer, start_BL.device)
        hidden_BLH = self.from_state(states_BLD)
        scores_BJL = start_BL.new_full((b, self.beam, length), NEVER)
        # One start after the other: all at once would take beam * L * 512 numbers per row.
        for j in range(self.beam):
            end_BL = self._ends(hidden_BLH, states_BLD[rows_B, at_BJ[:, j]], batch).log_softmax(-1)
            scores_BJL[:, j] = (beam_BJ[:, j, None] + end_BL).masked_fill(
                ~may_LL[at_BJ[:, j]], NEVER
            )
        scores_BK, found_BK = best(scores_BJL.flatten(1), self.keep)
        none_B = (
            start_BL.new_zeros(b) if self.none is None else self._none(states_BLD, start_BL, batch)
        )
        return {
            "scores": scores_BK,
            "starts": at_BJ.gather(1, found_BK // length),
            "ends": found_BK % length,
            "null": none_B,
        }

    def _starts(self, states_BLD: Tensor, batch: Batch) -> Tensor:
        assert batch.places_BL is not None
        return self.start(states_BLD)[..., 0].masked_fill(~batch.places_BL, NEVER)

    def _ends(self, hidden_BLH: Tensor, given_BD: Tensor, batch: Batch) -> Tensor:
        assert batch.places_BL is not None
        return self.end(F.gelu(hidden_BLH + self.from_start(given_BD)[:, None]))[
            ..., 0
        ].masked_fill(~batch.places_BL, NEVER)

    def _none(self, states_BLD: Tensor, start_BL: Tensor, batch: Batch) -> Tensor:
        assert self.none is not None
        class_BD = states_BLD[
            torch.arange(len(states_BLD), device=states_BLD.device),
            class_tokens(batch, last=self.last),
        ]
        mean_BD = torch.einsum("bl,bld->bd", start_BL.softmax(-1), states_BLD)
        return self.none(torch.cat([class_BD, mean_BD], -1))[:, 0]


def class_tokens(batch: Batch, *, last: bool) -> Tensor:
    """The position of the class token in each row, [B]."""
    return (
        batch.lengths_B.long() - 1 if last else torch.zeros_like(batch.lengths_B, dtype=torch.long)
    )


def _spans(length: int, longest: int, device: torch.device) -> Tensor:
    """[L, L]: whether (start, end), both inside, is a span of at most `longest` tokens."""
    at = torch.arange(length, device=device)
    far = at[None, :] - at[:, None]
    return (far >= 0) & (far < longest)


def best(scores_BN: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """The `keep` largest values and their positions, padded with impossible ones if there are
    fewer."""
    found = scores_BN.topk(min(keep, scores_BN.shape[1]), dim=1)
    short = keep - found.values.shape[1]
    return F.pad(found.values, (0, short), value=NEVER), F.pad(found.indices, (0, short))
