"""What a recipe costs in floating-point operations (FLOPs), by two conventions. A multiply-add
counts as two.

`hardware` counts only matrix products, by which the rate of processors is measured. Looking up an
embedding is free, a head runs on its exact share of the tokens, attention is over the whole row (a
packed row computes L x L) or over a window of it, the backward pass is twice the forward pass.
Muon's products in each update count; other optimisers have none.
Anything that is computed twice to save memory (the logits of All-Tokens MLM and of Electric's cloze
model) counts twice.
`paper` counts as the public FLOPs script of ELECTRA does (2003.10555, Table 1): the backward pass
equals the forward pass, tables are read by one-hot products, an output softmax is computed at
0.15625 of the positions whatever the mask rate, and bias, dropout, softmax, norm and activation
count a little.

Nothing is allocated: networks are built on torch's meta device.

`electrify flops` prints these counts (`report`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import torch
from torch import nn

from .build import Built, Vocabulary, compose
from .data.phases import Phases, phases_of
from .model.costs import (
    CHOSEN,
    MovingShare,
    Pass,
    Sizes,
    binary_flops,
    encoder_flops,
    linear_flops,
    orthogonal_flops,
    output_flops,
    paper_linear_flops,
)
from .model.embeddings import DisentangledWords
from .model.encoder import matrices_of
from .names import Named
from .objectives.objective import Objective
from .progress import aligned
from .recipe import Recipe, first_update, stages_of, with_batch
from .rules import countable
from .values import SpecialIds

Convention = Literal["paper", "hardware"]
# The cost of a backward pass relative to a forward pass. In truth, a product has two gradients, of
# its input and of its weights.
BACKWARD = {"paper": 1, "hardware": 2}
# Any ids will do, because they do not affect shapes.
SPECIAL = SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)


def forward_flops(
    network: nn.Module, *, row_length: int, convention: Convention, batch_rows: int = 1
) -> float:
    """Forward FLOPs of a network for one token on which it runs, in a row of `row_length` tokens,
    as the network itself reports. batch_rows: rows over which is spread what it computes once."""
    if isinstance(network, nn.Linear):
        return paper_linear_flops(network) if convention == "paper" else linear_flops(network)
    once = getattr(network, "once_flops", None)
    shared = 0.0 if once is None else once(row_length) / (batch_rows * row_length)
    return getattr(network, f"{convention}_flops")(row_length) + shared


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
    total, how = 0.0, {"row_length": row_length, "batch_rows": batch_rows}
    for one in passes:
        share, again = one.share_at(progress), False
        if convention == "paper" and 0 < share < 1:
            share = getattr(one.network, "paper_share", None) or share
        if convention == "hardware" and one.again_above is not None:
            again = rows * row_length > one.again_above
        times = 1 + BACKWARD[convention] + again if one.trains else 1
        total += share * times * forward_flops(one.network, convention=convention, **how)
    return total


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
    update: float = 0.0
    """FLOPs of an update that do not depend on its tokens: those of Muon."""


def flops_of_periods(
    objective: Objective,
    phases: Phases,
    *,
    max_steps: int,
    convention: Convention,
    rows: int = 1,
    optim: str = "adamw",
) -> list[PeriodFlops]:
    """The cost of each period of a run of `max_steps` updates, for the row lengths of these phases.
    rows: see passes_flops."""
    update = muon_flops(objective) if (convention, optim) == ("hardware", "muon") else 0.0

    def by_length(passes: list[Pass], progress: float) -> dict[int, float]:
        how: dict[str, Any] = {"convention": convention, "rows": rows, "progress": progress}
        return {
            length: passes_flops(passes, row_length=length, batch_rows=batch_rows, **how)
            for length, batch_rows in phases.batch_rows.items()
        }

    found = []
    for p in objective.periods():
        mean = by_length(p.passes, 0.5)
        slope = {}
        if any(isinstance(one.share, MovingShare) for one in p.passes):
            start, end = by_length(p.passes, 0.0), by_length(p.passes, 1.0)
            slope = {length: (end[length] - start[length]) / max_steps for length in mean}
        first = first_update(p.start, max_steps)
        found.append(PeriodFlops(first, mean, slope, max_steps / 2, update))
    return found


def muon_flops(objective: Any) -> float:
    """FLOPs of the matrix products in an update of Muon, by which each process updates all of the
    matrices that are trained."""
    named, total = dict(objective.named_parameters()), 0.0
    for name, number in matrices_of(objective).items():
        if named[name].requires_grad:
            rows, columns = named[name].shape
            total += number * orthogonal_flops(rows // number, columns)
    return total


def flops_before(phases: Phases, step: int, periods: Sequence[PeriodFlops]) -> float:
    """FLOPs of the updates before `step` in a run of these periods."""
    starts = [*(phase.first for phase in phases.all), step]
    ends = [*(p.first for p in periods[1:]), step]
    total = 0.0
    for period, end in zip(periods, ends, strict=True):
        for phase, begin, until in zip(phases.all, starts, starts[1:], strict=False):
            first, last = max(period.first, begin), min(end, until, step)
            slope = period.slope.get(phase.row_length, 0.0)
            beyond = slope * ((first + last) / 2 - period.middle)
            per_token = period.per_token[phase.row_length] + beyond
            total += (per_token * phase.slots + period.update) * max(0, last - first)
    return total


@dataclass(frozen=True, kw_only=True)
class RecipeFlops(Named):
    """The cost of a recipe. A run is `max_steps` updates of `train_batch_size` rows of
    `max_seq_length` tokens."""

    train: float
    """FLOPs of the whole run, including the `generator_steps` of a first stage."""
    step: float
    """FLOPs of one update of the last phase, with Muon's matrix products, at the run's mean mask
    rate."""
    token: float
    """FLOPs of training for one token of the last phase, at that rate."""
    inference: float
    """FLOPs of the forward pass of the discriminator (without a head), for one sequence of
    `inference_length` tokens."""
    parameters: int
    """Number of parameters of the discriminator, including embeddings."""
    max_steps: int
    train_batch_size: int
    max_seq_length: int
    inference_length: int

    def __float__(self) -> float:
        return self.train

    def __format__(self, spec: str) -> str:
        return format(self.train, spec) if spec else str(self)


def recipe_flops(
    recipe: Recipe,
    *,
    vocab_size: int,
    convention: Convention,
    inference_length: int | None = None,
) -> RecipeFlops:
    """The cost of a recipe with a vocabulary of `vocab_size`, in one process. Allocates no memory.

    inference_length: tokens of the sequence whose inference is counted, by default max_seq_length.
    """
    recipe = with_batch(recipe)
    length = recipe.data.max_seq_length
    rows = recipe.train.train_batch_size
    encoder = outline(recipe, vocab_size=vocab_size).discriminator.encoder
    words = encoder.embeddings.words
    # The generator's table; an export holds the sum of the two.
    below = words.base.weight.numel() if isinstance(words, DisentangledWords) else 0
    how: dict[str, Any] = {"vocab_size": vocab_size, "convention": convention}
    train, periods = _run_flops(recipe, **how)
    token, read = periods[-1].per_token[length], inference_length or length
    return RecipeFlops(
        train=train + first_stage_flops(recipe, **how),
        step=rows * length * token + periods[-1].update,
        token=token,
        inference=read * forward_flops(encoder, row_length=read, convention=convention),
        parameters=sum(p.numel() for p in encoder.parameters()) - below,
        max_steps=recipe.train.max_steps,
        train_batch_size=rows,
        max_seq_length=length,
        inference_length=read,
    )


def first_stage_flops(recipe: Recipe, *, vocab_size: int, convention: Convention) -> float:
    """FLOPs of the first of two stages; 0 if there is one stage."""
    *before, _ = stages_of(recipe)
    return sum(_run_flops(s, vocab_size=vocab_size, convention=convention)[0] for s in before)


def _run_flops(
    recipe: Recipe, *, vocab_size: int, convention: Convention
) -> tuple[float, list[PeriodFlops]]:
    """FLOPs of all updates of a run of one stage, in one process, and its periods."""
    t, phases = recipe.train, phases_of(recipe)
    passes = t.gradient_accumulation_steps or 1
    rows = t.per_device_train_batch_size or max(1, t.train_batch_size // passes)
    objective = outline(recipe, vocab_size=vocab_size).objective
    how: dict[str, Any] = {"max_steps": t.max_steps, "convention": convention, "optim": t.optim}
    periods = flops_of_periods(objective, phases, rows=rows, **how)
    return flops_before(phases, t.max_steps, periods), periods


def outline(recipe: Recipe, *, vocab_size: int) -> Built:
    """The recipe's networks without values for their parameters."""
    with torch.device("meta"):
        return compose(recipe, Vocabulary(vocab_size, SPECIAL))


