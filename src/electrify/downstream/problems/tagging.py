"""Tagging of words: the state of a word's first piece, or the mean of all its pieces' states,
stands for the word, and each word is scored once, however long the sentence.

A sentence that does not fit is read through windows that overlap by half; a word is tagged in the
window where it is farther from an edge.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from ..class_weights import class_weights as weights_of
from ..encoder import Loaded
from ..examples import Sentence
from ..heads import NO_WORD, Finetuned, Loss, TagHead, grade_class
from ..options import WordPooling
from ..rows import Rows, padded, rows_of
from ..spans import span_scores
from ..tasks import TaskData
from .problem import Answers, HeldOut


@dataclass(frozen=True)
class Window:
    """Words [begin, end) of a sentence, of which [first, last) are tagged here."""

    begin: int
    end: int
    first: int
    last: int


def windows(pieces: Sequence[int], room: int) -> list[Window]:
    """Windows over words with these numbers of pieces (none above `room`): every word is in the
    tagged part of exactly one."""
    spans = list[tuple[int, int]]()
    begin = 0
    while True:
        end = begin
        used = 0
        while end < len(pieces) and used + pieces[end] <= room:
            used += pieces[end]
            end += 1
        spans.append((begin, end))
        if end == len(pieces):
            break
        following = end
        used = 0
        while following - 1 > begin and used + pieces[following - 1] <= room // 2:
            following -= 1
            used += pieces[following]
        while used + pieces[end] > room:  # the next word must fit after what is repeated
            used -= pieces[following]
            following += 1
        begin = following
    cuts = [
        0,
        *((spans[k + 1][0] + spans[k][1] + 1) // 2 for k in range(len(spans) - 1)),
        len(pieces),
    ]
    return [Window(begin, end, cuts[k], cuts[k + 1]) for k, (begin, end) in enumerate(spans)]


class Spot(NamedTuple):
    """Where a word is. place: that of its first piece in the row. pieces: how many of its pieces,
    from the first, stand for it. word: its number among all words."""

    row: int
    place: int
    pieces: int
    word: int


class Tagging:
    """See problem.Problem. Held-out sentences may carry tags that training never showed: they count
    as mistakes."""

    def __init__(
        self,
        task: TaskData,
        loaded: Loaded,
        *,
        max_seq_length: int,
        device: torch.device,
        class_weights: str = "none",
        word_pooling: WordPooling = "first",
    ) -> None:
        self.task = task
        self.loaded = loaded
        self.max_seq_length = max_seq_length
        self.device = device
        self.class_weights = class_weights
        self.word_pooling: WordPooling = word_pooling
        self.numbers = {tag: k for k, tag in enumerate(task.labels)}
        self._pieces: dict[str, list[int]] = {}

    def model(self, *, dropout: float, std: float | None) -> Finetuned:
        head = TagHead(
            self.loaded.width,
            self.task.num_outputs,
            dropout=dropout,
            std=std,
            grade=self.grade(),
        )
        return Finetuned(self.loaded.encoder, head)

    def grade(self) -> Loss:
        weights_C = weights_of(self.task, self.class_weights)
        return functools.partial(grade_class, weights_C=weights_C)

    def training(self, examples: Sequence[Sentence]) -> Rows:
        return self._rows(examples)[0]

    def held_out(self, examples: Sequence[Sentence]) -> HeldOut:
        rows, spots = self._rows(examples)
        return HeldOut(examples, rows, spots)

    def score(self, held: HeldOut, answers: Answers) -> dict[str, float]:
        found = span_scores([s.tags for s in held.examples], self.tags(held, answers))
        return {name: found[name] for name in self.task.metrics}

    def files(self, held: HeldOut, answers: Answers, name: str) -> dict[str, str]:
        """NAME.txt as conlleval reads it: word, true tag, predicted tag, a blank line after each
        sentence."""
        lines: list[str] = []
        for sentence, predicted in zip(held.examples, self.tags(held, answers), strict=True):
            lines += [
                f"{word} {tag} {guess}"
                for word, tag, guess in zip(sentence.words, sentence.tags, predicted, strict=True)
            ]
            lines.append("")
        return {f"{name}.txt": "\n".join(lines) + "\n"}

    def tags(self, held: HeldOut, answers: Answers) -> list[tuple[str, ...]]:
        """The predicted tags of each sentence."""
        row_W, place_W, _, word_W = torch.tensor(held.spots).unbind(1)
        flat = torch.empty(len(word_W), dtype=torch.long)
        flat[word_W] = answers["classes"][row_W, place_W].long()
        names = [self.task.labels[k] for k in flat.tolist()]
        done = 0
        found = []
        for sentence in held.examples:
            found.append(tuple(names[done : done + len(sentence.words)]))
            done += len(sentence.words)
        return found

    def _rows(self, sentences: Sequence[Sentence]) -> tuple[Rows, list[Spot]]:
        self._read(sentences)
        frame = self.loaded.single
        room = self.max_seq_length - self.loaded.single.room
        built: dict[str, list[Any]] = {name: [] for name in ("ids", "types", "targets", "places")}
        spots: list[Spot] = []
        done = 0
        for sentence in sentences:
            words = [self._pieces[word][:room] for word in sentence.words]
            for window in windows([len(pieces) for pieces in words], room):
                ids, types, starts = frame.around(
                    [i for pieces in words[window.begin : window.end] for i in pieces]
                )
                targets = [NO_WORD] * len(ids)
                places = [0] * len(ids)
                at = starts[0]
                for k in range(window.begin, window.end):
                    if window.first <= k < window.last:
                        pieces = 1 if self.word_pooling == "first" else len(words[k])
                        targets[at] = self.numbers.get(sentence.tags[k], 0)
                        places[at : at + pieces] = [1] * pieces
                        spots.append(Spot(len(built["ids"]), at, pieces, done + k))
                    at += len(words[k])
                for name, row in (
                    ("ids", ids),
                    ("types", types),
                    ("targets", targets),
                    ("places", places),
                ):
                    built[name].append(row)
            done += len(sentence.words)
        segments = built["types"] if self.loaded.segments else None
        targets_NL = padded(built["targets"], NO_WORD, torch.int32)
        pad = self.loaded.tokenizer.pad_token_id
        return rows_of(
            built["ids"], segments, targets_NL, pad=pad, device=self.device, places=built["places"]
        ), spots

    def _read(self, sentences: Sequence[Sentence]) -> None:
        """The pieces of every word, tokenised by itself after a blank, as within a text. A word
        that the tokenizer drops is its unknown token."""
        new = list(
            {
                word: None
                for sentence in sentences
                for word in sentence.words
                if word not in self._pieces
            }
        )
        if new:
            unknown = self.loaded.tokenizer.unk_token_id
            dropped = [self.loaded.tokenizer.pad_token_id if unknown is None else unknown]
            found = self.loaded.tokenizer(
                [" " + word for word in new], add_special_tokens=False, padding=False
            )["input_ids"]
            self._pieces |= {
                word: list(ids) or dropped for word, ids in zip(new, found, strict=True)
            }
