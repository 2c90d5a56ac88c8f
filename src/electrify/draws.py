"""Draws: random numbers as a pure function of (seed, step, global row, position, purpose).

A counter-based generator: each number is a hash of its coordinates, so nothing about randomness is
ever saved, any world size and any split into micro-batches sees the same numbers, CPU and GPU agree
to the bit, and no draw waits for another. The mixing is the finaliser of SplitMix64 (Steele, Lea
and Flood 2014), applied once per coordinate.

Shape suffixes: R rows, T = rows * row_length flat tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

Purpose = Literal[
    "choose", "mix", "random_token", "sample", "sentence", "span", "candidates", "crop"
]
# The number of a purpose is part of every random stream, so append new ones and never reorder.
_PURPOSES: dict[Purpose, int] = {
    "choose": 1,
    "mix": 2,
    "random_token": 3,
    "sample": 4,
    "sentence": 5,
    "span": 6,
    "candidates": 7,
    "crop": 8,
}


def _signed(x: int) -> int:
    return x - (1 << 64) if x >= 1 << 63 else x


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_A = _signed(0xBF58476D1CE4E5B9)
_B = _signed(0x94D049BB133111EB)


def _shift(x: Tensor, n: int) -> Tensor:
    return (x >> n) & ((1 << (64 - n)) - 1)  # int64 shifts keep the sign; a hash needs zeros


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _A
    x = (x ^ _shift(x, 27)) * _B
    return x ^ _shift(x, 31)


def hashed(*coordinates: int | Tensor) -> Tensor:
    """A 64-bit hash of integer coordinates (broadcast against each other), as int64, on their
    device."""
    state: int | Tensor = 0
    for c in coordinates:
        # Integers stay Python numbers as long as possible, because sending one to a GPU would make
        # the step wait.
        if isinstance(c, int):
            added: int | Tensor = _wrapped(c * _A + _GOLDEN)
        else:
            added = c.long() * _A + _GOLDEN
        state = (
            _wrapped(state * _GOLDEN) + added if isinstance(state, int) else state * _GOLDEN + added
        )
        state = _mix_int(state) if isinstance(state, int) else _mix(state)
    return torch.tensor(state) if isinstance(state, int) else state


def _wrapped(x: int) -> int:
    """As an int64 that overflows."""
    return _signed(x & ((1 << 64) - 1))


def _mix_int(x: int) -> int:
    whole = (1 << 64) - 1
    x &= whole
    x = (x ^ (x >> 30)) * _A & whole
    x = (x ^ (x >> 27)) * _B & whole
    return _signed(x ^ (x >> 31))


@dataclass(frozen=True)
class Draws:
    """The random numbers of one batch of rows, and the progress of the run, which a corruptor's
    schedules read."""

    key_R: Tensor
    row_length: int
    progress: Tensor = field(default_factory=lambda: torch.zeros(()))
    """Share of the run that is done, 0-dim float32."""

    def rows(self, start: int, stop: int) -> Draws:
        return replace(self, key_R=self.key_R[start:stop])

    def bits_T(self, purpose: Purpose, index: int = 0) -> Tensor:
        """53 random bits for every token, as non-negative int64 [T]. index: which set of bits, if a
        purpose needs several."""
        position_L = torch.arange(self.row_length, device=self.key_R.device)
        coordinates = (
            (_PURPOSES[purpose], position_L)
            if index == 0
            else (_PURPOSES[purpose], position_L, index)
        )
        return _shift(hashed(self.key_R[:, None], *coordinates).flatten(), 11)

    def uniform_T(self, purpose: Purpose, index: int = 0) -> Tensor:
        """A float64 in [0, 1) for every token [T] (float32 would round some numbers up to 1)."""
        return self.bits_T(purpose, index).double() * 2.0**-53


def draws_for(
    *,
    seed: int,
    step: int,
    num_rows: int,
    row_length: int,
    first_row: int = 0,
    progress: float = 0.0,
) -> Draws:
    """The draws of rows first_row .. first_row + num_rows - 1 of the global batch of `step`."""
    return Draws(
        hashed(seed, step, torch.arange(first_row, first_row + num_rows)),
        row_length,
        torch.tensor(progress, dtype=torch.float32),
    )
