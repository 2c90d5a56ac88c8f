"""One row for each objective, corruptor and architecture: everything that other modules need to
know about it without importing torch.

A new method is a class, a row here and a row in recipes/. A class of one's own is named as
`module:Class` in a recipe file or a flag. It carries the fields of its row as class attributes.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from .errors import UserError, nearest

if TYPE_CHECKING:
    from .recipe import Objective as ObjectiveSection
    from .recipe import Recipe

Logits = Literal["token", "replaced", "energy", "choice"]
"""What a head predicts: a token, the log-odds that a token was replaced, an energy, or scores of a
few candidates."""

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
    trained: Callable[[ObjectiveSection], bool] = lambda objective: True
    """Whether a run with this objective trains it to the end."""


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
    group_rows: Callable[[ObjectiveSection], int] | None = None
    """Consecutive rows that one of its losses compares, so a split of the batch must not separate
    them. None if all losses are sums over tokens."""
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
    rotary: bool = False
    """Whether positions rotate pairs of numbers, so that heads need an even width."""
    model_types: tuple[str, ...]
    """Each `model_type` that is read as this architecture. The first is exported."""


_DETECT = "to say of every token whether it is original or was replaced"
# The draws must come from the distribution that the loss is about.
_DRAWING = ("temperature", "temperature_end", "temperature_schedule", "disallow_correct")

OBJECTIVES: dict[str, ObjectiveRow] = {
    "mlm": ObjectiveRow(
        cls="electrify.objectives.mlm:MLM",
        corruptors=("mask", "generator", "unigram", "uniform"),
        losses={"mlm": 1.0},
        logits="token",
        masked_lm=True,
        title="masked language model",
        tag="masked-language-modelling",
        asked={"mlm": "to predict the original of the changed tokens (Replace MLM)"},
    ),
    "rtd": ObjectiveRow(
        cls="electrify.objectives.electra:Electra",
        corruptors=("generator", "unigram", "uniform", "two_tower", "mixture"),
        losses={"rtd": 50.0},
        optional={"sentence": "clean_rate"},
        options=("rtd_head", "loss_on", "correct_as_replaced"),
        asked={"rtd": f"{_DETECT} (ELECTRA)", "sentence": "to detect changed texts"},
        title="ELECTRA discriminator",
        tag="replaced-token-detection",
    ),
    "all_tokens": ObjectiveRow(
        cls="electrify.objectives.all_tokens:AllTokensMLM",
        corruptors=("generator", "unigram", "uniform"),
        losses={"all_tokens": 1.0},
        parts={"copy": "all_tokens", "softmax": "all_tokens"},
        options=("copy_gate",),
        logits="token",
        title="All-Tokens masked language model",
        tag="all-tokens",
        asked={
            "all_tokens": "to predict the original of every token (All-Tokens MLM, whose copy gate "
            "is not part of this folder)"
        },
    ),
    "corrective": ObjectiveRow(
        cls="electrify.objectives.corrective:Corrective",
        corruptors=("generator", "unigram", "uniform", "mixture"),
        losses={"rtd": 50.0, "correct": 1.0},
        optional={"contrast": "contrast_rows"},
        options=(
            *("rtd_head", "correction", "mlm_share", "mlm_end_share"),
            *("contrast_rows", "contrast_temperature", "crop_share"),
        ),
        group_rows=lambda o: o.contrast_rows if "contrast" in o.term_weights else 1,
        leaves={
            "corrector": Exported(
                title="correcting language model",
                purpose="The discriminator's encoder with the MLM head that predicts the original "
                "of replaced tokens. It read samples at those positions. It read [MASK] only in "
                "the shares of the run that mlm_share and mlm_end_share state in config.yaml.",
                logits="token",
                fills=False,
                same=True,
                trained=lambda o: (
                    bool(o.term_weights["correct"])
                    and (o.correction != "none" or o.mlm_end_share > 0)
                ),
            )
        },
        asked={
            "rtd": _DETECT,
            "correct": "to predict the original of replaced tokens (correction {correction}, as in "
            "COCO-LM and METRO-LM)",
            "contrast": "to find the crop of a sequence among those of {contrast_rows} rows",
        },
        title="ELECTRA discriminator",
        tag="replaced-token-detection",
    ),
    "selective": ObjectiveRow(
        cls="electrify.objectives.selective:Selective",
        corruptors=("generator",),
        losses={"rtd": 5.0, "select": 2.0},
        options=("rtd_head", "candidates"),
        leaves={
            "selector": Exported(
                title="selecting encoder",
                purpose="The discriminator's encoder with another last layer, trained to find the "
                "original of a replaced token among candidates. Compare the scores of a few "
                "candidates, which is all that it learned. It never read [MASK].",
                logits="choice",
                fills=False,
                trained=lambda o: bool(o.term_weights["select"]),
            )
        },
        asked={
            "rtd": _DETECT,
            "select": "to share all but the last layer with a branch that finds the original among "
            "{candidates} candidates (multi-word selection, as TEAMS)",
        },
        title="ELECTRA discriminator",
        tag="replaced-token-detection",
    ),
    "adversarial": ObjectiveRow(
        cls="electrify.objectives.adversarial:Adversarial",
        corruptors=("generator",),
        losses={"rtd": 50.0, "reinforce": 1.0, "baseline": 1.0},
        options=("rtd_head",),
        uncovered=_DRAWING,
        rewarded=True,
        title="ELECTRA discriminator",
        tag="adversarial",
        asked={"rtd": f"{_DETECT} by a generator that was rewarded for fooling it"},
    ),
    "electric": ObjectiveRow(
        cls="electrify.objectives.electric:Electric",
        corruptors=("two_tower", "unigram", "uniform"),
        losses={"nce": 50.0},
        uncovered=(*_DRAWING, "clean_rate", "mask_choice", "mask_unit=word", "mask_unit=span"),
        logits="energy",
        title="Electric encoder",
        tag="electric",
        asked={
            "nce": "to give every token an energy, low where it fits its context (Electric). Minus "
            "the sum of the energies is a pseudo-log-likelihood"
        },
    ),
}

_GENERATOR = Exported(
    title="masked language model",
    purpose="The masked language model that proposed the replacements. Fine-tune the "
    "discriminator, not this model.",
    logits="token",
    fills=True,
)


def _changed(how: str) -> str:
    return f"A text encoder pre-trained on text in which {how}, {{asked}}."


CORRUPTORS: dict[str, CorruptorRow] = {
    "mask": CorruptorRow(
        cls="electrify.corruption.masking:MaskMix",
        shows_mask=True,
        card="A text encoder pre-trained to predict masked tokens (BERT without next-sentence "
        "prediction), in {architecture}.",
    ),
    "generator": CorruptorRow(
        cls="electrify.corruption.generator:Generator",
        learned=True,
        leaves={"generator": _GENERATOR},
        has_generator=True,
        card=_changed("{generator} changed tokens"),
    ),
    "unigram": CorruptorRow(
        cls="electrify.corruption.masking:Unigram",
        card=_changed("tokens were replaced by others drawn by their frequency"),
    ),
    "uniform": CorruptorRow(
        cls="electrify.corruption.masking:Uniform",
        card=_changed("tokens were replaced by others drawn at random"),
    ),
    "two_tower": CorruptorRow(
        cls="electrify.corruption.two_tower:TwoTower",
        learned=True,
        judges_all=True,
        card=_changed("a small cloze model changed tokens"),
    ),
    "mixture": CorruptorRow(
        cls="electrify.corruption.mixture:Mixture",
        learned=True,
        options=("read_outs",),
        leaves={"generator": _GENERATOR},
        card=_changed(
            "a mixture of masked language models, trained to fool the encoder, changed tokens"
        ),
    ),
}

ARCHITECTURES: dict[str, ArchitectureRow] = {
    "electra": ArchitectureRow(
        cls="electrify.architectures.electra:Electra",
        called="ELECTRA's architecture",
        inits=("bert", "published", "local"),
        model_types=("electra", "bert"),
    ),
    "modernbert": ArchitectureRow(
        cls="electrify.architectures.modernbert:ModernBert",
        called="ModernBERT's architecture",
        options=(
            *("local_attention", "global_attn_every_n_layers"),
            *("global_rope_theta", "local_rope_theta", "global_rope_theta_schedule"),
            *("extend_positions", "extend_rope_theta"),
        ),
        extends={
            "extend_positions": "max_position_embeddings",
            "extend_rope_theta": "global_rope_theta",
        },
        inits=("published", "local"),
        scales_by_depth=True,
        rtd_heads=("dense",),
        narrow_embeddings=False,
        rotary=True,
        model_types=("modernbert",),
    ),
    "deberta": ArchitectureRow(
        cls="electrify.architectures.deberta:Deberta",
        called="DeBERTaV3's architecture",
        options=("position_buckets", "mask_decoder"),
        inits=("published", "local"),
        rtd_heads=("dense", "linear", "v3"),
        narrow_embeddings=False,
        model_types=("deberta-v2",),
    ),
}

_KINDS: dict[str, tuple[type, dict[str, Any]]] = {
    "objective": (ObjectiveRow, OBJECTIVES),
    "corruptor": (CorruptorRow, CORRUPTORS),
    "architecture": (ArchitectureRow, ARCHITECTURES),
}


def row_of(kind: str, name: str) -> Any:
    """The row of an objective, corruptor or architecture. A name with a colon is a class of one's
    own, whose module is imported. Raises UserError if there is none."""
    cls, rows = _KINDS[kind]
    if ":" not in name:
        if name not in rows:
            raise UserError(f"{kind} cannot be {name!r}{nearest(name, rows)}")
        return rows[name]
    found = class_at(name)
    stated = {f.name: getattr(found, f.name) for f in fields(cls) if hasattr(found, f.name)}
    try:
        return cls(**(stated | {"cls": name}))
    except TypeError as e:
        raise UserError(f"{kind} {name}: the class lacks attributes of its row ({e})") from e


def class_at(place: str) -> Any:
    """The class at `module:Class`. Raises UserError if there is none."""
    module, _, name = place.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ModuleNotFoundError, AttributeError) as e:
        raise UserError(f"{place}: {e}. Put the folder of the module on PYTHONPATH") from e


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
    return {name for row in _KINDS[kind][1].values() for name in row.options}


def having(kind: str, option: str) -> list[str]:
    """The rows to which a field of the recipe belongs."""
    return [name for name, row in _KINDS[kind][1].items() if option in row.options]


def beside(recipe: Recipe) -> dict[str, Exported]:
    """The networks that a run exports beside the discriminator."""
    o, t = recipe.objective, recipe.train
    own = recipe.corruption.row.leaves
    if is_untaught(recipe) and not (t.init_generator or t.generator_steps):
        own = {}
    leaves = {name: its for name, its in o.row.leaves.items() if its.trained(o)}
    # The end of the run trains the discriminator's encoder on [MASK].
    ends = {n: replace(its, fills=True) for n, its in leaves.items() if o.mlm_end_share}
    return leaves | ends | own


def meaning_of(recipe: Recipe, part: str) -> Logits:
    """What the head of an exported network predicts."""
    own = recipe.corruption.row.leaves | recipe.objective.row.leaves
    return own[part].logits if part in own else recipe.objective.row.logits


def is_untaught(recipe: Recipe) -> bool:
    """Whether the generator has a loss whose weight is 0."""
    return recipe.objective.term_weights.get("generator") == 0


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


_TIES = {
    "gdes": "with gradient-disentangled embedding sharing (as in DeBERTaV3, arXiv 2111.09543)",
    "lower": "sharing its embeddings and lowest layers with the encoder",
}


def generator_words(recipe: Recipe, *, width: int | None = None) -> str:
    """The generator as the model card describes it. width: that of a generator loaded from a
    folder."""
    m, c = recipe.model, recipe.corruption
    width = width or m.generator_numbers()["hidden_size"]
    frozen = c.generator_training == "frozen"
    small = "small " if width < m.hidden_size else ""
    how = ["as wide as the encoder"] if width == m.hidden_size else []
    how += ["without dropout"] if m.generator_dropout == 0 and m.dropout else []
    words = [f"a {'frozen ' if frozen else ''}{small}generator {' and '.join(how)}".rstrip()]
    words += [_TIES[m.tie]] if m.tie in _TIES else []
    if c.temperature_end not in (None, c.temperature):
        words.append(f"whose temperature goes from {c.temperature:g} to {c.temperature_end:g}")
        words[-1] += " (as in Fast-ELECTRA, arXiv 2310.07347)" if frozen else ""
    return ", ".join(words) + ("," if len(words) > 1 else "")
