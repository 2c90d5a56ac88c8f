"""Linear probes: the encoder stays as it is, its states are computed once a run, and a linear layer
learns on them, in seconds where fine-tuning takes minutes.

Words are the mean states of their tokens. Texts are the mean of their states; a pair is read as two
texts, u and v, and the layer sees u, v, |u - v| and u * v (SentEval, Conneau and Kiela 2018,
1803.05449). Each feature is standardised by its mean and deviation over the training examples: the
layers of a pre-norm encoder differ greatly in scale.

Shape suffixes: N texts or sentences, W words, R texts or words, F features, B those of a batch, L
tokens or words, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..train.machine import pick_device
from .encoding import fitting
from .loop import Batch, Rows, answers, mean_state
from .metrics import spearman
from .model import load_encoder
from .problems import NO_WORD, Problem, Tagging, Texts, of_words
from .tasks import Example, Sentence, TaskData

Layers = Literal["last", "last4", "all"]


class Probe(nn.Module):
    """Dropout and a linear layer on features: logits [B, C] of texts, or [B, L, C] of words, 0
    where there is none."""

    def __init__(self, features: int, outputs: int, *, dropout: float, std: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(features, outputs)
        nn.init.normal_(self.out.weight, std=std)
        nn.init.zeros_(self.out.bias)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        logits_RC = self.out(self.dropout(inputs["features"]))
        if "words" not in inputs:
            return logits_RC
        logits_BLC = logits_RC.new_zeros(*inputs["words"].shape, logits_RC.shape[1])
        return logits_BLC.index_put((inputs["words"],), logits_RC)


@dataclass(frozen=True)
class Features:
    """Rows whose inputs are features: one vector a text, or one a word. words: which of a
    sentence's places [N, L] are words; the features are in their order. spots: these words."""

    features_RF: Tensor
    lengths_N: Tensor
    targets: Tensor
    words_NL: Tensor | None = None
    spots: Any = None

    def batch(self, index_B: Tensor) -> Batch:
        at_B = index_B.to(self.features_RF.device)
        lengths_B = self.lengths_N[index_B]
        if self.words_NL is None:
            inputs = {"features": self.features_RF[at_B]}
            return Batch(inputs, lengths_B, None, self.targets[at_B])
        words_BL = self.words_NL[at_B, : int(lengths_B.max())]
        firsts_N = self.lengths_N.cumsum(0) - self.lengths_N
        places_BL = firsts_N[index_B][:, None] + torch.arange(words_BL.shape[1])
        features = self.features_RF[places_BL.to(words_BL.device)[words_BL]]
        inputs = {"features": features, "words": words_BL}
        return Batch(inputs, lengths_B, words_BL, self.targets[at_B])


@dataclass
class Probed(Problem):
    """What the probes of texts and of words share. layers: whose states are concatenated. bf16:
    whether the encoder computes in it. pairs: whether the examples are pairs of texts."""

    layers: Layers = field(kw_only=True)
    bf16: bool = field(default=False, kw_only=True)
    pairs: bool = field(default=False, kw_only=True)
    mean_F: Tensor = field(init=False)
    std_F: Tensor = field(init=False)

    def __post_init__(self) -> None:
        depth = self.reader.encoder.config.num_hidden_layers
        self.taken = {"last": 1, "last4": min(4, depth + 1), "all": depth + 1}[self.layers]
        """How many states, counted from the last one: `all` are those of every block and the
        embeddings."""

    def net(self, *, dropout: float | None) -> Probe:
        config = self.reader.encoder.config
        names = ("classifier_dropout", "hidden_dropout_prob", "dropout")
        known = (dropout, *(getattr(config, name, None) for name in names), 0.1)
        p = next(float(x) for x in known if isinstance(x, int | float))
        std = getattr(config, "initializer_range", None) or 0.02
        features = self.taken * self.reader.width * (4 if self.pairs else 1)
        return Probe(features, len(self.labels) or 1, dropout=p, std=std).to(self.reader.device)

    def features(self, examples: Sequence[Any]) -> Features:
        raise NotImplementedError

    def training(self, examples: Sequence[Any]) -> Features:
        """Takes the mean and the deviation of each feature from these examples."""
        self.fit(examples)
        found = self.features(examples)
        self.mean_F = found.features_RF.mean(0)
        self.std_F = found.features_RF.std(0, correction=0).clamp(min=1e-6)
        return self._standardised(found)

    def rows(self, examples: Sequence[Any]) -> Features:
        return self._standardised(self.features(examples))

    def _standardised(self, found: Features) -> Features:
        found.features_RF.sub_(self.mean_F).div_(self.std_F)  # there may be no room for a copy
        return found

    def states(self, batch: Batch) -> list[Tensor]:
        """Of the chosen layers, [B, L, D] each in float32."""
        with torch.autocast(self.reader.device.type, torch.bfloat16, enabled=self.bf16):
            output = self.reader.encoder(**batch.inputs, output_hidden_states=True)
        return [x.float() for x in output.hidden_states[-self.taken :]]

    def computed(self, rows: Rows, of_batch: Any, each: Any) -> Tensor:
        """The features [R, F] of all rows. of_batch: of a batch. each: of a row, from its number
        and its part of them."""
        found = answers(self.reader.encoder, rows, lambda batch: [of_batch(batch)], each)
        return torch.from_numpy(np.concatenate(found)).to(self.reader.device)


