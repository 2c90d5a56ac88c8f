"""The options of `electrify flops`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le
from tyro.conf import Positional

from ..errors import UserError
from ..progress import show
from ..recipe import Recipe, entry, load, names
from ..rules import check
from ..values import Count, Options

PAPER_VOCABULARY = 30522
Convention = Literal["paper", "hardware"]


@dataclass(frozen=True, kw_only=True)
class FlopsConfig(Options):
    """Which recipes are counted, and how."""

    recipes: Positional[tuple[str, ...]] = ()
    """Recipes, with changes after a colon (electra-tiny:mask_rate=0.3,tie=gdes), or .yaml files
    [default: all shipped recipes]."""
    published: bool = False
    """Count the models that ELECTRA's authors counted (ELMo to T5-11B) instead."""
    convention: Convention = "paper"
    """paper: as ELECTRA's public script (backward = forward, one-hot embedding lookup, softmax on
    15.625 % of the positions, small terms). hardware: matrix products only, backward = 2 x
    forward."""
    equal_to: str | None = None
    """Recipe whose total FLOPs the others match. Adds the number of steps."""
    length: Count | None = None
    """Tokens of a sequence for the FLOPs of inference [default: max_seq_length]."""
    vocab_size: Annotated[int, Ge(32), Le(1 << 22)] = PAPER_VOCABULARY
    """Size of the vocabulary."""
    json: bool = False
    """Write JSON."""

    def check(self) -> None:
        if self.published:
            for name in ("recipes", "convention", "equal_to", "length", "vocab_size"):
                if getattr(self, name) != getattr(FlopsConfig, name):
                    raise UserError(f"published excludes {name}")
            return
        for name in (*self.recipes, *([self.equal_to] if self.equal_to else [])):
            counted(name)  # before torch is imported
        if self.length is None:
            return
        for name in self.listed:
            longest = counted(name).model.max_position_embeddings
            if self.length > longest:
                raise UserError(f"length {self.length} exceeds the {longest} positions of {name}")

    @property
    def listed(self) -> list[str]:
        return list(self.recipes) or names()

    def __call__(self) -> int:
        from .report import report

        show(report(self))
        return 0


def counted(name: str) -> Recipe:
    """The recipe of a name, an entry with changes, or a file. Raises UserError if it cannot be
    counted."""
    one = entry(name)
    recipe = one.load() if one.changes else load(name)
    check(recipe, one.changes)
    if recipe.train.init_discriminator or recipe.train.init_generator:
        raise UserError(f"{name} starts from a folder, whose shape is not counted")
    return recipe
