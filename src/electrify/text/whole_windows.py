"""Where a long text may be cut so that a tokenizer that cuts it by length reads the pieces as it
reads the whole: only where one of its windows ends."""

from __future__ import annotations

import json
from typing import Any

from .splitting import window_length

# Windows that are tried, from the last one back. With Unigram only one that begins with white space
# fits, for the first of a piece gets a mark of a space; text without any is cut anywhere.
_TRIED = 4096
_MARKS = 64  # characters that normalising may delete, or join to the one before them


class WholeWindows:
    """The windows of a tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._length = window_length(json.loads(tokenizer.to_str())["pre_tokenizer"])

    @property
    def matter(self) -> bool:
        """Whether it matters which character begins a piece: single characters have no frame."""
        return self._length > 1

    def end(self, part: str) -> int:
        """How much of this beginning of a text is the longest piece that can be cut off; 0 if there
        is none."""
        windows = self._of(part)
        words = [word for word, _ in windows]
        # What is behind the last window may belong to it.
        last = len(windows) - 2
        for i in range(last, max(0, last - _TRIED), -1):
            word, at = windows[i]
            behind = part[at : at + 2 * self._length + _MARKS]
            if (
                self._of(behind)[:1] == [(word, 0)]
                and [word for word, _ in self._of(part[:at])] == words[:i]
            ):
                return at
        return 0

    def _of(self, text: str) -> list[tuple[str, int]]:
        """The windows, each with the place where it begins."""
        from tokenizers import PreTokenizedString

        split = PreTokenizedString(text)
        if self._tokenizer.normalizer is not None:
            split.normalize(self._tokenizer.normalizer.normalize)
        self._tokenizer.pre_tokenizer.pre_tokenize(split)
        return [(word, start) for word, (start, _), _ in split.get_splits()]
