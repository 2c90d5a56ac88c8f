"""One row for each objective, with everything that other files need to know about it. This module
does not import torch.

The choices and the help of `--objective`, the objective's own flags, the checks of a recipe, the
model card, the meaning of an exported head's logits and the table in docs/objectives.md all follow
from the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Literal

from .rows import Exported, Logits, NoOptions


@dataclass(frozen=True, kw_only=True)
class Card:
    """What the model card says of the network that an objective keeps."""

    title: str
    tag: str
    asked: Callable[[Any], str]
    """What the network was asked to do, from the objective's own options: `to say of every token
    ...`."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """A row. A new objective is a file in objectives/, a row here, and recipes."""

    cls: str
    """Where its class lies, `module:Class`; built by `Class.build(parts, **options)`."""
    help: str
    """A clause that describes the task, for the help of `--objective`."""
    corruptors: tuple[str, ...]
    """The corruptors whose text it can grade."""
    losses: dict[str, float]
    """The losses that it weighs and their default weights, without `generator`, which comes with a
    generator that learns by likelihood."""
    optional: dict[str, str] = field(default_factory=dict)
    """Further losses that a weight switches on, each with the option, of the corruption or its own,
    that must not be 0."""
    options: type = NoOptions
    """Its own options, a frozen dataclass whose fields are bare flags."""
    check: Callable[[Any, Any], str | None] = lambda model, options: None
    """A sentence if own options do not go together or with the model, else None."""
    uncovered: tuple[str, ...] = ()
    """Options of the corruption that its mathematics does not cover."""
    rewarded: bool = False
    """Whether its generator is trained by a reward in place of likelihood."""
    logits: Logits
    """What the head of the kept network says."""
    leaves: dict[str, Exported] = field(default_factory=dict)
    """Further networks of its own that are exported, by the name of their folder."""
    needs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Own options that, where they are not 0, go with these corruptors only."""
    moving: tuple[str, ...] = ()
    """Own options that, where they are not 0, make what is asked depend on the share of the run
    that is done."""
    group_rows: Callable[[Collection[str], Any], int] | None = None
    """With a loss over whole batches (a contrast): how many consecutive rows it compares, from the
    losses that are weighed and the own options. No split of a batch may cut such a group, so a
    recipe whose passes do not hold whole groups is refused. None where every loss is a sum over
    tokens."""
    card: Card


# ------------------------------------------------------------------ own options


@dataclass(frozen=True, kw_only=True)
class RTDOptions:
    """The options of replaced token detection."""

    loss_on: Literal["all", "chosen"] = "all"
    """For rtd: the tokens that are graded."""
    correct_as_replaced: bool = False
    """For rtd: whether a draw that is the original token counts as replaced, too (as in Electric).
    """


@dataclass(frozen=True, kw_only=True)
class AllTokensOptions:
    """The options of All-Tokens MLM."""

    copy_gate: bool = True
    """For all_tokens: whether a gate may copy the token that stands there; without it every token
    is predicted by the softmax alone."""


@dataclass(frozen=True, kw_only=True)
class CorrectiveOptions:
    """The options of detection and correction."""

    correction: Literal["plain", "gate", "copy", "none"] = "plain"
    """For corrective: the loss at a chosen position, c being the belief that the token there is the
    original: plain = cross-entropy; gate = (1 - c) times it; copy = minus the logarithm of c, where
    that token is the original, plus (1 - c) times its probability; none = detection alone, after a
    beginning with mlm_share."""
    mlm_share: float = 0.0
    """For corrective: the share of the run, from its start, in which the encoder is a masked
    language model: it reads [MASK] and predicts the original there, and detects nothing yet."""
    rtd_head: Literal["dense", "linear"] = "dense"
    """For corrective: the head that detects: dense layer, gelu and one row, as ELECTRA's; or one
    row alone, as COCO-LM's."""


def _rtd_check(model: Any, o: RTDOptions) -> str | None:
    if o.correct_as_replaced and o.loss_on == "chosen":
        return (
            "correct_as_replaced calls every chosen token replaced: it needs loss_on all, or there "
            "is one answer"
        )
    if o.loss_on == "chosen" and model.init_rtd_bias == "replaced":
        return (
            "init_rtd_bias replaced starts at the share of all tokens, and loss_on chosen grades "
            "the chosen ones: leave one of the two out"
        )
    return None


def _corrective_check(model: Any, o: CorrectiveOptions) -> str | None:
    if not 0 <= o.mlm_share < 1:
        return f"mlm_share must lie in [0, 1), not {o.mlm_share}"
    if o.correction == "none" and not o.mlm_share:
        return (
            "correction none without mlm_share is replaced token detection alone: take objective "
            "rtd, or give mlm_share"
        )
    return None


def _rtd_asked(o: RTDOptions) -> str:
    if o.correct_as_replaced:
        drawn = (
            "to say of every token whether it is original or was drawn, where a draw that is the "
            "original counts as drawn"
        )
        return f"{drawn} (ELECTRA with Electric's labels)"
    return "to say of every token whether it is original or was replaced (ELECTRA)"


def _corrective_asked(o: CorrectiveOptions) -> str:
    first = f"after {o.mlm_share:.0%} of the run as a masked language model, " * bool(o.mlm_share)
    if o.correction == "none":
        return f"{first}to say of every token whether it is original or was replaced (RTD)"
    return (
        f"{first}to say of every token whether it is original or was replaced, and at the places "
        "of replacements which token stood there (RTD and correction, as COCO-LM and METRO-LM)"
    )


def _all_tokens_asked(o: AllTokensOptions) -> str:
    if not o.copy_gate:
        return (
            "to predict the original of every token (All-Tokens MLM without the gate that copies "
            "the input)"
        )
    return (
        "to predict the original of every token (All-Tokens MLM; the gate that copies the input is "
        "not part of this folder)"
    )


def _always(text: str) -> Callable[[Any], str]:
    return lambda options: text


# ------------------------------------------------------------------ rows

# The draws must come from the very distribution that the loss speaks of.
_DRAWING = ("temperature", "temperature_end", "temperature_schedule", "disallow_correct")

OBJECTIVES: dict[str, Objective] = {
    "mlm": Objective(
        cls="electrify.objectives.mlm:MLM",
        help="predict the original at chosen positions",
        corruptors=("mask", "generator", "unigram", "uniform"),
        losses={"mlm": 1.0},
        logits="token",
        card=Card(
            title="masked language model",
            tag="masked-language-modelling",
            asked=_always("to predict the original of the changed tokens (Replace MLM)"),
        ),
    ),
    "rtd": Objective(
        cls="electrify.objectives.electra:Electra",
        help="say of every token whether it was replaced",
        corruptors=("generator", "unigram", "uniform", "two_tower", "mixture"),
        losses={"rtd": 50.0},
        optional={"sentence": "clean_rate"},
        options=RTDOptions,
        check=_rtd_check,
        logits="replaced",
        card=Card(title="ELECTRA discriminator", tag="replaced-token-detection", asked=_rtd_asked),
    ),
    "all_tokens": Objective(
        cls="electrify.objectives.all_tokens:AllTokensMLM",
        help="predict every original token, with a gate that copies",
        corruptors=("generator", "unigram", "uniform"),
        losses={"all_tokens": 1.0},
        options=AllTokensOptions,
        logits="token",
        card=Card(
            title="All-Tokens masked language model", tag="all-tokens", asked=_all_tokens_asked
        ),
    ),
    "corrective": Objective(
        cls="electrify.objectives.corrective:Corrective",
        help="rtd, and predict the original at chosen positions, by one encoder",
        corruptors=("generator", "unigram", "uniform", "mixture"),
        losses={"rtd": 50.0, "correct": 1.0},
        options=CorrectiveOptions,
        check=_corrective_check,
        needs={"mlm_share": ("generator",)},
        moving=("mlm_share",),
        logits="replaced",
        leaves={
            "corrector": Exported(
                title="correcting language model",
                purpose="The encoder beside it, the same to the bit, with the head that says which "
                "token stood at a chosen position. In training it read samples there, and [MASK] "
                "only in the part of the run that mlm_share names in its config.yaml.",
                logits="token",
                fills=False,
            )
        },
        card=Card(
            title="ELECTRA discriminator",
            tag="replaced-token-detection",
            asked=_corrective_asked,
        ),
    ),
    "adversarial": Objective(
        cls="electrify.objectives.adversarial:Adversarial",
        help="rtd with a generator that is paid for fooling it",
        corruptors=("generator",),
        losses={"rtd": 50.0, "reinforce": 1.0, "baseline": 1.0},
        uncovered=_DRAWING,
        rewarded=True,
        logits="replaced",
        card=Card(
            title="ELECTRA discriminator",
            tag="adversarial",
            asked=_always(
                "to say of every token whether it is original or was replaced by a generator that "
                "was paid for fooling it"
            ),
        ),
    ),
    "electric": Objective(
        cls="electrify.objectives.electric:Electric",
        help="energies by noise contrast",
        corruptors=("two_tower", "unigram", "uniform"),
        losses={"nce": 50.0},
        uncovered=(*_DRAWING, "clean_rate", "mask_choice"),
        logits="energy",
        card=Card(
            title="Electric encoder",
            tag="electric",
            asked=_always(
                "to give every token an energy, low where it fits the others (Electric); minus "
                "their sum is a pseudo-log-likelihood"
            ),
        ),
    ),
}


def objectives() -> dict[str, Objective]:
    return OBJECTIVES


def objective_help() -> str:
    """The clauses of all rows: `mlm = predict the original ...; rtd = ...`."""
    return "; ".join(f"{name} = {row.help}" for name, row in OBJECTIVES.items()) + "."
