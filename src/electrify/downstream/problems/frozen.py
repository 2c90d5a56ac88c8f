"""Tagging with the encoder left as it is: the states of words are computed once a run, and a small
head learns on them (seconds where fine-tuning takes minutes). The score of a linear head is the
measure that best distinguishes small encoders.

Shape suffixes: W words, F features, S sentences of a batch, L words of the longest, C tags.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..encoder import Loaded
from ..examples import Sentence
from ..features import Standard, layers_taken
from ..heads import Loss, linear, means
from ..loop import most_tokens, pieces
from ..options import WordPooling
from ..rows import Rows
from ..tasks import TaskData
from .problem import Answers, HeldOut
from .tagging import Spot, Tagging

LSTM_WIDTH = 200  # the width of each direction


@dataclass(frozen=True)
class Words:
    """Sentences as runs of words with their features: rows for the loop, one per sentence.
    starts_N: the first word of each sentence."""

    states_WF: Tensor
    targets_W: Tensor
    starts_N: Tensor
    lengths_N: Tensor

    @property
    def device(self) -> torch.device:
        return self.states_WF.device

    def batch(self, index_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features [S, L, F], tags [S, L] and which of them are words, [S, L]."""
        lengths_S = self.lengths_N[index_B]
        at_SL = self.starts_N[index_B][:, None] + torch.arange(int(lengths_S.max()))
        words_SL = (torch.arange(at_SL.shape[1]) < lengths_S[:, None]).to(self.device)
        at_SL = at_SL.clamp(max=len(self.targets_W) - 1).to(self.device)
        return self.states_WF[at_SL], self.targets_W[at_SL], words_SL


