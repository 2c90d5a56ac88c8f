"""Tagging of words: the mean of the logits of a word's tokens decides, and each word is scored
once, however long the sentence. The layer is linear, so this is the logit of the mean state.

A sentence that does not fit is read through windows that overlap by half; a word is tagged in the
window where it is farther from an edge.

Shape suffixes: W words, P tokens of words, B rows of a batch, L tokens, C tags, N rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .loop import Answered, Batch, Outputs, padded
from .metrics import span_scores
from .tasks import Sentence, TaskData
from .texts import Problem, grade_classes

NO_WORD = -100
"""The target of a token with which no word begins, as in the library."""


class Window(NamedTuple):
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
    middles = ((spans[k + 1][0] + spans[k][1] + 1) // 2 for k in range(len(spans) - 1))
    cuts = [0, *middles, len(pieces)]
    return [Window(begin, end, cuts[k], cuts[k + 1]) for k, (begin, end) in enumerate(spans)]


@dataclass
class Tagging(Problem):
    """Sentences may carry tags that training never showed: they count as mistakes. first_piece:
    whether the first piece alone stands for a word (BERT's and ELECTRA's public code)."""

    first_piece: bool = False

    def rows(self, examples: Sequence[Sentence]) -> Any:
        """Words begin where a row's target is not NO_WORD: in the order of the sentences, each
        once. places: the pieces that stand for them."""
        frame = self.reader.single
        room = self.max_seq_length - frame.room
        pieces_of = self._pieces(examples)
        numbers = {tag: k for k, tag in enumerate(self.labels)}
        ids, types, targets, places = (list[list[int]]() for _ in range(4))
        for sentence in examples:
            words = [pieces_of[word][:room] for word in sentence.words]
            tags = sentence.tags or self.labels[:1] * len(words)
            for window in windows([len(pieces) for pieces in words], room):
                inside = words[window.begin : window.end]
                row, segments, (at,) = frame.around([i for pieces in inside for i in pieces])
                target, place = [NO_WORD] * len(row), [0] * len(row)
                for k in range(window.begin, window.end):
                    if window.first <= k < window.last:
                        count = 1 if self.first_piece else len(words[k])
                        target[at] = numbers.get(tags[k], 0)
                        place[at : at + count] = [1] * count
                    at += len(words[k])
                ids.append(row)
                types.append(segments)
                targets.append(target)
                places.append(place)
        return self.as_rows(ids, types, padded(targets, NO_WORD, torch.int32), places=places)

    def _pieces(self, sentences: Sequence[Sentence]) -> dict[str, list[int]]:
        """The pieces of every word, tokenised by itself after a blank, as within a text. A word
        that the tokenizer drops is its unknown token."""
        tokenizer = self.reader.tokenizer
        words = list({word: None for sentence in sentences for word in sentence.words})
        unknown = tokenizer.unk_token_id
        dropped = [tokenizer.pad_token_id if unknown is None else unknown]
        found = tokenizer([f" {w}" for w in words], add_special_tokens=False, padding=False)
        return {w: list(ids) or dropped for w, ids in zip(words, found["input_ids"], strict=True)}

    def loss(self, net: Any, batch: Batch) -> Tensor:
        logits_WC = of_words(net(batch.inputs), batch)
        return grade_classes(logits_WC, batch.targets[batch.targets != NO_WORD], self.weights)

    def weight(self, batch: Batch) -> Tensor:
        return (batch.targets != NO_WORD).sum()

    def outputs(self, net: Any, batch: Batch) -> Outputs:
        """classes [B, L] where a word begins, 0 elsewhere; L is that of all rows, so that batches
        can be put together."""
        found_BL = torch.zeros_like(batch.targets, dtype=torch.int32)
        found_BL[batch.targets != NO_WORD] = of_words(net(batch.inputs), batch).argmax(-1).int()
        return {"classes": found_BL}

    def tags(self, held: Answered) -> list[tuple[str, ...]]:
        """The predicted tags of each sentence."""
        numbers_W = held.outputs["classes"][held.rows.targets.cpu() != NO_WORD].tolist()
        names = iter([self.labels[k] for k in numbers_W])
        return [tuple(next(names) for _ in sentence.words) for sentence in held.examples]

    def score(self, task: TaskData, held: Answered) -> dict[str, float]:
        found = span_scores([s.tags for s in held.examples], self.tags(held))
        return {name: found[name] for name in task.metrics}

    def files(self, name: str, task: TaskData, held: Answered) -> dict[str, str]:
        """NAME.txt as conlleval reads it: word, true tag, predicted tag, a blank line after each
        sentence."""
        blocks = []
        for sentence, tags in zip(held.examples, self.tags(held), strict=True):
            cells = zip(sentence.words, sentence.tags, tags, strict=True)
            blocks.append("".join(f"{' '.join(row)}\n" for row in cells))
        return {f"{name}.txt": "\n".join(blocks) + "\n"}


def of_words(x_BLD: Tensor, batch: Batch) -> Tensor:
    """[W, D]: the mean over the tokens of each word, in the order of the words."""
    assert batch.places_BL is not None
    places_BL = batch.places_BL
    begins_P = (batch.targets != NO_WORD)[:, : places_BL.shape[1]][places_BL]
    return means(x_BLD[places_BL].float(), begins_P.cumsum(0) - 1)


def means(of_tokens_PD: Tensor, word_P: Tensor) -> Tensor:
    """[W, D]: the mean over the tokens of each word. word_P: the word of each token, in order."""
    counts_W = word_P.bincount()
    sums_WD = of_tokens_PD.new_zeros(len(counts_W), of_tokens_PD.shape[1])
    return sums_WD.index_add(0, word_P, of_tokens_PD) / counts_W[:, None]
