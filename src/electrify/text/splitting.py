"""Where the pieces of a trained vocabulary may not cross: the pre-tokenizers, and how they are
recognised in a tokenizer.json."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# WordPiece looks for its longest piece from the end of what it is given, so its time for a text
# without spaces grows with this length: at 64 it is a few dozen look-ups for each character.
WINDOW = 64
# A word with the space before it; white space before that, and other white space, by itself.
SPACED_WORDS = r" ?\S+|\s+(?!\S)|\s"
ONE_SPACE = r"\s"
_ANY = r"[\s\S]{1,"


@dataclass(frozen=True)
class Splitting:
    """The pre-tokenizer that was asked for: `auto` is the usual one of a kind of tokenizer."""

    kind: str = "auto"
    length: int | None = None
    """characters of a chunk"""

    @property
    def window(self) -> int | None:
        """The most characters that a piece may have for `none` and `chunks`, which look at nothing
        else; None for those that split at words."""
        return {"none": WINDOW, "chunks": self.length}.get(self.kind)


def windows(length: int) -> Any:
    """A pre-tokenizer that cuts what it is given every `length` characters."""
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Split(Regex(f"{_ANY}{length}}}"), "isolated")


def at(pattern: str) -> Any:
    """A pre-tokenizer that sets apart what the pattern matches."""
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Split(Regex(pattern), "isolated")


def bytes_split(splitting: Splitting) -> Any:
    """The pre-tokenizer of byte-level tokenizers."""
    from tokenizers import pre_tokenizers

    if splitting.kind == "auto":
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    first = windows(splitting.window) if splitting.window else at(SPACED_WORDS)
    return pre_tokenizers.Sequence(
        [first, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def steps(part: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """The steps of a normalizer or pre-tokenizer of a tokenizer.json, without its sequences."""
    if not part:
        return
    inner = [*part.get("pretokenizers", ()), *part.get("normalizers", ())]
    yield from inner or [part]


def patterns(part: dict[str, Any] | None) -> set[str]:
    """The regular expressions at which a pre-tokenizer splits."""
    found = [s.get("pattern") for s in steps(part) if s.get("type") == "Split"]
    return {p["Regex"] for p in found if isinstance(p, dict) and isinstance(p.get("Regex"), str)}


def window_length(part: dict[str, Any] | None) -> int:
    """The most characters of the windows into which a pre-tokenizer cuts; 0 if it cuts none."""
    found = (p.removeprefix(_ANY).removesuffix("}") for p in patterns(part) if p.startswith(_ANY))
    return max((int(length) for length in found if length.isdecimal()), default=0)


def by_length(part: dict[str, Any] | None) -> bool:
    """Whether a pre-tokenizer cuts by length, so that its tokens say nothing about words."""
    return window_length(part) > 0
