"""Windows over a context that is longer than a sequence, and the tokens of an answer in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

from ..examples import Answer


@dataclass(frozen=True)
class Window:
    """Tokens [begin, end) of a question's context; the first of them stands at `start` in the row.
    offsets: characters of the context's tokens. own: [first, last) of the tokens that have more
    context here than in any other window (see `owned`); for heads that do not ask, of all."""

    question: int
    begin: int
    end: int
    start: int
    offsets: Sequence[tuple[int, int]]
    own: tuple[int, int]

    def characters(self, first: int, last: int) -> tuple[int, int]:
        """Where in the context the tokens at these places of the row are."""
        shift = self.begin - self.start
        return self.offsets[first + shift][0], self.offsets[last + shift][1]


def tokens_of(answer: Answer, offsets: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The first and the last token that contain a character of the answer, if any do."""
    end = answer.start + len(answer.text)
    inside = [k for k, (a, b) in enumerate(offsets) if a < end and answer.start < b]
    return (inside[0], inside[-1]) if inside else None


Places = list[tuple[int, int]]


def windows_over(length: int, room: int, stride: int) -> Places:
    """[begin, end) of each window: one every `stride` tokens, until the end is reached."""
    found = [(0, min(room, length))]
    while found[-1][1] < length:
        begin = found[-1][0] + min(stride, room)
        found.append((begin, min(begin + room, length)))
    return found


@lru_cache(maxsize=10_000)
def owned(length: int, room: int, stride: int) -> tuple[Places, Places]:
    """The windows over this many tokens, and for each window the tokens [first, last) that it holds
    with more context than any other window does. Context is the smaller of the numbers of tokens
    before and after it in the window, plus a hundredth of the window's length; of equal windows,
    the earlier one has the token (BERT's and ELECTRA's max-context rule, 2003.10555's public code).
    These tokens are contiguous: the advantage of a later window over an earlier one never falls
    from token to token.
    """
    windows = windows_over(length, room, stride)
    counts = Counter(
        _owner(k, windows, holding(k, len(windows), room, stride)) for k in range(length)
    )
    ends = list(accumulate(counts[w] for w in range(len(windows))))
    return windows, list(pairwise((0, *ends)))


def holding(token: int, count: int, room: int, stride: int) -> range:
    """The numbers of those of `count` windows that hold a token."""
    step = min(stride, room)
    return range(max(0, (token - room) // step + 1), min(token // step, count - 1) + 1)


def _owner(token: int, windows: Places, held_by: range) -> int:
    """The number of the window that has the token, among those that hold it."""
    found = ((*windows[w], w) for w in held_by)
    return -max(
        (min(token - begin, end - 1 - token) + 0.01 * (end - begin), -w) for begin, end, w in found
    )[1]
