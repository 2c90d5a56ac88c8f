"""A whole text, or two, with a class, several classes or a value: GLUE's kind of task."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .. import metrics
from ..class_weights import class_weights as weights_of
from ..encoder import Loaded
from ..examples import Example
from ..heads import Finetuned, Loss, TextHead, grade_class, grade_each, grade_value
from ..probability_metrics import UNKNOWN
from ..rows import Rows, rows_of
from ..submission import answers_tsv
from ..targets import several
from ..tasks import TaskData
from ..validation_table import validation_csv
from .problem import Answers, HeldOut


class Texts:
    """See problem.Problem. Regression learns (value - center) / scale; correlations do not notice.

    regression_targets: what the center and the scale are.

    - standardised: mean and deviation of the training examples; with values of 0 to 5, the bias
      would first have to move there.
    - unit: the least value and the width of the task's range, or else of its training examples'
      range: 0 to 1.
    - raw: 0 and 1.
    """

    def __init__(
        self,
        task: TaskData,
        loaded: Loaded,
        *,
        max_seq_length: int,
        device: torch.device,
        regression_targets: str = "standardised",
        class_weights: str = "none",
    ) -> None:
        self.task = task
        self.loaded = loaded
        self.max_seq_length = max_seq_length
        self.device = device
        self.regression_targets = regression_targets
        self.class_weights = class_weights
        self.center = 0.0
        self.scale = 1.0

    def model(self, *, dropout: float, std: float | None) -> Finetuned:
        head = TextHead(
            self.loaded.width,
            self.task.num_outputs,
            dropout=dropout,
            std=std,
            last=self.loaded.last,
            grade=self.grade(),
        )
        return Finetuned(self.loaded.encoder, head)

    def grade(self) -> Loss:
        """The loss of the task's kind."""
        weights = weights_of(self.task, self.class_weights)
        match self.task.kind:
            case "regression":
                return grade_value
            case "multilabel":
                return functools.partial(grade_each, weights_C2=weights)
            case _:
                return functools.partial(grade_class, weights_C=weights)

    def training(self, examples: Sequence[Example]) -> Rows:
        if self.task.kind == "regression":
            self.center, self.scale = self._normalisation(examples)
        return self._rows(examples)

    def _normalisation(self, examples: Sequence[Example]) -> tuple[float, float]:
        if self.regression_targets == "raw":
            return 0.0, 1.0
        if self.regression_targets == "unit":
            known = [
                float(e.label)
                for e in self.task.train
                if isinstance(e, Example) and isinstance(e.label, int | float)
            ]
            least, most = self.task.value_range or (min(known), max(known))
            return least, (most - least) or 1.0
        values_N = torch.tensor([e.label for e in examples], dtype=torch.float64)
        return float(values_N.mean()), float(values_N.std(correction=0)) or 1.0

    def held_out(self, examples: Sequence[Example]) -> HeldOut:
        return HeldOut(examples, self._rows(examples))

    def score(self, held: HeldOut, answers: Answers) -> dict[str, float]:
        if self.task.kind == "multilabel":
            wanted = several(held.examples, classes=self.task.num_outputs).nan_to_num(UNKNOWN)
        else:
            wanted = torch.tensor([e.label for e in held.examples], dtype=torch.float64)
        chosen = self.chosen(answers).numpy()
        sure = None if self.task.kind == "regression" else self.probabilities(answers).numpy()
        return metrics.score(self.task.metrics, wanted.numpy(), chosen, sure)

    def files(self, held: HeldOut, answers: Answers, name: str) -> dict[str, str]:
        """NAME.tsv of index and prediction, as GLUE's server wants it."""
        return {f"{name}.tsv": answers_tsv(self._shown(answers, values="{:.3f}"))}

    def table(self, held: HeldOut, answers: Answers) -> str:
        """The examples with what was predicted, as a CSV."""
        sure = [] if self.task.kind == "regression" else self.probabilities(answers).tolist()
        shown = self._shown(answers, values="{!r}")
        return validation_csv(self.task, held.examples, predicted=shown, probabilities=sure)

    def _shown(self, answers: Answers, *, values: str) -> list[str]:
        """Labels as the task's files write them (several with a bar between), or values."""
        if self.task.kind == "regression":
            return [values.format(value) for value in self.values(answers)]
        chosen = self.chosen(answers).tolist()
        if self.task.kind == "classification":
            return [self.task.labels[k] for k in chosen]
        return [
            "|".join(name for name, holds in zip(self.task.labels, row, strict=True) if holds)
            for row in chosen
        ]

    def values(self, answers: Answers) -> list[float]:
        """The values that a regression predicts, on their original scale."""
        return [v * self.scale + self.center for v in answers["logits"][:, 0].tolist()]

    def probabilities(self, answers: Answers) -> Tensor:
        """[N, C]: the probability of each class; with several labels, that each holds."""
        logits_NC = answers["logits"].float()
        return logits_NC.sigmoid() if self.task.kind == "multilabel" else logits_NC.softmax(-1)

    def chosen(self, answers: Answers, *, threshold: float = 0.5) -> Tensor:
        """The class [N], whether each label is more probable than the threshold [N, C], or the
        value before scaling [N]."""
        logits_NC = answers["logits"]
        match self.task.kind:
            case "regression":
                return logits_NC[:, 0]
            case "multilabel":
                return (logits_NC > math.log(threshold / (1 - threshold))).int()
            case _:
                return logits_NC.argmax(-1)

    def _targets(self, examples: Sequence[Example]) -> Tensor:
        if self.task.kind == "multilabel":
            return several(examples, classes=self.task.num_outputs)
        values_N = torch.tensor([e.label for e in examples], dtype=torch.float64)
        return ((values_N - self.center) / self.scale).float()

    def _rows(self, examples: Sequence[Example]) -> Rows:
        """Tokenised once. Texts beyond max_seq_length are cut, the longer of a pair first."""
        tokenizer = self.loaded.tokenizer
        pairs = [e.pair or "" for e in examples] if examples[0].pair is not None else None
        found = tokenizer(
            [e.text for e in examples],
            pairs,
            truncation=True,
            max_length=self.max_seq_length,
            padding=False,
            return_attention_mask=False,
            return_token_type_ids=self.loaded.segments,
        )
        ids = [
            row or [tokenizer.pad_token_id] for row in found["input_ids"]
        ]  # a model without special tokens, and an empty text
        segments = [row or [0] for row in found["token_type_ids"]] if self.loaded.segments else None
        return rows_of(
            ids, segments, self._targets(examples), pad=tokenizer.pad_token_id, device=self.device
        )
