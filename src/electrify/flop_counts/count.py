"""Counts the FLOPs of any objective and any recipe, by either convention."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ..build import Built, Vocabulary, compose
from ..data.phases import Phases, phases_of
from ..model.costs import linear_flops, paper_linear_flops
from ..model.embeddings import DisentangledWords
from ..model.encoder import Encoder
from ..model.forward_passes import Measured, Pass, Share
from ..model.shape import Shape
from ..recipe import Recipe, first_update, stages_of, with_batch
from ..tokens import SpecialIds
from . import paper
from .options import Convention

BACKWARD = {"paper": paper.BACKWARD, "hardware": 2}  # of a forward pass

# Any ids will do, because they do not affect shapes.
_SPECIAL = SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)


def forward_flops(
    network: nn.Module, *, row_length: int, convention: Convention, batch_rows: int = 1
) -> float:
    """Forward FLOPs of a network for one token on which it runs, in a row of `row_length` tokens,
    as the network itself reports. batch_rows: rows over which is spread what it computes once."""
    if isinstance(network, nn.Linear):
        return paper_linear_flops(network) if convention == "paper" else linear_flops(network)
    told: Any = network
    count = getattr(told, f"{convention}_flops", None)
    if count is None:
        raise TypeError(f"nobody has counted a {type(network).__name__}")
    once = getattr(told, "once_flops", None)
    shared = 0.0 if once is None else once(row_length) / (batch_rows * row_length)
    return count(row_length) + shared


def passes_flops(
    passes: Iterable[Pass],
    *,
    row_length: int,
    convention: Convention,
    rows: int = 1,
    batch_rows: int = 1,
    progress: float = 0.5,
) -> float:
    """FLOPs of forward and backward passes for one token of the batch (heads on a share of the
    tokens are spread over all).

    rows: the number of rows in one forward pass, which decides whether something is computed twice
    (`Pass.again_above`); the paper's convention ignores this. batch_rows: the number of rows in the
    batch, over which is spread what is computed once, as if the batch were not split. progress: the
    share of the run that is done, for shares of the tokens that move; in its middle they have their
    mean over the run.
    """
    total = 0.0
    for one in passes:
        share = one.share_at(progress)
        if convention == "paper" and 0 < share < 1:
            share = getattr(one.network, "paper_share", None) or share
        again = (
            convention == "hardware"
            and one.again_above is not None
            and rows * row_length > one.again_above
        )
        times = 1 + BACKWARD[convention] + again if one.trains else 1
        forward = forward_flops(
            one.network, row_length=row_length, convention=convention, batch_rows=batch_rows
        )
        total += share * times * forward
    return total


def flops_per_token(
    objective: Measured, *, row_length: int, convention: Convention, rows: int = 1
) -> float:
    """FLOPs of training `objective`, for one token of the batch (padding counts as tokens) in rows
    of `row_length`, without the optimiser.

    rows: see passes_flops.
    """
    return passes_flops(objective.passes(), row_length=row_length, convention=convention, rows=rows)


@dataclass(frozen=True)
class PeriodFlops:
    """The cost of a period of a run."""

    first: int
    """Its first update, counted from 0."""
    per_token: dict[int, float]
    """FLOPs per token for each row length, as the mean over the whole run."""
    slope: dict[int, float] = field(default_factory=dict)
    """How much they grow with each update, where the share of tokens that is chosen moves."""
    middle: float = 0.0
    """The update at which they have that mean."""


def flops_of_periods(
    objective: Measured,
    phases: Phases,
    *,
    max_steps: int,
    convention: Convention,
    rows: int = 1,
) -> list[PeriodFlops]:
    """The cost of each period of a run of `max_steps` updates, for the row lengths of these phases.
    rows: see passes_flops."""
    how: dict[str, Any] = {"convention": convention, "rows": rows}
    found = []
    for p in objective.periods():
        mean = by_length(p.passes, phases, **how)
        slope = {}
        if any(isinstance(one.share, Share) for one in p.passes):
            start, end = (by_length(p.passes, phases, **how, progress=at) for at in (0.0, 1.0))
            slope = {length: (end[length] - start[length]) / max_steps for length in mean}
        found.append(PeriodFlops(first_update(p.start, max_steps), mean, slope, max_steps / 2))
    return found


def by_length(
    passes: Iterable[Pass],
    phases: Phases,
    *,
    convention: Convention,
    rows: int = 1,
    progress: float = 0.5,
) -> dict[int, float]:
    """FLOPs of these passes per token for each row length. rows, progress: see passes_flops."""
    passes = list(passes)
    how: dict[str, Any] = {"convention": convention, "rows": rows, "progress": progress}
    return {
        length: passes_flops(passes, row_length=length, batch_rows=batch_rows, **how)
        for length, batch_rows in phases.batch_rows.items()
    }


def flops_before(phases: Phases, step: int, periods: Sequence[PeriodFlops]) -> float:
    """FLOPs of the updates before `step` in a run of these periods."""
    ends = [p.first for p in periods[1:]] + [step]
    total = 0.0
    for period, end in zip(periods, ends, strict=True):
        first, last = min(period.first, step), min(end, step)
        mean = period.per_token
        total += flops_of(phases, last, mean) - flops_of(phases, first, mean)
        total += moved_flops(phases, first, last, period)
    return total


def moved_flops(phases: Phases, first: int, last: int, period: PeriodFlops) -> float:
    """FLOPs of the updates from `first` to before `last` beyond those at the mean over the run."""
    if not period.slope:
        return 0.0
    starts = [p.first for p in phases.all]
    total = 0.0
    for phase, start, end in zip(phases.all, starts, [*starts[1:], last], strict=True):
        one, other = max(start, first), min(end, last)
        beyond = period.slope[phase.row_length] * ((one + other) / 2 - period.middle)
        total += phase.slots * max(0, other - one) * beyond
    return total


def flops_of(phases: Phases, steps: int, per_token: dict[int, float]) -> float:
    """FLOPs of the first `steps` updates. per_token: FLOPs per token for each row length."""
    return sum(
        per_token[phase.row_length] * phase.slots * updates
        for phase, updates in phases.updates(steps)
    )


@dataclass(frozen=True, kw_only=True)
class RecipeFlops:
    """The cost of a recipe. A run is `max_steps` updates of `train_batch_size` rows of
    `max_seq_length` tokens."""

    train: float
    """FLOPs of the whole run, including the `generator_steps` of a first stage."""
    step: float
    """FLOPs of one update of the last phase, without the optimiser, at the run's mean mask rate."""
    token: float
    """FLOPs of training for one token of the last phase, at that rate."""
    inference: float
    """FLOPs of the forward pass of the encoder that is kept (without a head), for one sequence of
    `inference_length` tokens."""
    parameters: int
    """Number of parameters of the encoder that is kept, including embeddings."""
    max_steps: int
    train_batch_size: int
    max_seq_length: int
    inference_length: int


