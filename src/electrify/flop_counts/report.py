"""`electrify flops`: recipes or published models -> a table, or JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from ..progress import aligned
from .count import RecipeFlops, recipe_flops
from .options import PAPER_VOCABULARY, FlopsConfig, counted
from .paper import published


def report(options: FlopsConfig) -> str:
    """The output of `electrify flops`: a table, or one JSON object."""
    if options.published:
        figures = published()
        whole = {"convention": "paper", "published": figures}
        return (
            json.dumps(whole)
            if options.json
            else "\n".join(
                aligned(
                    [["model", "train FLOPs"], *([name, _short(x)] for name, x in figures.items())],
                    names=1,
                )
            )
        )
    found = {name: _cost(name, options) for name in options.listed}
    equal: dict[str, float] = {}
    if options.equal_to:
        budget = _cost(options.equal_to, replace(options, length=None)).train
        equal = {
            name: cost.max_steps * budget / cost.train for name, cost in found.items()
        }  # a first stage grows with the second
    if options.json:
        head = {"convention": options.convention, "vocab_size": options.vocab_size}
        recipes = {
            name: asdict(cost) | ({"equal_steps": equal[name]} if equal else {})
            for name, cost in found.items()
        }
        return json.dumps(
            head | ({"equal_to": options.equal_to} if equal else {}) | {"recipes": recipes}
        )
    table = aligned(_cells(found, equal, equal_to=options.equal_to), names=1)
    return "\n".join([*table, _caption(options)])


def _caption(options: FlopsConfig) -> str:
    """How the numbers of a table were counted."""
    own = options.convention == "hardware" and options.vocab_size != PAPER_VOCABULARY
    said = f"convention {options.convention}, vocabulary of {options.vocab_size:,}"
    # Budgets of a study are several times smaller than these numbers look.
    advice = "; `compare` counts by --convention hardware, with the vocabulary of its DATA"
    return said + advice * (not own)


def _cost(name: str, options: FlopsConfig) -> RecipeFlops:
    config = counted(name)
    size = options.vocab_size
    return recipe_flops(
        config, vocab_size=size, convention=options.convention, inference_length=options.length
    )


def _cells(
    found: dict[str, RecipeFlops], equal: dict[str, float], *, equal_to: str | None
) -> list[list[str]]:
    head = [
        "recipe",
        "parameters",
        "batch",
        "length",
        "FLOPs/token",
        "FLOPs/step",
        f"inference/{_read(found)}",
        "train FLOPs",
        "steps",
    ]
    cells = [head + ([f"steps for {equal_to}'s FLOPs"] if equal else [])]
    for name, c in found.items():
        row = [name, f"{c.parameters:,}", f"{c.train_batch_size:,}", f"{c.max_seq_length:,}"]
        row += [_short(x) for x in (c.token, c.step, c.inference, c.train)] + [f"{c.max_steps:,}"]
        cells.append(row + ([f"{equal[name]:,.0f}"] if equal else []))
    return cells


def _read(found: dict[str, RecipeFlops]) -> str:
    """The length of the sequence whose inference is counted: each recipe's own, or one for all."""
    lengths = {c.inference_length for c in found.values()}
    return (
        "sequence"
        if all(c.inference_length == c.max_seq_length for c in found.values())
        else f"{lengths.pop():,} tokens"
    )


def _short(x: float) -> str:
    """1.29e18: three digits."""
    digits, power = f"{x:.2e}".split("e")
    return f"{digits}e{int(power)}"
