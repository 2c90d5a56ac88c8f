"""Texts with the encoder left as it is: the mean of the states of a text is computed once a run,
and a linear head learns on it, in seconds where fine-tuning takes minutes.

A pair is read as two texts, u and v, and the head sees u, v, |u - v| and u * v (SentEval,
Conneau and Kiela 2018, 1803.05449).

Shape suffixes: N texts, B texts of a batch, L tokens, D width, F features, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..encoder import Loaded
from ..examples import Example
from ..features import Standard, layers_taken
from ..heads import Loss, linear, rows_known
from ..loop import most_tokens, pieces
from ..rows import Rows
from ..tasks import TaskData
from .problem import Answers, HeldOut
from .texts import Texts

PAIR_FEATURES = 4  # u, v, |u - v|, u * v


@dataclass(frozen=True)
class Pooled:
    """Texts, or pairs of them, with their features: rows for the loop."""

    states_NF: Tensor
    targets: Tensor
    """[N], or [N, C] for several classes each."""

    @property
    def lengths_N(self) -> Tensor:
        """All equal: rows of features have no length."""
        return torch.ones(len(self.states_NF), dtype=torch.long)

    @property
    def device(self) -> torch.device:
        return self.states_NF.device

    def batch(self, index_B: Tensor) -> tuple[Tensor, Tensor]:
        at_B = index_B.to(self.device)
        return self.states_NF[at_B], self.targets[at_B]


class TextProbe(nn.Module):
    """A linear layer on features."""

    def __init__(
        self, features: int, num_outputs: int, *, dropout: float, std: float | None, grade: Loss
    ) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out = linear(features, num_outputs, std)
        self.grade = grade

    def forward(self, states_BF: Tensor) -> Tensor:
        """Logits [B, C]."""
        with torch.autocast(states_BF.device.type, enabled=False):
            return self.out(self.dropout(states_BF))

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        states_BF, targets = batch
        return self.grade(self(states_BF), targets)

    def weight(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        return rows_known(batch[1])

    def answers(self, batch: tuple[Tensor, Tensor]) -> Answers:
        return {"logits": self(batch[0])}


class FrozenTexts(Texts):
    """Texts on features: see problem.Problem. layers: the last one, the last four, or all and the
    embeddings, concatenated.

    Each feature is standardised by its mean and deviation over the training examples.
    """

    def __init__(
        self,
        task: TaskData,
        loaded: Loaded,
        *,
        max_seq_length: int,
        device: torch.device,
        layers: str,
        bf16: bool,
        regression_targets: str = "standardised",
        class_weights: str = "none",
    ) -> None:
        super().__init__(
            task,
            loaded,
            max_seq_length=max_seq_length,
            device=device,
            regression_targets=regression_targets,
            class_weights=class_weights,
        )
        self.taken = layers_taken(layers, loaded)
        self.bf16 = bf16
        self.pairs = any(isinstance(e, Example) and e.pair is not None for e in task.train)
        self.standard: Standard | None = None

    def model(self, *, dropout: float, std: float | None) -> TextProbe:  # type: ignore[override]
        features = self.taken * self.loaded.width * (PAIR_FEATURES if self.pairs else 1)
        return TextProbe(
            features,
            self.task.num_outputs,
            dropout=dropout,
            std=std,
            grade=self.grade(),
        ).to(self.device)

    def training(self, examples: Sequence[Example]) -> Pooled:  # type: ignore[override]
        if self.task.kind == "regression":
            self.center, self.scale = self._normalisation(examples)
        pooled = self._pooled(examples)
        self.standard = Standard.of(pooled.states_NF)
        self.standard.apply(pooled.states_NF)
        return pooled

    def held_out(self, examples: Sequence[Example]) -> HeldOut:
        assert self.standard is not None, "training examples come first"
        pooled = self._pooled(examples)
        self.standard.apply(pooled.states_NF)
        return HeldOut(examples, pooled)

    def _pooled(self, examples: Sequence[Example]) -> Pooled:
        if not self.pairs:
            u_NF = self._means(self.sides(examples)[0])
            return Pooled(u_NF, self._targets(examples).to(self.device))
        u_NF, v_NF = self.pair_means(examples)
        both_NF = torch.cat([u_NF, v_NF, (u_NF - v_NF).abs(), u_NF * v_NF], -1)
        return Pooled(both_NF, self._targets(examples).to(self.device))

    def pair_means(self, examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
        """[N, F] twice, in float32: the mean states of the first and of the second texts."""
        u_NF, v_NF = map(self._means, self.sides(examples))
        return u_NF, v_NF

    def sides(self, examples: Sequence[Example]) -> list[list[Example]]:
        """The texts that the encoder reads, each alone: the first ones, and the second ones of
        pairs."""
        found = [[replace(e, pair=None) for e in examples]]
        if self.pairs:
            found.append([replace(e, text=e.pair or "", pair=None) for e in examples])
        return found

    def _means(self, examples: Sequence[Example]) -> Tensor:
        """[N, F] in float32: the mean of each text's states, special tokens included."""
        rows: Rows = self._rows(examples)
        encoder = self.loaded.encoder
        encoder.eval()
        found_NF = torch.empty(len(examples), self.taken * self.loaded.width, device=self.device)
        numbers_N = torch.arange(len(examples))
        with torch.no_grad(), torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            for index_B in pieces(numbers_N, rows.lengths_N, most_tokens(self.device)):
                inputs = rows.inputs(index_B)
                layers = encoder(**inputs, output_hidden_states=True).hidden_states[-self.taken :]
                mask_BL1 = inputs["attention_mask"][..., None].float()
                means = [(x.float() * mask_BL1).sum(1) / mask_BL1.sum(1) for x in layers]
                found_NF[index_B.to(self.device)] = torch.cat(means, -1)
        return found_NF