@dataclass
class FrozenTexts(Probed, Texts):
    """The texts of a pair are read one by one."""

    def features(self, examples: Sequence[Example]) -> Features:
        features_NF, *second = self.mean_states(examples)
        for v_NF in second:
            u_NF = features_NF
            features_NF = torch.cat([u_NF, v_NF, (u_NF - v_NF).abs(), u_NF * v_NF], -1)
        lengths_N = torch.ones(len(examples), dtype=torch.long)
        return Features(features_NF, lengths_N, self.targets(examples).to(self.reader.device))

    def mean_states(self, examples: Sequence[Example]) -> Iterator[Tensor]:
        """[N, F]: the mean of each text's states, special tokens included; then, of pairs, that of
        each second text's."""

        def means(batch: Batch) -> Tensor:
            return torch.cat([mean_state(x_BLD, batch) for x_BLD in self.states(batch)], -1)

        for texts in zip(*([e.text, e.pair][: 1 + self.pairs] for e in examples), strict=True):
            rows = Rows.of(self.reader, *self.text_rows([Example(text or "") for text in texts]))
            yield self.computed(rows, means, lambda _, x_F: x_F[None])


@dataclass
class FrozenTagging(Probed, Tagging):
    """The score of such a layer is the measure that best distinguishes small encoders."""

    def features(self, examples: Sequence[Sentence]) -> Features:
        rows = Tagging.rows(self, examples)

        def means(batch: Batch) -> Tensor:
            """[B, most words of a row, F]."""
            found_WF = of_words(torch.cat(self.states(batch), -1), batch)
            counts_B = (batch.targets != NO_WORD).sum(1)
            of_rows = list(found_WF.split(counts_B.tolist()))
            return nn.utils.rnn.pad_sequence(of_rows, batch_first=True)

        found_WF = self.computed(rows, means, lambda k, x_WF: x_WF[: len(rows.spots[k])])
        lengths_N = torch.tensor([len(s.words) for s in examples])
        words_NL = (torch.arange(int(lengths_N.max())) < lengths_N[:, None]).to(self.reader.device)
        targets_NL = torch.full_like(words_NL, NO_WORD, dtype=torch.int32)
        targets_NL[words_NL] = rows.targets[rows.targets != NO_WORD]
        spots = [[(n, k, k, k + 1) for k in range(len(s.words))] for n, s in enumerate(examples)]
        return Features(found_WF, lengths_N, targets_NL, words_NL, spots)


def cosine_score(
    task: TaskData,
    model: str,
    chosen_on: Sequence[Any] = (),
    *,
    layers: Layers = "last",
    device: str = "auto",
) -> float:
    """How similar two texts are, without any training: Spearman's correlation of the cosines of
    mean states with the values of the validation pairs of a regression. Of several layers, the one
    with the highest correlation on the pairs `chosen_on` counts."""
    reader = load_encoder(model, device=pick_device(device))
    how: Any = {"max_seq_length": fitting(reader, None, 128), "layers": layers, "pairs": True}
    problem = FrozenTexts(reader, "regression", (), **how)

    def of_layers(examples: Sequence[Any]) -> list[float]:
        sides = (states_NF.chunk(problem.taken, -1) for states_NF in problem.mean_states(examples))
        found = [F.cosine_similarity(u_ND, v_ND) for u_ND, v_ND in zip(*sides, strict=True)]
        return [spearman([float(e.label) for e in examples], x_N.tolist()) for x_N in found]

    fits = of_layers(chosen_on) if problem.taken > 1 else [0.0]
    return of_layers(task.validation)[fits.index(max(fits))]
