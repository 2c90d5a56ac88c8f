"""Texts -> vectors of an encoder, and what makes their cosines comparable: centring and whitening.

Shape suffixes: N texts, B texts of a batch, L tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..downstream import loop
from ..downstream.encoder import load
from ..downstream.examples import Example
from ..downstream.heads import Batch, Finetuned
from ..downstream.lengths import Cut
from ..downstream.problems.texts import Texts
from ..downstream.tasks import TaskData
from ..errors import UserError
from .kinds import kept

MAX_SEQ_LENGTH = 512
_LEAST_SHARE = 1e-6
"""A direction has at least this share of the largest variance: below it there is only rounding,
which whitening would make as large as everything else."""


class Pool(nn.Module):
    """A head without weights: one vector for each text (see heads.py)."""

    def __init__(self, pooling: str, *, last: bool) -> None:
        super().__init__()
        self.pooling = pooling
        self.last = last

    def answers(self, states_BLD: Tensor, batch: Batch) -> dict[str, Tensor]:
        states_BLD = states_BLD.float()
        if self.pooling == "mean":
            mask_BL1 = batch.inputs["attention_mask"][..., None].float()
            return {"vectors": (states_BLD * mask_BL1).sum(1) / mask_BL1.sum(1)}
        if not self.last:
            return {"vectors": states_BLD[:, 0]}
        rows_B = torch.arange(len(states_BLD), device=states_BLD.device)
        return {"vectors": states_BLD[rows_B, batch.lengths_B.long() - 1]}


class Embedder:
    """An encoder that gives a vector for each text. cut: what was cut so far."""

    def __init__(
        self, model: str, *, pooling: str, max_seq_length: int | None, device: str, bf16: str
    ) -> None:
        """Loads the encoder. Raises UserError if that fails, or if it reads fewer tokens."""
        model = kept(model)
        self.name = model
        self.device = loop.device_named(device)
        self.bf16 = loop.computes_in_bf16(bf16, self.device)
        self.loaded = load(model, device=self.device)
        positions = self.loaded.positions
        if max_seq_length is not None and max_seq_length > positions:
            raise UserError(
                f"{model}: reads {positions} tokens at most; give --max-seq-length {positions}"
            )
        length = max_seq_length or min(MAX_SEQ_LENGTH, positions)
        self.cut = Cut(self.loaded, length=length)
        self.net = Finetuned(self.loaded.encoder, Pool(pooling, last=self.loaded.last)).eval()
        one = (Example("a", None, 0.0),)  # stands in for a task's own; nothing is learnt from it
        task = TaskData("vectors", "regression", (), (), 1, one, one)
        self.texts = Texts(task, self.loaded, max_seq_length=length, device=self.device)

    @property
    def width(self) -> int:
        return self.loaded.width

    def vectors(
        self, examples: Sequence[Example], *, after: Callable[[float], None] = lambda share: None
    ) -> Tensor:
        """[N, D], float32, on the CPU. Raises UserError if they are not numbers."""
        held = self.texts.held_out(examples)
        rows = len(examples)
        found_ND = loop.predict(
            self.net, held.data, bf16=self.bf16, after=lambda done: after(done / rows)
        )["vectors"]
        self.cut.add(examples, held.data.lengths_N.tolist())
        if not bool(found_ND.isfinite().all()):
            raise UserError(
                f"{self.name}: its states are not numbers; the model is damaged or diverged"
            )
        return found_ND


@dataclass(frozen=True)
class Transform:
    """(vectors - mean_D) @ matrix_DD; without a matrix only centred."""

    mean_D: Tensor
    matrix_DD: Tensor | None = None

    def __call__(self, vectors_ND: Tensor) -> Tensor:
        centred_ND = vectors_ND.double() - self.mean_D
        if self.matrix_DD is not None:
            centred_ND = centred_ND @ self.matrix_DD
        return centred_ND.float()


def fitted(blocks: Iterable[Tensor], *, width: int, whiten: bool, shown: str) -> Transform:
    """The transform that gives the vectors of all blocks together the mean 0 and, where they are
    whitened, the identity as covariance (Su et al. 2021, 2103.15316). One pass, in float64.

    Raises UserError for too few vectors: `width` of them or fewer have directions without variance.
    """
    count = 0
    shift_D: Any = None
    sum_D = torch.zeros(width, dtype=torch.float64)
    products_DD = torch.zeros(width, width, dtype=torch.float64)
    for block_ND in blocks:
        vectors_ND = block_ND.double()
        if shift_D is None:  # near the mean, or the products would lose digits
            shift_D = vectors_ND.mean(0)
        moved_ND = vectors_ND - shift_D
        count += len(moved_ND)
        sum_D += moved_ND.sum(0)
        if whiten:
            products_DD += moved_ND.T @ moved_ND
    if count == 0:
        raise UserError(f"{shown}: no texts, so there is nothing to centre on")
    if whiten and count <= width:
        raise UserError(
            f"{shown}: {count:,} texts, and whitening vectors of width {width} needs more than "
            f"{width}; take more texts, or --center"
        )
    mean_D = sum_D / count
    if not whiten:
        return Transform(shift_D + mean_D)
    variances_D, axes_DD = torch.linalg.eigh(products_DD / count - torch.outer(mean_D, mean_D))
    variances_D = variances_D.clamp(min=float(variances_D.max()) * _LEAST_SHARE)
    if float(variances_D.max()) <= 0:
        raise UserError(f"{shown}: all texts have the same vector, so nothing can be whitened")
    return Transform(shift_D + mean_D, (axes_DD / variances_D.sqrt()).flip(1))
