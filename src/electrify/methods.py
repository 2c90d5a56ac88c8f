"""One row for each objective, corruptor and architecture: everything that other modules need to
know about it without importing torch. The rows are in recipes/methods.yaml.

A class of one's own is named as `module:Class` in a recipe file or a flag. It carries the fields of
its row as class attributes.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .errors import UserError
from .names import nearest
from .values import from_text, kinds, plain_yaml

if TYPE_CHECKING:
    from .recipe import Objective as ObjectiveSection
    from .recipe import Recipe

Logits = Literal["token", "replaced", "energy", "choice"]
"""What a head predicts: a token, the log-odds that a token was replaced, an energy, or scores of a
few candidates."""

RECIPES = Path(__file__).parent / "recipes"
DISCRIMINATOR = "discriminator"
"""The folder of the encoder that a run trains, whatever its objective."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A network that a run exports beside the discriminator."""

    title: str
    purpose: str
    """Sentences for its model card."""
    logits: Logits
    fills: bool
    """Whether it was trained on texts with [MASK]."""
    same: bool = False
    """Whether its encoder is the discriminator's, to the bit."""
    loss: str = ""
    """The loss that trains it. Without a weight for it the network is not exported."""
    only_at_end: str = ""
    """`field=value` of the objective with which that loss is at work in the share mlm_end_share of
    the run alone."""

    def is_trained(self, o: ObjectiveSection) -> bool:
        """Whether a run with this objective trains it to the end."""
        name, _, value = self.only_at_end.partition("=")
        never = bool(name) and getattr(o, name) == value and not o.mlm_end_share
        return not never and (not self.loss or bool(o.term_weights[self.loss]))


@dataclass(frozen=True, kw_only=True)
class ObjectiveRow:
    """What the encoder learns."""

    cls: str
    """`module:Class` with `build(parts, **options)`."""
    corruptors: tuple[str, ...]
    """Corruptors whose text it can grade."""
    losses: dict[str, float]
    """Losses with their default weights, the discriminator's first. The loss `generator` comes with
    a generator trained by likelihood."""
    parts: dict[str, str] = field(default_factory=dict)
    """Prefixes of metrics of parts of the discriminator, each with the loss that trains the
    part."""
    optional: dict[str, str] = field(default_factory=dict)
    """Losses that a weight switches on, each with the field that must not be 0 then."""
    options: tuple[str, ...] = ()
    """Fields of the recipe that belong to it."""
    uncovered: tuple[str, ...] = ()
    """Fields of the corruption, or `field=value`, that its mathematics does not cover."""
    rewarded: bool = False
    """Whether the generator is trained by rewards in place of likelihood."""
    logits: Logits = "replaced"
    leaves: dict[str, Exported] = field(default_factory=dict)
    """Further networks that are exported, by folder."""
    masked_lm: bool = False
    """Whether it is a masked language model where the corruptor shows [MASK]."""
    title: str
    """Heading of the model card."""
    tag: str
    """Tag of the model card."""
    asked: dict[str, str]
    """What the encoder was trained for by each loss: `to predict ...`, with fields of the objective
    in braces."""


@dataclass(frozen=True, kw_only=True)
class CorruptorRow:
    """What changes the text."""

    cls: str
    """`module:Class` with `build(source, **options)`."""
    learned: bool = False
    """Whether it has networks of its own."""
    shows_mask: bool = False
    """Whether the discriminator reads [MASK]."""
    options: tuple[str, ...] = ()
    leaves: dict[str, Exported] = field(default_factory=dict)
    has_generator: bool = False
    """Whether it is one masked language model, which may start from a folder, be frozen, be trained
    first, and share layers with the discriminator."""
    judges_all: bool = False
    """Whether its loss is over all tokens that may be chosen, not only the chosen ones."""
    card: str
    """The first sentence of the model card, with {asked}, {architecture} and {generator}."""


@dataclass(frozen=True, kw_only=True)
class ArchitectureRow:
    """The kind of encoder."""

    cls: str
    """`module:Class`, a subclass of architectures.architecture.Architecture."""
    called: str
    """`ELECTRA's architecture`."""
    options: tuple[str, ...] = ()
    extends: dict[str, str] = field(default_factory=dict)
    """Options that extend an encoder loaded from a folder, each with the field that it replaces."""
    inits: tuple[str, ...]
    """Initialisations that it supports."""
    rtd_heads: tuple[str, ...] = ("dense", "linear")
    """Forms of the RTD head that it supports."""
    scales_by_depth: bool = False
    """Whether its initial values are always those of `init_scale: depth`."""
    narrow_embeddings: bool = True
    """Whether embeddings may be narrower than the layers."""
    model_types: tuple[str, ...]
    """Each `model_type` that is read as this architecture. The first is exported."""


