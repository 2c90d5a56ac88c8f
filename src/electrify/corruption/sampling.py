"""Draws from softmax(logits / temperature). Shape suffixes: M chosen positions, V vocabulary, B
blocks of it, K entries of a block, J draws at a position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

BLOCK = 128  # entries of the vocabulary whose probabilities are summed first
LEAST = 1e-37  # so small a probability still differs from 0 in float32


@dataclass(frozen=True)
class Sampling:
    """How a learned corruptor draws: softmax(logits / temperature), the temperature moving from
    `temperature` to `temperature_end` over the run; with `disallow_correct` never the original
    token (both in 2003.10555, appendix of negative results).

    schedule: with u the share of the run that is done, T(u) is T0 + (T1 - T0) u if linear, and
    T1 + (T0 - T1) exp(-u / decay) if exponential (Fast-ELECTRA, 2310.07347).
    """

    temperature: float = 1.0
    temperature_end: float | None = None
    disallow_correct: bool = False
    schedule: Literal["linear", "exponential"] = "linear"
    decay: float = 0.1

    def temperature_at(self, progress: Tensor) -> float | Tensor:
        first = self.temperature
        last = first if self.temperature_end is None else self.temperature_end
        if last == first:
            return first
        if self.schedule == "linear":
            return first + (last - first) * progress
        return last + (first - last) * torch.exp(-progress / self.decay)

    def draw(
        self, logits_MV: Tensor, was_M: Tensor, uniform_M: Tensor, progress: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """One token a row, and softmax(logits) where it was drawn from just that. progress: share
        of the run that is done, 0-dim."""
        p_MV, temperature = self.sharpened(logits_MV, was_M, progress, tau=1.0)
        drawn_M = invert(p_MV, uniform_M)
        plain = isinstance(temperature, float) and temperature == 1.0
        return drawn_M, p_MV if plain and not self.disallow_correct else None

    @torch.no_grad()
    def others(
        self, logits_MV: Tensor, was_M: Tensor, uniform_MJ: Tensor, progress: Tensor
    ) -> Tensor:
        """[M, J] tokens of each row that are neither the original nor equal: drawn one after the
        other, each in proportion to its probability among those that are left. Probabilities below
        1e-37 count as equal, so that there is always one to draw."""
        p_MV = distribution(logits_MV, temperature=self.temperature_at(progress), never_M=was_M)
        p_MV = p_MV.clamp_(min=LEAST).scatter_(-1, was_M[:, None], 0.0)
        return without_replacement(p_MV, uniform_MJ)

    def sharpened(
        self, logits_MV: Tensor, was_M: Tensor, progress: Tensor, *, tau: float
    ) -> tuple[Tensor, float | Tensor]:
        """softmax(logits / (T tau)), T the temperature of the draws, which it is for tau = 1; and
        T tau."""
        temperature = self.temperature_at(progress) * tau
        never_M = was_M if self.disallow_correct else None
        return distribution(logits_MV, temperature=temperature, never_M=never_M), temperature


@torch.no_grad()
def distribution(
    logits_MV: Tensor, *, temperature: float | Tensor, never_M: Tensor | None
) -> Tensor:
    """[M, V] softmax(logits / temperature) in float32, without gradient; `never_M` names one token
    per row that is never drawn."""
    plain = isinstance(temperature, float) and temperature == 1.0
    scaled_MV = logits_MV if plain else logits_MV.float() / temperature
    if never_M is not None:
        scaled_MV = scaled_MV.scatter(-1, never_M[:, None], float("-inf"))
    return scaled_MV.softmax(-1, dtype=torch.float32)


def invert(p_MV: Tensor, uniform_M: Tensor) -> Tensor:
    """The entry of each row where the cumulative sum of its probabilities exceeds uniform * total:
    first its block, then the entry in the block.

    One uniform number a row: a random number for each entry (Gumbel) costs a quarter of a step on a
    CPU, and the cumulative sum of all entries seven times as much as that of the blocks.
    """
    return find(p_MV, block_sums(p_MV), uniform_M)[:, 0]


def without_replacement(p_MV: Tensor, uniform_MJ: Tensor) -> Tensor:
    """[M, J] different entries of each row, drawn one after the other as `invert` draws; p_MV is
    used up. Each needs one uniform number, and the sum of one block anew."""
    sum_MB = block_sums(p_MV)
    drawn: list[Tensor] = []
    for uniform_M in uniform_MJ.unbind(1):
        found_M1 = find(p_MV, sum_MB, uniform_M)
        p_MV.scatter_(1, found_M1, 0.0)
        block_M1 = found_M1 // BLOCK
        sum_MB.scatter_(1, block_M1, in_block(p_MV, block_M1).sum(-1, keepdim=True))
        drawn.append(found_M1)
    return torch.cat(drawn, 1)


def block_sums(p_MV: Tensor) -> Tensor:
    """[M, B] the sums over blocks of the vocabulary; the last one is the shorter rest."""
    whole = p_MV.shape[-1] // BLOCK
    in_blocks_MBK = p_MV[:, : whole * BLOCK].unflatten(1, (whole, BLOCK))
    rest_M1 = p_MV[:, whole * BLOCK :].sum(-1, keepdim=True)
    return torch.cat([in_blocks_MBK.sum(-1), rest_M1], -1)


def in_block(p_MV: Tensor, block_M1: Tensor) -> Tensor:
    """[M, K] the entries of one block of each row, 0 beyond the vocabulary."""
    size = p_MV.shape[-1]
    entry_MK = block_M1 * BLOCK + torch.arange(BLOCK, device=p_MV.device)
    return p_MV.gather(1, entry_MK.clamp(max=size - 1)).masked_fill_(entry_MK >= size, 0.0)


def find(p_MV: Tensor, sum_MB: Tensor, uniform_M: Tensor) -> Tensor:
    """[M, 1] the entries of `invert`, from the sums over blocks.

    Sums of sums are in float64. In float32 the last bit of one probability, which differs with how
    a batch is cut, moves all boundaries behind it: three to four times as many draws then change.
    """
    size = p_MV.shape[-1]
    reached_MB = sum_MB.cumsum(-1, dtype=torch.float64)
    target_M1 = below(uniform_M[:, None] * reached_MB[:, -1:], reached_MB[:, -1:])
    block_M1 = torch.searchsorted(reached_MB, target_M1, right=True).clamp_(max=size // BLOCK)
    before_M1 = torch.where(block_M1 > 0, reached_MB.gather(1, (block_M1 - 1).clamp(min=0)), 0.0)
    reached_MK = in_block(p_MV, block_M1).cumsum(-1, dtype=torch.float64)
    found_M1 = torch.searchsorted(
        reached_MK, below(target_M1 - before_M1, reached_MK[:, -1:]), right=True
    )
    # Logits that are not numbers have no larger entry. The loop stops on their loss, before which
    # an id outside the vocabulary would crash.
    return (block_M1 * BLOCK + found_M1).clamp_(max=size - 1)


def below(target_M1: Tensor, total_M1: Tensor) -> Tensor:
    """Strictly below the total (rounding may reach it), so that the first larger entry exists, and
    has some probability."""
    return torch.minimum(target_M1, torch.nextafter(total_M1, torch.zeros_like(total_M1)))
