"""`--recipe auto`: the recipe for a budget of FLOPs or minutes, from measured ones."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import UserError, need
from ..flop_counts import RecipeFlops, recipe_flops
from ..progress import say
from ..recipe import Entry, Recipe, entries, load, override
from ..tables import RECIPES
from ..text.corpus import Corpus, prepared
from ..values import plain_yaml
from . import CONFIG
from .job import facts_of
from .length import LONGEST_S, MARGIN, SHARE, probe


@cache
def measured_budgets() -> dict[float, tuple[Entry, dict[str, str]]]:
    """Budget -> the recipe, and the evidence for it; rising."""
    values = plain_yaml((RECIPES / "auto.yaml").read_text(encoding="utf-8"), "auto.yaml")
    evidence = {name: fields.pop("evidence") for name, fields in values.items()}
    found = {float(e.name): (e, evidence[e.name]) for e in entries(values, "auto.yaml")}
    return dict(sorted(found.items()))


def auto(
    data: str,
    run: Path,
    fields: Mapping[str, Any],
    *,
    flops: float | None,
    minutes: float | None,
) -> tuple[Path, Recipe]:
    """The prepared corpus, and the recipe for a budget with the user's fields over it. With
    minutes, `pretrain` chooses the number of updates, and a run that has begun keeps its recipe.

    Raises UserError for a budget outside the measured ones.
    """
    need(
        (flops is None) != (minutes is None), "recipe auto needs either --flops or --train-minutes"
    )
    need("max_steps" not in fields, "recipe auto sets max_steps: leave it out")
    folder, budgets = prepared(data, run), measured_budgets()
    if minutes is not None and facts_of(run):
        return folder, override(load(run / CONFIG), fields)

    def counted(recipe: Recipe) -> RecipeFlops:
        vocab_size = Corpus(folder, "train").manifest.vocab_size
        return recipe_flops(recipe, vocab_size=vocab_size, convention="hardware")

    if flops is not None:
        asked = f"{flops:g} FLOPs"
    else:
        one = os.environ.get("WORLD_SIZE", "1") == "1"
        need(one, "recipe auto with train_minutes is for one process", "give --flops")
        # All are about as fast as the first one.
        recipe = override(budgets[min(budgets)][0].load(), fields)
        seconds = 60 * (minutes or 0.0)
        per_token, _ = probe(folder, run, recipe, limit_s=min(LONGEST_S, SHARE * seconds))
        flops = MARGIN * seconds * counted(recipe).token / per_token
        asked = f"{minutes:g} minutes (on this machine {flops:.2g} FLOPs)"
    if not min(budgets) <= flops <= max(budgets):
        nearest = min(budgets, key=lambda budget: abs(math.log(budget / flops)))
        raise UserError(
            f"recipe auto: {asked} is outside the measured budgets, {min(budgets):g} to "
            f"{max(budgets):g}. The nearest is --flops {nearest:g}"
        )
    below = max(budget for budget in budgets if budget <= flops)
    chosen, evidence = budgets[below]
    changes, known = (
        ", ".join(f"{name} {value}" for name, value in of.items())
        for of in (chosen.changes, evidence)
    )
    say(f"recipe auto: {chosen.recipe} with {changes}; measured at {below:g} FLOPs: {known}")
    recipe = override(chosen.load(), fields)
    steps = round(recipe.train.max_steps * flops / counted(recipe).train)
    return folder, override(recipe, {"max_steps": steps})
