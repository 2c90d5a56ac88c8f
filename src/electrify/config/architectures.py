"""One row for each architecture, with everything that is known about it without building it. This
module does not import torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from .given import Checked
from .rows import NoOptions

# Rows of more tokens are a typing mistake.
MOST_POSITIONS = 2**20
Init = Literal["bert", "published", "local"]


@dataclass(frozen=True, kw_only=True)
class ArchitectureRow:
    """A new architecture is a file in architectures/, a row here, and recipes."""

    cls: str
    """Its class, as `module:Class`."""
    help: str
    """A clause that describes it, for the help of `--architecture`."""
    called: str
    """What the model card calls it: `ELECTRA's architecture`."""
    options: type = NoOptions
    """Its own options, which other architectures do not have: a frozen dataclass of `Checked`
    whose fields become flags."""
    check: Callable[[Any, Any], str | None] = lambda model, options: None
    """Returns a sentence if numbers of the model section and its own options cannot go together,
    else None."""
    by_rows: tuple[str, ...] = ()
    """Those of its own options that give a value for each row length of a run's earlier phases."""
    extends: dict[str, str] = field(default_factory=dict)
    """Those of its own options that extend the encoder of a folder from which a run starts, each
    with the number that it replaces."""
    of_masked_lms: tuple[str, ...] = ()
    """Those of its own options that change nothing but a masked language model."""
    inits: tuple[Init, ...]
    """The initialisations that it supports."""
    rtd_heads: tuple[str, ...] = ("dense", "linear")
    """The heads that can detect on it: values of the option `rtd_head`."""
    scales_by_depth: bool = False
    """Whether its initial values have the scale of `init_scale: depth`, whatever that says."""
    narrow_embeddings: bool = True
    """Whether embeddings may have another width than the blocks, by a projection."""
    model_types: Sequence[str]
    """Each `model_type` that is read as this architecture; networks are exported with the first
    one.
    """


# ------------------------------------------------------------------ own options


@dataclass(frozen=True, kw_only=True)
class ModernBertOptions(Checked):
    """The numbers of ModernBERT's attention, under the library's names."""

    HEADING: ClassVar = "the encoder: modernbert"
    local_attention: int = 128
    """Tokens that a block of local attention sees, half of them on either side."""
    global_attn_every_n_layers: int = 3
    """In one block out of this many, beginning with the lowest, attention is over the whole
    sequence; the others are local."""
    global_rope_theta: float = 160_000.0
    """Base of the rotary positions of global attention."""
    local_rope_theta: float = 10_000.0
    """Base of the rotary positions of local attention."""
    global_rope_theta_schedule: dict[int, float] = field(default_factory=dict)
    """Another global_rope_theta for phases of seq_length_schedule, by their row length:
    1024=10000; longer rows, and the exported model, have global_rope_theta; none takes a recipe's
    schedule away."""
    extend_positions: int | None = None
    """For runs that start from folders (--init-discriminator, and with it --init-generator): read
    rows of up to this many tokens, more than the folders say. No weight depends on that number."""
    extend_rope_theta: float | None = None
    """For such runs: this global_rope_theta in place of the folders', a larger one for longer
    rows."""


def _modernbert_check(model: Any, o: ModernBertOptions) -> str | None:
    if o.local_attention < 2 or o.local_attention % 2:
        return f"local_attention must be an even number, at least 2, not {o.local_attention}"
    if o.global_attn_every_n_layers < 1:
        every = o.global_attn_every_n_layers
        return f"global_attn_every_n_layers must be positive, not {every}"
    thetas = {name: getattr(o, name) for name in ("global_rope_theta", "local_rope_theta")}
    for length, theta in o.global_rope_theta_schedule.items():
        thetas[f"global_rope_theta_schedule of rows of {length} tokens"] = theta
    if o.extend_positions is not None and not 8 <= o.extend_positions <= MOST_POSITIONS:
        return (
            f"extend_positions must lie between 8 and {MOST_POSITIONS:,}, not {o.extend_positions}"
        )
    if o.extend_rope_theta is not None:
        thetas["extend_rope_theta"] = o.extend_rope_theta
    for name, theta in thetas.items():
        if not 1 < theta < math.inf:
            return f"{name} must be a number above 1, not {theta}"
    if model.embedding_size != model.hidden_size:
        return (
            "architecture modernbert has embeddings as wide as its blocks: give embedding_size "
            f"{model.hidden_size}, not {model.embedding_size}"
        )
    if model.hidden_size // model.num_attention_heads % 2:
        return (
            "rotary positions turn pairs of numbers: heads must have an even width, not "
            f"{model.hidden_size // model.num_attention_heads}"
        )
    return None


@dataclass(frozen=True, kw_only=True)
class DebertaOptions(Checked):
    """The numbers of DeBERTa's attention, under the library's names."""

    HEADING: ClassVar = "the encoder: deberta"
    position_buckets: int = 256
    """Buckets of the distances between query and key, on either side: distances up to half that
    number have one each, larger ones share the rest by their logarithm."""
    mask_decoder: bool = False
    """Whether the generator (of objective mlm, the encoder) predicts masked tokens through
    DeBERTa's mask decoder, as Microsoft's generators do: its last block runs twice, the first time
    with the state below plus the absolute position as query. transformers has none."""


def _deberta_check(model: Any, o: DebertaOptions) -> str | None:
    if o.position_buckets < 2 or o.position_buckets % 2:
        return f"position_buckets must be an even number, at least 2, not {o.position_buckets}"
    if model.embedding_size != model.hidden_size:
        return (
            "architecture deberta has embeddings as wide as its blocks: give embedding_size "
            f"{model.hidden_size}, not {model.embedding_size}"
        )
    return None


# ------------------------------------------------------------------ rows

ARCHITECTURES: dict[str, ArchitectureRow] = {
    "electra": ArchitectureRow(
        cls="electrify.architectures.electra:Electra",
        help="the encoder of ELECTRA and BERT, post-norm with learned positions",
        called="ELECTRA's architecture",
        inits=("bert", "published", "local"),
        model_types=("electra", "bert"),
    ),
    "modernbert": ArchitectureRow(
        cls="electrify.architectures.modernbert:ModernBert",
        help="pre-norm, rotary positions, gated feed-forward layers, attention that alternates "
        "between the whole sequence and a window",
        called="ModernBERT's architecture",
        options=ModernBertOptions,
        check=_modernbert_check,
        by_rows=("global_rope_theta_schedule",),
        extends={
            "extend_positions": "max_position_embeddings",
            "extend_rope_theta": "global_rope_theta",
        },
        inits=("published", "local"),
        scales_by_depth=True,
        rtd_heads=("dense",),
        narrow_embeddings=False,
        model_types=("modernbert",),
    ),
    "deberta": ArchitectureRow(
        cls="electrify.architectures.deberta:Deberta",
        help="post-norm, attention that compares content and distance apart",
        called="DeBERTaV3's architecture",
        options=DebertaOptions,
        check=_deberta_check,
        of_masked_lms=("mask_decoder",),
        inits=("published", "local"),
        rtd_heads=("dense", "linear", "v3"),
        narrow_embeddings=False,
        model_types=("deberta-v2",),
    ),
}


def architectures() -> dict[str, ArchitectureRow]:
    return ARCHITECTURES


def architecture_help() -> str:
    """The clauses of all rows."""
    return "; ".join(f"{name} = {row.help}" for name, row in ARCHITECTURES.items()) + "."
