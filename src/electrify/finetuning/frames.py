"""Frames: the special tokens that a tokenizer puts around one text and around two, so that windows
of long texts get the same special tokens as whole texts.

| tokenizer | one text       | two texts              | whole text is read off |
|-----------|----------------|------------------------|------------------------|
| BERT      | [CLS] a [SEP]  | [CLS] a [SEP] b [SEP]  | the first token        |
| RoBERTa   | <s> a </s>     | <s> a </s> </s> b </s> | the first token        |
| XLNet     | a <sep> <cls>  | a <sep> b <sep> <cls>  | the last token         |
| GPT-2     | a              | a b                    | the last token         |
| OPT       | </s> a         | </s> a </s> b          | the last token         |

For a left-to-right model, the last token's state is used whatever precedes the text, because only
that token has seen all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Piece = tuple[int, int]  # a token and its token type


@dataclass(frozen=True)
class Frame:
    """Special tokens before, between and after the texts, with their token types. types: the token
    types of the texts themselves."""

    before: tuple[Piece, ...]
    between: tuple[Piece, ...]
    after: tuple[Piece, ...]
    types: tuple[int, ...]

    @property
    def room(self) -> int:
        """The number of tokens that the frame takes in a sequence."""
        return len(self.before) + len(self.between) + len(self.after)

    def around(self, *texts: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
        """Token ids and token types of a sequence, and where each text starts in it."""
        assert len(texts) == len(self.types)
        ids = [i for i, _ in self.before]
        types = [t for _, t in self.before]
        starts = list[int]()
        for k, text in enumerate(texts):
            starts.append(len(ids))
            special = self.between if k + 1 < len(texts) else self.after
            ids += [*text, *(i for i, _ in special)]
            types += [self.types[k]] * len(text) + [t for _, t in special]
        return ids, types, starts


def frames_of(tokenizer: Any) -> tuple[Frame, Frame]:
    """The frames of one text and of two."""
    return _frame(tokenizer, "a"), _frame(tokenizer, "a", "b")


def _frame(tokenizer: Any, *texts: str) -> Frame:
    found = tokenizer(*texts, return_special_tokens_mask=True, return_token_type_ids=True)
    groups: list[list[Piece]] = [[]]
    types: list[int] = []
    plain = [len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    at = 0
    rows = list(
        zip(
            found["input_ids"],
            found["token_type_ids"],
            found["special_tokens_mask"],
            strict=True,
        )
    )
    for n in plain:
        while at < len(rows) and rows[at][2]:
            groups[-1].append(rows[at][:2])
            at += 1
        types.append(rows[at][1])
        at += n
        groups.append([])
    groups[-1] += [row[:2] for row in rows[at:]]
    between = groups[1] if len(texts) == 2 else []
    return Frame(tuple(groups[0]), tuple(between), tuple(groups[-1]), tuple(types))


def reads_last(tokenizer: Any, single: Frame) -> bool:
    """Whether the class token comes last, or no token precedes the text."""
    if (
        single.after
        and tokenizer.cls_token_id is not None
        and single.after[-1][0] == tokenizer.cls_token_id
    ):
        return True
    return not single.before