class Probe(nn.Module):
    """A linear layer on each word's features, with a bidirectional LSTM between the two if `head`
    asks for it. longest: words of the longest sentence."""

    def __init__(
        self,
        features: int,
        num_outputs: int,
        *,
        head: Literal["linear", "bilstm"],
        dropout: float,
        std: float | None,
        longest: int,
        grade: Loss,
    ) -> None:
        super().__init__()
        self.lstm = (
            nn.LSTM(features, LSTM_WIDTH, batch_first=True, bidirectional=True)
            if head == "bilstm"
            else None
        )
        self.dropout = nn.Dropout(dropout)
        self.longest = longest
        self.grade = grade
        self.head = linear(features if self.lstm is None else 2 * LSTM_WIDTH, num_outputs, std)

    def forward(self, states_SLF: Tensor, words_SL: Tensor) -> Tensor:
        """Logits [P, C] of the words of the batch."""
        with torch.autocast(states_SLF.device.type, enabled=False):
            if self.lstm is None:
                return self.head(self.dropout(states_SLF[words_SL]))
            packed = nn.utils.rnn.pack_padded_sequence(
                self.dropout(states_SLF),
                words_SL.sum(1).cpu(),
                batch_first=True,
                enforce_sorted=False,
            )
            hidden_SLH, _ = nn.utils.rnn.pad_packed_sequence(
                self.lstm(packed)[0], batch_first=True, total_length=words_SL.shape[1]
            )
            return self.head(self.dropout(hidden_SLH[words_SL]))

    def loss(self, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        states_SLF, targets_SL, words_SL = batch
        return self.grade(self(states_SLF, words_SL), targets_SL[words_SL])

    def weight(self, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        return batch[2].sum()

    def answers(self, batch: tuple[Tensor, Tensor, Tensor]) -> Answers:
        states_SLF, _, words_SL = batch
        found_SL = torch.zeros(
            len(words_SL), self.longest, dtype=torch.int32, device=words_SL.device
        )
        found_SL[:, : words_SL.shape[1]][words_SL] = self(states_SLF, words_SL).argmax(-1).int()
        return {"classes": found_SL}


class FrozenTagging(Tagging):
    """Tagging on features: see problem.Problem. layers: the last one, the last four, or all and the
    embeddings, concatenated.

    Each feature is standardised by its mean and deviation over the training words: the layers of a
    pre-norm encoder differ greatly in scale.
    """

    def __init__(
        self,
        task: TaskData,
        loaded: Loaded,
        *,
        max_seq_length: int,
        device: torch.device,
        layers: str,
        head: Literal["linear", "bilstm"],
        bf16: bool,
        class_weights: str = "none",
        word_pooling: WordPooling = "first",
    ) -> None:
        super().__init__(
            task,
            loaded,
            max_seq_length=max_seq_length,
            device=device,
            class_weights=class_weights,
            word_pooling=word_pooling,
        )
        self.taken = layers_taken(layers, loaded)
        self.bf16 = bf16
        self.head: Literal["linear", "bilstm"] = head
        self.standard: Standard | None = None
        also = (s for _, part in task.also for s in part)
        sentences: Any = (*task.train, *task.validation, *also)
        self.longest = max(len(s.words) for s in sentences)

    def model(self, *, dropout: float, std: float | None) -> Probe:  # type: ignore[override]
        tags = self.task.num_outputs
        return Probe(
            self.taken * self.loaded.width,
            tags,
            head=self.head,
            dropout=dropout,
            std=std,
            longest=self.longest,
            grade=self.grade(),
        ).to(self.device)

    def training(self, examples: Sequence[Sentence]) -> Words:  # type: ignore[override]
        words = self._words(examples)
        self.standard = Standard.of(words.states_WF)
        self.standard.apply(words.states_WF)
        return words

    def held_out(self, examples: Sequence[Sentence]) -> HeldOut:
        assert self.standard is not None, "training examples come first"
        words = self._words(examples)
        spots = []
        done = 0
        self.standard.apply(words.states_WF)
        for row, sentence in enumerate(examples):
            spots += [Spot(row, k, 1, done + k) for k in range(len(sentence.words))]
            done += len(sentence.words)
        return HeldOut(examples, words, spots)

    def _words(self, examples: Sequence[Sentence]) -> Words:
        rows, spots = self._rows(examples)
        lengths_N = torch.tensor([len(s.words) for s in examples])
        targets_W = torch.tensor(
            [self.numbers.get(tag, 0) for s in examples for tag in s.tags], device=self.device
        )
        return Words(
            self._states(rows, torch.tensor(spots)),
            targets_W,
            lengths_N.cumsum(0) - lengths_N,
            lengths_N,
        )

    def _states(self, rows: Rows, spots_W4: Tensor) -> Tensor:
        """[W, F] in float32, in the order of the words: the mean states of their pieces."""
        encoder = self.loaded.encoder
        encoder.eval()
        found_WF = torch.empty(0)
        row_W, place_W, pieces_W, number_W = spots_W4.unbind(1)
        by_row = torch.argsort(row_W, stable=True)
        bounds_N = torch.searchsorted(
            row_W[by_row].contiguous(), torch.arange(len(rows.lengths_N) + 1)
        )
        with torch.no_grad(), torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            for index_B in pieces(
                torch.arange(len(rows.lengths_N)), rows.lengths_N, most_tokens(self.device)
            ):
                states = encoder(**rows.inputs(index_B), output_hidden_states=True).hidden_states
                layers = states[-self.taken :]
                mine = [by_row[int(bounds_N[row]) : int(bounds_N[row + 1])] for row in index_B]
                word_B = torch.cat(mine)
                counts_B = pieces_W[word_B]
                row_B = torch.cat([torch.full((len(words),), k) for k, words in enumerate(mine)])
                of_P = torch.arange(len(word_B)).repeat_interleave(counts_B)
                first_P = (counts_B.cumsum(0) - counts_B)[of_P]
                place_P = place_W[word_B][of_P] + torch.arange(len(of_P)) - first_P
                states_PF = torch.cat([layer[row_B[of_P], place_P].float() for layer in layers], -1)
                states_BF = means(states_PF, of_P.to(self.device))
                if not len(found_WF):
                    found_WF = states_BF.new_empty(len(spots_W4), states_BF.shape[1])
                found_WF[number_W[word_B].to(self.device)] = states_BF
        return found_WF
