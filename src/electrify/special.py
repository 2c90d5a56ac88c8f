"""SpecialIds: the tokens with a role, as they are stored with every corpus and run. Imports nothing
heavy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SpecialIds:
    """Ids of the tokens with a role. `others` are further special tokens of the tokenizer (never
    masked, never drawn at random)."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int
    others: tuple[int, ...] = ()

    @property
    def never_chosen(self) -> tuple[int, ...]:
        """All special tokens except [UNK]. (By the published method every token except the special
        ones is a candidate for masking, and [UNK] is one.)"""
        return tuple(
            sorted({self.pad, self.cls, self.sep, self.mask} | (set(self.others) - {self.unk}))
        )
