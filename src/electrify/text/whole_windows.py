"""Where a long text may be cut so that a tokenizer that cuts it by length reads the pieces as it
reads the whole: only where one of its windows ends.

Windows are counted in the normalised text. Normalising looks no further than a character and the
marks behind it, so where the two sides of a place are normalised alike by themselves and together,
the characters before it are counted once and then only a few are counted off.
"""

from __future__ import annotations

import json
import re
from typing import Any
from unicodedata import category, normalize

from .splitting import steps, window_length

_TRIED = 4096  # places, from the last one back
_AROUND = 64  # characters on each side of a place, to see whether they stay apart
_WORDS = 4096  # characters in which the beginning of the last word is looked for first
_SPACE = re.compile(r"\s+")
# Of these the usual normalizers make one character each, but for stretches of white space.
_EASY = re.compile(r"[ -~\t\n\r]*")
_SAMPLE = "".join(f"x{chr(c)}x" for c in (*b"\t\n\r", *range(32, 127)))


class WholeWindows:
    """The windows of a tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._normalizer = tokenizer.normalizer
        self._usual = len(self._normal(_SAMPLE)) == len(_SAMPLE)
        split = json.loads(tokenizer.to_str())["pre_tokenizer"]
        self._length = window_length(split)
        first = next(steps(split), {}).get("type")
        # Unigram puts a mark of a space before a text that begins with none, so a piece may only
        # begin with white space.
        self._marked = first == "Metaspace"
        # Windows begin anew at each word.
        worded = self._length > 0 and first not in ("Metaspace", "Split")
        self._words = tokenizer.pre_tokenizer[0] if worded else None

    @property
    def matter(self) -> bool:
        """Whether it matters which character begins a piece: single characters have no frame."""
        return self._length > 1

    def end(self, part: str) -> int:
        """How much of this beginning of a text is a long piece that can be cut off; 0 if there is
        none."""
        # What is behind the last characters may belong to them.
        at = self._possible(part, len(part) - _AROUND)
        known = count = -1  # a place, and how many characters count before it
        for _ in range(_TRIED):
            if at <= 0:
                break
            back = 1
            if self._apart(part, at):
                if known >= 0:
                    count -= len(self._normal(part[at:known]))
                if count < 0:
                    count = self._count(part[:at])
                known = at
                over = count % self._length
                if not over:
                    return at
                # A character may become several, and so many would be stepped over.
                back = max(1, over * over // max(over, len(self._normal(part[at - over : at]))))
            at = self._possible(part, at - back)
        return 0

    def _possible(self, part: str, at: int) -> int:
        """The last place up to `at` where a piece might begin; 0 if there is none."""
        if self._marked:
            while at > 0 and not (part[at].isspace() and not part[at - 1].isspace()):
                at -= 1
        else:
            while at > 0 and _is_mark(part[at]):
                at -= 1
        return at

    def _apart(self, part: str, at: int) -> bool:
        """Whether the two sides of a place are normalised as if the other were not there."""
        before = self._normal(part[max(0, at - _AROUND) : at])
        behind = self._normal(part[at : at + _AROUND])
        if not before or (self._marked and behind[:1] != " "):
            return False
        return before + behind == self._normal(part[max(0, at - _AROUND) : at + _AROUND])

    def _count(self, part: str) -> int:
        """The characters of a normalised text, or of the word that it ends with."""
        if self._words is None:
            return self._size(part)
        for text in (part[-_WORDS:], part):
            normal = self._normal(text)
            if normal[-1:].isspace():
                return 0
            words = self._words.pre_tokenize_str(normal)
            if len(words) > 1:
                break
        return len(words[-1][0]) if words else 0

    def _size(self, part: str) -> int:
        """The characters of a normalised text; with the mark, if it gets one."""
        if self._usual and _EASY.fullmatch(part):
            # Normalising all of it costs a third of encoding it.
            normal = _SPACE.sub(" ", part) if self._marked else part
        else:
            normal = self._normal(part)
        return len(normal) + (self._marked and normal[:1] not in (" ", "\u2581"))

    def _normal(self, text: str) -> str:
        return text if self._normalizer is None else self._normalizer.normalize_str(text)


def _is_mark(character: str) -> bool:
    """Whether a character may be joined to one that is far before it."""
    return character > "\x7f" and category(normalize("NFKD", character)[0])[0] == "M"
