"""The options of `electrify flops`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..errors import UserError, need
from .entries import recipe_of
from .given import Checked
from .prepare import MAX_VOCABULARY
from .pretrain import recipe_names

Convention = Literal["paper", "hardware"]
PAPER_VOCABULARY = 30522


@dataclass(frozen=True, kw_only=True)
class FlopsConfig(Checked):
    """The models whose cost is counted, and how."""

    HEADINGS: ClassVar = {
        "recipes": "what is counted",
        "convention": "how it is counted",
        "json": "what is shown",
    }
    recipes: tuple[str, ...] = ()
    """shipped recipes, perhaps with changes, and recipe files; none = all shipped ones"""
    published: bool = False
    """instead of recipes, the models that ELECTRA's authors counted (ELMo to T5-11B), in their
    convention"""
    convention: Convention = "paper"
    """paper = as ELECTRA's public script: backward = forward, one-hot embedding lookup, softmax on
    15.625 % of the positions, small terms; hardware = matrix products only, backward = 2 x forward,
    exact mask rate"""
    equal_to: str | None = None
    """a recipe, named as the others; adds the number of steps at which each listed recipe costs as
    much as this one in total"""
    length: int | None = None
    """length in tokens for the cost of inference (the paper's table: 128); by default the recipe's
    own max_seq_length"""
    vocab_size: int = PAPER_VOCABULARY
    """size of the vocabulary"""
    json: bool = False
    """write JSON"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.published and (self.recipes or self.equal_to):
            raise UserError(
                "--published is a list of its own: it takes no recipe and no --equal-to"
            )
        if self.published and (self.convention != "paper" or self.vocab_size != PAPER_VOCABULARY):
            raise UserError(
                "--published keeps the convention and the vocabularies of the paper: it takes no "
                "--convention hardware and no --vocab-size"
            )
        if self.published and self.length is not None:
            raise UserError("--published counts training only: it takes no --length")
        if not 32 <= self.vocab_size <= MAX_VOCABULARY:
            bound = "at least 32" if self.vocab_size < 32 else f"at most {MAX_VOCABULARY}"
            raise UserError(f"vocab_size must be {bound}, not {self.vocab_size}")
        if self.length is not None and self.length < 1:
            raise UserError(f"length must be positive, not {self.length}")
        known = {
            name: recipe_of(name, "recipes")
            for name in self.recipes or ([] if self.published else recipe_names())
        }  # before torch is imported
        other = {self.equal_to: recipe_of(self.equal_to, "equal_to")} if self.equal_to else {}
        for name, recipe in (known | other).items():
            need(
                not (recipe.train.init_discriminator or recipe.train.init_generator),
                f"{name} starts from a folder, whose shape is not counted here",
                "take init_discriminator and init_generator out, and write that shape into the "
                "section model",
            )
        for name, recipe in known.items():
            longest = recipe.model.max_position_embeddings
            if self.length is not None and self.length > longest:
                raise UserError(f"length {self.length} exceeds the {longest} positions of {name}")