def recipe_flops(
    config: Recipe,
    *,
    vocab_size: int,
    convention: Convention,
    inference_length: int | None = None,
) -> RecipeFlops:
    """The cost of a recipe with a vocabulary of `vocab_size`, in one process. Allocates no memory.

    inference_length: tokens of the sequence whose inference is counted, by default max_seq_length.
    """
    config = with_batch(config)
    built = outline(config, vocab_size=vocab_size)
    length = config.data.max_seq_length
    rows = config.train.train_batch_size
    encoder = built.kept.encoder
    periods = _periods(config, built, convention)
    token = periods[-1].per_token[length]
    read = inference_length or length
    before = first_stage_flops(config, vocab_size=vocab_size, convention=convention)
    return RecipeFlops(
        train=_run_flops(config, periods) + before,
        step=rows * length * token,
        token=token,
        inference=read * forward_flops(encoder, row_length=read, convention=convention),
        parameters=_parameters(encoder),
        max_steps=config.train.max_steps,
        train_batch_size=rows,
        max_seq_length=length,
        inference_length=read,
    )


def first_stage_flops(config: Recipe, *, vocab_size: int, convention: Convention) -> float:
    """FLOPs of the first of two stages; 0 if there is one stage."""
    *before, _ = stages_of(config)
    return sum(
        _run_flops(stage, _periods(stage, outline(stage, vocab_size=vocab_size), convention))
        for stage in before
    )


def _periods(config: Recipe, built: Built, convention: Convention) -> list[PeriodFlops]:
    """The cost of each period of a run of one stage, in one process."""
    t = config.train
    rows = t.per_device_train_batch_size or max(
        1, t.train_batch_size // (t.gradient_accumulation_steps or 1)
    )
    return flops_of_periods(
        built.objective,
        phases_of(config),
        max_steps=t.max_steps,
        convention=convention,
        rows=rows,
    )


def _run_flops(config: Recipe, periods: Sequence[PeriodFlops]) -> float:
    """FLOPs of all updates of a run of these periods."""
    return flops_before(phases_of(config), config.train.max_steps, periods)


def outline(config: Recipe, *, vocab_size: int, generator: Shape | None = None) -> Built:
    """The recipe's networks without values for their parameters. generator: see `build`."""
    with torch.device("meta"):
        return compose(config, Vocabulary(vocab_size, _SPECIAL), generator=generator)


def _parameters(encoder: Encoder) -> int:
    words = encoder.embeddings.words
    # The generator's table; an export holds the sum of the two.
    below = words.base.weight.numel() if isinstance(words, DisentangledWords) else 0
    return sum(p.numel() for p in encoder.parameters()) - below