# ------------------------------------------------------------------ published models

# Two that are not plain transformers: the authors measured the forward pass with TensorFlow.
# ELMo: 10 epochs over the words of LM1B in batches of 20 x 128.
ELMO = 2 * 10 * 768_648_884 / (20 * 128) * 568_093_262_680
# XLNet: 500k steps of batch 8192; 32 examples were measured.
XLNET = 2 * 500_000 * 8192 / 32 * 15_064_773_691_518

SMALL = Sizes(width=256, layers=12, length=128, embedding=128)
SMALL_GENERATOR = Sizes(width=64, layers=12, length=128, embedding=128)
BASE = Sizes(width=768, layers=12)
BASE_GENERATOR = Sizes(width=256, layers=12, embedding=768)
LARGE = Sizes(width=1024, layers=24)
LARGE_GENERATOR = Sizes(width=256, layers=24, embedding=1024)
GPT = Sizes(width=768, layers=12, vocab=40000)
ROBERTA = Sizes(width=1024, layers=24, vocab=50265)
ALBERT = Sizes(width=4096, layers=12, vocab=30000, embedding=128)
T5 = Sizes(width=1024, layers=24, vocab=32000, feed_forward=65536, heads=128, attention=128 * 128)
T5_DECODER = replace(T5, attentions=2)


