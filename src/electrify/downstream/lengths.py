"""How many texts were cut, and which length would have held them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..export.quiet import quiet
from .encoder import Loaded
from .examples import Example


class Cut:
    """Counts texts that were cut to `length` tokens by a model."""

    def __init__(self, loaded: Loaded, *, length: int) -> None:
        self.loaded = loaded
        self.length = length
        self.begin()

    def begin(self) -> None:
        """Nothing is counted yet."""
        self.texts = 0
        self.cut = 0
        self.longest = 0
        """Tokens of the longest text that was cut."""

    def add(self, examples: Sequence[Example], lengths: Sequence[int]) -> None:
        """Counts texts whose rows have these lengths. Only those of full length are tokenised
        again."""
        self.texts += len(examples)
        full = [e for e, n in zip(examples, lengths, strict=True) if n >= self.length]
        if not full:
            return
        wanted = whole_lengths(self.loaded, full)
        self.cut += sum(n > self.length for n in wanted)
        self.longest = max(self.longest, *wanted)

    def facts(self) -> dict[str, Any]:
        return {
            "truncated": self.cut,
            "max_seq_length": self.length,
            "longest_text_in_tokens": self.longest if self.cut else None,
        }

    def text(self) -> str:
        """One sentence; empty if nothing was cut."""
        if not self.cut:
            return ""
        share = f"{100 * self.cut / self.texts:.1f} % of the texts ({self.cut:,} of {self.texts:,})"
        said = f"{share} were cut to {self.length} tokens"
        most = self.loaded.made_for
        if self.longest <= most:
            return f"{said}; --max-seq-length {self.longest} holds all of them"
        does = "was made for" if self.loaded.positions > most else "reads"
        what = f"the most that the model {does}"
        more = f", {what}" if self.length == most else f"; --max-seq-length {most} is {what}"
        return f"{said}{more}, and the longest has {self.longest:,}: split such texts"


def whole_lengths(loaded: Loaded, examples: Sequence[Example]) -> list[int]:
    """Tokens of each text or pair with its special tokens, not cut."""
    pairs = [e.pair or "" for e in examples] if examples[0].pair is not None else None
    with quiet():
        found = loaded.tokenizer(
            [e.text for e in examples],
            pairs,
            truncation=False,
            padding=False,
            return_attention_mask=False,
        )
    return [len(row) for row in found["input_ids"]]
