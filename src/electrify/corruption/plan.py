"""Everything that is decided about a batch before any network runs: the chosen positions, the
tokens shown there, the random numbers for sampling, and the number of tokens by which each loss is
divided.

It depends on tokens and draws alone, so the loader's thread makes it on the CPU, and a forward pass
chooses nothing.

Shape suffixes: T flat tokens, M chosen positions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

P = TypeVar("P", bound="Plan")

# A list of fixed length has SPARE times the expected number of places, STEP times as many if a
# batch needs them, and always a multiple of WHOLE.
SPARE = 1.05
STEP = 1.25
WHOLE = 64


@dataclass(frozen=True)
class Plan:
    """A method with more to decide has a subclass; its tensors, alone, in dicts or in other
    dataclasses, travel with the others."""

    at_M: Tensor
    """Chosen positions, flat, ascending; filled up with 0 where the list has a fixed length."""
    candidates_T: Tensor
    """True for every token that may be chosen: all but the special ones."""
    progress: Tensor
    """Share of the run that is done (0-dim float32), for a corruptor's schedules."""
    valid_M: Tensor | None = None
    """Which entries of at_M are chosen positions; None where all are."""
    shown_M: Tensor | None = None
    """The tokens that a language model is shown at the chosen positions: [MASK], the original, or a
    random token."""
    uniform_M: Tensor | None = None
    """float64 in [0, 1): the random numbers with which the new tokens are drawn."""
    counts: dict[str, Tensor] = field(default_factory=dict)
    """How many tokens each loss divides by, 0-dim, whatever the networks say."""

    def counting(self: P, **counts: Tensor) -> P:
        """The same plan with the counts of further losses."""
        return replace(self, counts=self.counts | counts)

    def to(self: P, device: torch.device | str) -> P:
        return _moved(self, lambda t: t.to(device, non_blocking=True))

    def pin(self: P) -> P:
        """In memory from which a copy to a GPU runs by itself."""
        return _moved(self, lambda t: t.pin_memory())


def _moved(plan: P, move: Callable[[Tensor], Tensor]) -> P:
    def one(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: one(v) for key, v in value.items()}
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{f.name: one(getattr(value, f.name)) for f in fields(value)})
        return move(value) if isinstance(value, Tensor) else value

    return one(plan)


def positions(chosen_T: Tensor, *, fixed_for: float | None) -> tuple[Tensor, Tensor | None]:
    """at_M and valid_M. fixed_for: the share of the tokens that is usually chosen; the list then
    has one of a few lengths, so that a compiled step (and a CUDA graph of it) fits every batch.
    None: as many as there are.

    The fillers point to the batch's first token, a [CLS], which is never chosen.
    """
    at_M = chosen_T.nonzero().squeeze(1)
    if fixed_for is None:
        return at_M, None
    number = len(at_M)
    length = min(enough(SPARE * fixed_for * len(chosen_T), number), len(chosen_T))
    filled_M = at_M.new_zeros(length)
    filled_M[:number] = at_M
    return filled_M, torch.arange(length, device=at_M.device) < number


def enough(expected: float, number: int) -> int:
    """One of few sizes that hold the number."""
    size = _whole(expected)
    while size < number:
        size = _whole(STEP * size)
    return size


def _whole(number: float) -> int:
    """At least one step, from which a larger size can be reached."""
    return WHOLE * max(1, -(-int(number) // WHOLE))


def count(plan: Plan) -> Tensor:
    """How many positions are chosen, 0-dim."""
    return torch.tensor(len(plan.at_M)) if plan.valid_M is None else plan.valid_M.sum()