_ROWS: dict[str, type] = {
    "objective": ObjectiveRow,
    "corruptor": CorruptorRow,
    "architecture": ArchitectureRow,
}


@cache
def rows_of(kind: str) -> dict[str, Any]:
    """The rows of a kind, by name."""
    table = plain_yaml((RECIPES / "methods.yaml").read_text(encoding="utf-8"), "methods.yaml")
    return {name: _row(_ROWS[kind], its) for name, its in table[kind].items()}


def _row(cls: type, its: Mapping[str, Any]) -> Any:
    stated = {name: from_text(value, kinds(cls)[name]) for name, value in its.items()}
    if "leaves" in its:
        stated["leaves"] = {name: _row(Exported, leaf) for name, leaf in its["leaves"].items()}
    return cls(**stated)


def row_of(kind: str, name: str) -> Any:
    """The row of an objective, corruptor or architecture. A name with a colon is a class of one's
    own, whose module is imported. Raises UserError if there is none."""
    if ":" not in name:
        rows = rows_of(kind)
        if name not in rows:
            raise UserError(f"{kind} cannot be {name!r}{nearest(name, rows)}")
        return rows[name]
    cls, found = _ROWS[kind], class_at(name)
    stated = {field: getattr(found, field) for field in kinds(cls) if hasattr(found, field)}
    try:
        return cls(**(stated | {"cls": name}))
    except TypeError as e:
        raise UserError(f"{kind} {name}: the class lacks attributes of its row ({e})") from e


def class_at(place: str) -> Any:
    """The class at `module:Class`. Raises UserError if there is none."""
    module, _, name = place.partition(":")
    if not all(part.isidentifier() for part in module.split(".")):
        raise UserError(f"{place}: write module:Class, such as focal:Focal for a class in focal.py")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as e:
        raise UserError(f"{place}: {e}. Put the folder of the module on PYTHONPATH") from e
    if not hasattr(found, name):
        raise UserError(f"{place}: the module has no {name!r}{nearest(name, vars(found))}")
    return getattr(found, name)


def is_imported(name: str) -> bool:
    """Whether using the row of this name runs no code that this process has not run before."""
    return ":" not in name or name.partition(":")[0] in sys.modules


def made(row: ObjectiveRow | CorruptorRow, parts: Any, options: Mapping[str, Any]) -> Any:
    """The object of a row."""
    return class_at(row.cls).build(parts, **options)


def completed(row: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a class of one's own with the defaults of its `build`. An architecture gets
    them as they are. Raises UserError for options that `build` does not take."""
    if isinstance(row, ArchitectureRow):
        return dict(options)
    build = inspect.signature(class_at(row.cls).build)
    try:
        build.bind(None, **options)
    except TypeError as e:
        raise UserError(f"{row.cls}: build {e}") from e
    defaults = {p.name: p.default for p in build.parameters.values() if p.default is not p.empty}
    return defaults | dict(options)


def options_of(kind: str) -> set[str]:
    """The fields of a recipe that belong to some row of this kind."""
    return {name for row in rows_of(kind).values() for name in row.options}


def other_exports(recipe: Recipe) -> dict[str, Exported]:
    """The networks that a run exports beside the discriminator."""
    o, t = recipe.objective, recipe.train
    own = recipe.corruption.row.leaves
    untaught = o.term_weights.get("generator") == 0
    if untaught and not (t.init_generator or t.generator_steps):
        own = {}
    leaves = {name: its for name, its in o.row.leaves.items() if its.is_trained(o)}
    # The end of the run trains the discriminator's encoder on [MASK].
    ends = {n: replace(its, fills=True) for n, its in leaves.items() if o.mlm_end_share}
    return leaves | ends | own


def meaning_of(recipe: Recipe, part: str) -> Logits:
    """What the head of an exported network predicts."""
    own = recipe.corruption.row.leaves | recipe.objective.row.leaves
    return own[part].logits if part in own else recipe.objective.row.logits


def asked_of(o: ObjectiveSection) -> str:
    """What the encoder was trained for, as its model card puts it. Empty if nothing."""
    texts = [text for loss, text in o.row.asked.items() if o.term_weights.get(loss)]
    asked = ", and ".join(texts).format(**(vars(o) | o.objective_options))
    if o.mlm_share:
        asked = f"after {o.mlm_share:.0%} of the run as a masked language model, {asked}"
    if o.mlm_end_share:
        asked += f"; the last {o.mlm_end_share:.0%} of the run trained it as a masked language "
        asked += "model, without the RTD head"
    return asked


def generator_words(recipe: Recipe, *, width: int | None = None) -> str:
    """The generator as the model card names it. width: that of a generator loaded from a folder."""
    m = recipe.model
    frozen = "frozen " if recipe.corruption.generator_training == "frozen" else ""
    width = width or m.generator_numbers()["hidden_size"]
    return f"a {frozen}{'small ' if width < m.hidden_size else ''}generator"
