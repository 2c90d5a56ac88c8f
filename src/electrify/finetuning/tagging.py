"""Tagging of words: the mean of the logits of a word's tokens decides, and each word is scored
once, however long the sentence. The layer is linear, so this is the logit of the mean state.

A sentence that does not fit is read through windows that overlap by half; a word is tagged in the
window where it is farther from an edge.

Shape suffixes: W words, P tokens of words, B rows of a batch, L tokens, C tags, N rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .encoding import rows_of_words
from .loop import Answered, Batch, Outputs, padded
from .metrics import span_scores
from .tasks import Sentence, TaskData
from .texts import Problem, grade_classes

NO_WORD = -100
"""The target of a token with which no word begins, as in the library."""


@dataclass
class Tagging(Problem):
    """Sentences may carry tags that training never showed: they count as mistakes. first_piece:
    whether the first piece alone stands for a word (BERT's and ELECTRA's public code)."""

    first_piece: bool = False

    def rows(self, examples: Sequence[Sentence]) -> Any:
        """Words begin where a row's target is not NO_WORD: in the order of the sentences, each
        once. places: the pieces that stand for them."""
        numbers = {tag: k for k, tag in enumerate(self.labels)}
        ids, types, targets, places = (list[list[int]]() for _ in range(4))
        reader, length = self.reader, self.max_seq_length
        for row in rows_of_words(reader.tokenizer, reader.single, examples, length):
            tags = row.sentence.tags or self.labels[:1] * len(row.sentence.words)
            target, place = [NO_WORD] * len(row.ids), [0] * len(row.ids)
            for k, start, stop in row.words:
                stop = start + 1 if self.first_piece else stop
                target[start] = numbers.get(tags[k], 0)
                place[start:stop] = [1] * (stop - start)
            ids.append(row.ids)
            types.append(row.types)
            targets.append(target)
            places.append(place)
        return self.as_rows(ids, types, padded(targets, NO_WORD, torch.int32), places=places)

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