def published() -> dict[str, float]:
    """FLOPs of the pre-training of the models that ELECTRA's authors compare, by name, in the
    paper's convention."""
    return {
        "elmo": ELMO,
        "xlnet": XLNET,
        "gpt": lm(GPT, batch=128, steps=960_800, share=1),
        "bert_small": lm(SMALL, batch=128, steps=1.45e6),
        "bert_base": lm(BASE, batch=256, steps=1e6),
        "bert_large": lm(LARGE, batch=256, steps=1e6),
        "electra_small": electra(SMALL, SMALL_GENERATOR, batch=128, steps=1e6),
        "electra_base": electra(BASE, BASE_GENERATOR, batch=256, steps=766_000),
        "electra_400k": electra(LARGE, LARGE_GENERATOR, batch=2048, steps=400_000),
        "electra_1.75M": electra(LARGE, LARGE_GENERATOR, batch=2048, steps=1.75e6),
        "roberta": lm(ROBERTA, batch=8000, steps=500_000),
        # This is in the paper's Table 2; the script counts only the long run.
        "roberta_100k": lm(ROBERTA, batch=8000, steps=100_000),
        "albert": lm(ALBERT, batch=4096, steps=1.5e6),
        "t5_11b": (
            lm(T5, batch=2048, steps=1e6, share=0) + lm(T5_DECODER, batch=2048, steps=1e6, share=1)
        ),
    }


def train(batch: float, steps: float, s: Sizes, per_token: float) -> float:
    return (1 + BACKWARD["paper"]) * batch * steps * s.length * per_token


def lm(s: Sizes, *, batch: float, steps: float, share: float = CHOSEN) -> float:
    """A language model. share: share of the tokens for which a word is predicted."""
    return train(batch, steps, s, encoder_flops(s) + share * output_flops(s))


def electra(s: Sizes, generator: Sizes, *, batch: float, steps: float) -> float:
    """A discriminator with its generator."""
    discriminator = train(batch, steps, s, encoder_flops(s) + binary_flops(s.width))
    return discriminator + lm(generator, batch=batch, steps=steps)


# ------------------------------------------------------------------ electrify flops


def report_published(*, as_json: bool) -> str:
    """The output of `electrify flops --published`: a table, or one JSON object."""
    figures = published()
    if as_json:
        return json.dumps({"convention": "paper", "published": figures})
    rows = [[name, _short(x)] for name, x in figures.items()]
    return "\n".join(aligned([["model", "train FLOPs"], *rows], names=1))


def report(
    names: Sequence[str],
    *,
    convention: Convention,
    vocab_size: int,
    length: int | None,
    equal_to: str | None,
    as_json: bool,
) -> str:
    """The output of `electrify flops`: a table, or one JSON object. length: tokens of a sequence
    for the FLOPs of inference, by default those of each recipe. equal_to: the recipe whose FLOPs
    the others match."""
    head: dict[str, Any] = {"convention": convention, "vocab_size": vocab_size}
    found = {n: recipe_flops(countable(n), **head, inference_length=length) for n in names}
    equal: dict[str, dict[str, float]] = {name: {} for name in names}
    if equal_to:
        budget = recipe_flops(countable(equal_to), **head).train
        # A first stage grows with the second.
        equal = {n: {"equal_steps": c.max_steps * budget / c.train} for n, c in found.items()}
    if as_json:
        head |= {"equal_to": equal_to} if equal_to else {}
        recipes = {name: asdict(cost) | equal[name] for name, cost in found.items()}
        return json.dumps(head | {"recipes": recipes})
    read = f"{length:,} tokens" if length else "sequence"
    cells = [["recipe", "parameters", "batch", "length", "FLOPs/token", "FLOPs/step"]]
    cells[0] += [f"inference/{read}", "train FLOPs", "steps"]
    cells[0] += [f"steps for {equal_to}'s FLOPs"] * bool(equal_to)
    for name, c in found.items():
        row = [name, f"{c.parameters:,}", f"{c.train_batch_size:,}", f"{c.max_seq_length:,}"]
        row += [*map(_short, (c.token, c.step, c.inference, c.train)), f"{c.max_steps:,}"]
        cells.append(row + [f"{steps:,.0f}" for steps in equal[name].values()])
    said = f"convention {convention}, vocabulary of {vocab_size:,}"
    if convention != "hardware":
        # Budgets of a study are several times smaller than these numbers look.
        said += ". compare counts by --convention hardware"
    return "\n".join([*aligned(cells, names=1), said])


def _short(x: float) -> str:
    """1.29e18: three digits."""
    return f"{x:.2e}".replace("e+0", "e").replace("e+", "e")
