"""Linear probes: the encoder stays as it is, its states are computed once a run, and a linear layer
learns on them, in seconds where fine-tuning takes minutes.

Words are the mean states of their tokens. Texts are the mean of their states; a pair is read as two
texts, u and v, and the layer sees u, v, |u - v| and u * v (SentEval, Conneau and Kiela 2018,
1803.05449). Each feature is standardised by its mean and deviation over the training examples: the
layers of a pre-norm encoder differ greatly in scale.

Shape suffixes: N texts, W words, F features, B texts of a batch, L tokens, S sentences, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .loop import device_named, most_tokens, pieces
from .metrics import spearman
from .model import Reader, load_encoder
from .rows import Rows
from .tagging import Spot, Tagging, means
from .tasks import Example, Sentence, TaskData
from .texts import Outputs, Texts, grade_classes, known_rows

Layers = Literal["last", "last4", "all"]


def layers_taken(layers: Layers, reader: Reader) -> int:
    """How many of the encoder's states, counted from the last one, are concatenated. `all` means
    those of every block and the embeddings."""
    depth = reader.encoder.config.num_hidden_layers
    return {"last": 1, "last4": min(4, depth + 1), "all": depth + 1}[layers]


class Probe(nn.Module):
    """Dropout and a linear layer on features [..., F]."""

    def __init__(self, features: int, outputs: int, *, dropout: float, std: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(features, outputs)
        nn.init.normal_(self.out.weight, std=std)
        nn.init.zeros_(self.out.bias)

    def forward(self, states_F: Tensor) -> Tensor:
        return self.out(self.dropout(states_F))


@dataclass(frozen=True)
class Standard:
    """Mean and deviation of each feature over the training examples."""

    mean_F: Tensor
    std_F: Tensor

    @classmethod
    def of(cls, states_NF: Tensor) -> Standard:
        return cls(states_NF.mean(0), states_NF.std(0, correction=0).clamp(min=1e-6))

    def apply(self, states_NF: Tensor) -> None:
        """Gives each feature, in place, mean 0 and deviation 1 of the training examples."""
        states_NF.sub_(self.mean_F).div_(self.std_F)


class _Frozen:
    """What both kinds of probes share. layers: of the encoder's states, concatenated."""

    reader: Reader
    device: torch.device
    labels: tuple[str, ...]
    standard: Standard

    def freeze(self, layers: Layers, *, bf16: bool) -> None:
        self.taken = layers_taken(layers, self.reader)
        self.bf16 = bf16
        self.reader.encoder.eval()

    def net(self, *, dropout: float | None) -> Probe:
        std = getattr(self.reader.encoder.config, "initializer_range", None) or 0.02
        p = self.reader.dropout if dropout is None else dropout
        features = self.taken * self.reader.width * self._sides()
        return Probe(features, len(self.labels) or 1, dropout=p, std=std).to(self.device)

    def _sides(self) -> int:
        return 1

    def states(self, rows: Rows, index_B: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """The states of the chosen layers, [B, L, D] each, and the mask of the inputs, [B, L]."""
        inputs = rows.inputs(index_B)
        with torch.no_grad(), torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            output = self.reader.encoder(**inputs, output_hidden_states=True)
        return output.hidden_states[-self.taken :], inputs["attention_mask"]


# ------------------------------------------------------------------ texts


@dataclass(frozen=True)
class Pooled:
    """Texts, or pairs of them, with their features. targets: [N], or [N, C] for several classes."""

    states_NF: Tensor
    targets: Tensor

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


class FrozenTexts(_Frozen, Texts):
    """pairs: whether the examples are pairs."""

    pairs = False

    def _sides(self) -> int:
        return 4 if self.pairs else 1

    def training(self, examples: Sequence[Example]) -> Pooled:
        self.fit(examples)
        return self._pooled(examples, fit=True)

    def rows(self, examples: Sequence[Example]) -> Pooled:
        return self._pooled(examples, fit=False)

    def _pooled(self, examples: Sequence[Example], *, fit: bool) -> Pooled:
        states_NF = self._means(replace(e, pair=None) for e in examples)
        if self.pairs:
            u_NF, v_NF = states_NF, self._means(second_text(e) for e in examples)
            states_NF = torch.cat([u_NF, v_NF, (u_NF - v_NF).abs(), u_NF * v_NF], -1)
        if fit:
            self.standard = Standard.of(states_NF)
        self.standard.apply(states_NF)
        return Pooled(states_NF, self.targets(examples).to(self.device))

    def _means(self, examples: Any) -> Tensor:
        return mean_states(self, Texts.rows(self, list(examples)))

    def loss(self, net: Any, batch: Any) -> Tensor:
        states_BF, targets = batch
        return self.grade(net(states_BF), targets)

    def weight(self, batch: Any) -> Tensor:
        return known_rows(batch[1])

    def outputs(self, net: Any, batch: Any) -> Outputs:
        return {"logits": net(batch[0])}


def second_text(example: Example) -> Example:
    return replace(example, text=example.pair or "", pair=None)


def mean_states(frozen: _Frozen, rows: Rows) -> Tensor:
    """[N, F] in float32: the mean of each text's states, special tokens included."""
    numbers_N = torch.arange(len(rows.lengths_N))
    found_NF = torch.empty(len(numbers_N), frozen.taken * frozen.reader.width, device=frozen.device)
    for index_B in pieces(numbers_N, rows.lengths_N, most_tokens(frozen.device)):
        layers, mask_BL = frozen.states(rows, index_B)
        mask_BL1 = mask_BL[..., None].float()
        pooled = [(x.float() * mask_BL1).sum(1) / mask_BL1.sum(1) for x in layers]
        found_NF[index_B.to(frozen.device)] = torch.cat(pooled, -1)
    return found_NF


def cosine_score(task: TaskData, model: str, *, device: str = "auto") -> float:
    """How similar two texts are, without any training: Spearman's correlation of the cosines of
    mean states with the values of the validation pairs of a regression."""
    at = device_named(device)
    reader = load_encoder(model, device=at)
    texts = FrozenTexts(
        reader, "regression", (), max_seq_length=min(128, reader.positions), device=at
    )
    texts.freeze("last", bf16=False)
    examples: Any = task.validation
    first = Texts.rows(texts, [replace(e, pair=None) for e in examples])
    second = Texts.rows(texts, [second_text(e) for e in examples])
    cosines_N = torch.nn.functional.cosine_similarity(
        mean_states(texts, first), mean_states(texts, second)
    )
    return spearman([float(e.label) for e in examples], cosines_N.tolist())


# ------------------------------------------------------------------ words


@dataclass(frozen=True)
class Words:
    """Sentences as runs of words with their features. starts_N: the first word of each sentence.
    spots: a Spot for each word, whose row is its sentence."""

    states_WF: Tensor
    targets_W: Tensor
    starts_N: Tensor
    lengths_N: Tensor
    spots: list[Spot]

    @property
    def device(self) -> torch.device:
        return self.states_WF.device

    def batch(self, index_B: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
        """Features [S, L, F], tags [S, L], which of them are words [S, L], and the words of the
        longest sentence of all."""
        lengths_S = self.lengths_N[index_B]
        at_SL = self.starts_N[index_B][:, None] + torch.arange(int(lengths_S.max()))
        words_SL = (torch.arange(at_SL.shape[1]) < lengths_S[:, None]).to(self.device)
        at_SL = at_SL.clamp(max=len(self.targets_W) - 1).to(self.device)
        longest = int(self.lengths_N.max())
        return self.states_WF[at_SL], self.targets_W[at_SL], words_SL, longest


class FrozenTagging(_Frozen, Tagging):
    """The score of such a layer is the measure that best distinguishes small encoders."""

    def training(self, examples: Sequence[Sentence]) -> Words:
        return self._words(examples, fit=True)

    def rows(self, examples: Sequence[Sentence]) -> Words:
        return self._words(examples, fit=False)

    def _words(self, examples: Sequence[Sentence], *, fit: bool) -> Words:
        rows = Tagging.rows(self, examples)
        states_WF = self._states(rows)
        if fit:
            self.standard = Standard.of(states_WF)
        self.standard.apply(states_WF)
        lengths_N = torch.tensor([len(s.words) for s in examples])
        tags = [self.numbers.get(tag, 0) for s in examples for tag in s.tags]
        spots, done = [], 0
        for row, sentence in enumerate(examples):
            spots += [Spot(row, k, 1, done + k) for k in range(len(sentence.words))]
            done += len(sentence.words)
        starts_N = lengths_N.cumsum(0) - lengths_N
        return Words(states_WF, torch.tensor(tags, device=self.device), starts_N, lengths_N, spots)

    def _states(self, rows: Rows) -> Tensor:
        """[W, F] in float32, in the order of the words: the mean states of their pieces."""
        spots_W4 = torch.tensor(rows.spots)
        row_W, place_W, pieces_W, number_W = spots_W4.unbind(1)
        by_row = torch.argsort(row_W, stable=True)
        rows_N = torch.arange(len(rows.lengths_N))
        bounds_N = torch.searchsorted(row_W[by_row].contiguous(), torch.arange(len(rows_N) + 1))
        found_WF = torch.empty(len(spots_W4), self.taken * self.reader.width, device=self.device)
        for index_B in pieces(rows_N, rows.lengths_N, most_tokens(self.device)):
            layers, _ = self.states(rows, index_B)
            mine = [by_row[int(bounds_N[row]) : int(bounds_N[row + 1])] for row in index_B]
            word_B = torch.cat(mine)
            counts_B = pieces_W[word_B]
            row_B = torch.cat([torch.full((len(words),), k) for k, words in enumerate(mine)])
            of_P = torch.arange(len(word_B)).repeat_interleave(counts_B)
            first_P = (counts_B.cumsum(0) - counts_B)[of_P]
            place_P = place_W[word_B][of_P] + torch.arange(len(of_P)) - first_P
            states_PF = torch.cat([layer[row_B[of_P], place_P].float() for layer in layers], -1)
            found_WF[number_W[word_B].to(self.device)] = means(states_PF, of_P.to(self.device))
        return found_WF

    def loss(self, net: Any, batch: Any) -> Tensor:
        states_SLF, targets_SL, words_SL, _ = batch
        return grade_classes(net(states_SLF[words_SL]), targets_SL[words_SL], self.weights)

    def weight(self, batch: Any) -> Tensor:
        return batch[2].sum()

    def outputs(self, net: Any, batch: Any) -> Outputs:
        states_SLF, _, words_SL, longest = batch
        found_SL = words_SL.new_zeros(len(words_SL), longest, dtype=torch.int32)
        inside_SL = found_SL[:, : words_SL.shape[1]]
        inside_SL[words_SL] = net(states_SLF[words_SL]).argmax(-1).int()
        return {"classes": found_SL}
