"""One row for each objective, with everything that other files need to know about it. This module
does not import torch.

The choices and the help of `--objective`, the objective's own flags, the checks of a recipe, the
model card, the meaning of an exported head's logits and the table in docs/objectives.md all follow
from the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from .objective_options import (
    AllTokensOptions,
    CorrectiveOptions,
    DetectingOptions,
    RTDOptions,
    SelectiveOptions,
    all_tokens_asked,
    corrective_asked,
    corrective_check,
    corrective_weights,
    rtd_asked,
    rtd_check,
    selective_asked,
    selective_check,
)
from .rows import Exported, Logits, NoOptions


@dataclass(frozen=True, kw_only=True)
class Card:
    """What the model card says of the network that an objective keeps."""

    title: str
    tag: str
    asked: Callable[[Mapping[str, float], Any], str]
    """What the network was asked to do, from the weights of the losses and the objective's own
    options: `to say of every token ...`; empty if nothing."""


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
    generator that learns by likelihood. The first is that of the kept network's head."""
    parts: dict[str, str] = field(default_factory=dict)
    """Parts of the kept network whose metrics begin with a name of their own, each with the loss
    that trains it."""
    optional: dict[str, str] = field(default_factory=dict)
    """Further losses that a weight switches on, each with the option, of the corruption or its own,
    that must not be 0."""
    options: type = NoOptions
    """Its own options, a frozen dataclass of `Checked` whose fields are bare flags: each with a
    default, and a name that only options of the same type in other objectives have."""
    check: Callable[[Any, Any], str | None] = lambda model, options: None
    """A sentence if its own options do not go together or with the model, else None."""
    uncovered: tuple[str, ...] = ()
    """Options of the corruption, or a value of one (`option=value`), that its mathematics does not
    cover."""
    rewarded: bool = False
    """Whether its generator is trained by a reward in place of likelihood."""
    logits: Logits
    """What the head of the kept network says."""
    leaves: dict[str, Exported] = field(default_factory=dict)
    """Further networks of its own that are exported, by the name of their folder."""
    untrained: Callable[[Mapping[str, float], Any], Collection[str]] = lambda weights, options: ()
    """Those of them that a run with these weights of the losses and these options of its own does
    not train to its end, and does not leave."""
    silent_share: Callable[[Any], float] = lambda options: 0.0
    """The share of the run, from its start, in which the head of the kept network is not asked."""
    masked_lm: bool = False
    """Whether, with a corruptor that shows [MASK], it is a masked language model and nothing else.
    """
    check_weights: Callable[[Mapping[str, float], Any], str | None] = lambda weights, options: None
    """A sentence if the weights of the losses do not go with its own options, else None."""
    needs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Own options that, where they are not 0, go with these corruptors only."""
    moving: tuple[str, ...] = ()
    """Own options that, where they are not 0, make what is asked depend on the share of the run
    that is done."""
    group_rows: Callable[[Collection[str], Any], int] | None = None
    """With a loss over whole batches (a contrast): how many consecutive rows it compares, from the
    losses that are weighed and its own options. No split of a batch may cut such a group, so a
    recipe whose passes do not hold whole groups is refused. None where every loss is a sum over
    tokens."""
    card: Card

    def leaving(self, weights: Mapping[str, float], options: Any) -> dict[str, Exported]:
        """The further networks that a run with these weights and options leaves."""
        untrained = self.untrained(weights, options)
        return {name: its for name, its in self.leaves.items() if name not in untrained}


def _by(loss: str, text: str) -> Callable[[Mapping[str, float], Any], str]:
    """What one loss asks for."""
    return lambda weights, options: text if weights[loss] else ""


# The draws must come from the very distribution that the loss is about.
_DRAWING = ("temperature", "temperature_end", "temperature_schedule", "disallow_correct")

OBJECTIVES: dict[str, Objective] = {
    "mlm": Objective(
        cls="electrify.objectives.mlm:MLM",
        help="predict the original at chosen positions",
        corruptors=("mask", "generator", "unigram", "uniform"),
        losses={"mlm": 1.0},
        logits="token",
        masked_lm=True,
        card=Card(
            title="masked language model",
            tag="masked-language-modelling",
            asked=_by("mlm", "to predict the original of the changed tokens (Replace MLM)"),
        ),
    ),
    "rtd": Objective(
        cls="electrify.objectives.electra:Electra",
        help="say of every token whether it was replaced",
        corruptors=("generator", "unigram", "uniform", "two_tower", "mixture"),
        losses={"rtd": 50.0},
        optional={"sentence": "clean_rate"},
        options=RTDOptions,
        check=rtd_check,
        logits="replaced",
        card=Card(title="ELECTRA discriminator", tag="replaced-token-detection", asked=rtd_asked),
    ),
    "all_tokens": Objective(
        cls="electrify.objectives.all_tokens:AllTokensMLM",
        help="predict every original token, with a gate that copies",
        corruptors=("generator", "unigram", "uniform"),
        losses={"all_tokens": 1.0},
        parts={"copy": "all_tokens", "softmax": "all_tokens"},
        options=AllTokensOptions,
        logits="token",
        card=Card(
            title="All-Tokens masked language model", tag="all-tokens", asked=all_tokens_asked
        ),
    ),
    "corrective": Objective(
        cls="electrify.objectives.corrective:Corrective",
        help="rtd, and predict the original at chosen positions, by one encoder",
        corruptors=("generator", "unigram", "uniform", "mixture"),
        losses={"rtd": 50.0, "correct": 1.0},
        optional={"contrast": "contrast_rows"},
        group_rows=lambda losses, o: o.contrast_rows if "contrast" in losses else 1,
        options=CorrectiveOptions,
        check=corrective_check,
        check_weights=corrective_weights,
        untrained=lambda w, o: () if w["correct"] and o.correction != "none" else ("corrector",),
        silent_share=lambda o: o.mlm_share,
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
                same=True,
            )
        },
        card=Card(
            title="ELECTRA discriminator",
            tag="replaced-token-detection",
            asked=corrective_asked,
        ),
    ),
    "selective": Objective(
        cls="electrify.objectives.selective:Selective",
        help="rtd, and find the original among candidates by a second last layer",
        corruptors=("generator",),
        losses={"rtd": 5.0, "select": 2.0},
        options=SelectiveOptions,
        check=selective_check,
        untrained=lambda w, o: () if w["select"] else ("selector",),
        logits="replaced",
        leaves={
            "selector": Exported(
                title="encoder that selects",
                purpose="The encoder beside it with another last layer, which learned to find the "
                "token that stood at a chosen position among candidates. Its head scores words; "
                "compare those of a few candidates, which is all that it was asked. It never read "
                "[MASK].",
                logits="choice",
                fills=False,
            )
        },
        card=Card(
            title="ELECTRA discriminator",
            tag="replaced-token-detection",
            asked=selective_asked,
        ),
    ),
    "adversarial": Objective(
        cls="electrify.objectives.adversarial:Adversarial",
        help="rtd with a generator that is paid for fooling it",
        corruptors=("generator",),
        losses={"rtd": 50.0, "reinforce": 1.0, "baseline": 1.0},
        options=DetectingOptions,
        uncovered=_DRAWING,
        rewarded=True,
        logits="replaced",
        card=Card(
            title="ELECTRA discriminator",
            tag="adversarial",
            asked=_by(
                "rtd",
                "to say of every token whether it is original or was replaced by a generator that "
                "was paid for fooling it",
            ),
        ),
    ),
    "electric": Objective(
        cls="electrify.objectives.electric:Electric",
        help="energies by noise contrast",
        corruptors=("two_tower", "unigram", "uniform"),
        losses={"nce": 50.0},
        uncovered=(*_DRAWING, "clean_rate", "mask_choice", "mask_unit=word", "mask_unit=span"),
        logits="energy",
        card=Card(
            title="Electric encoder",
            tag="electric",
            asked=_by(
                "nce",
                "to give every token an energy, low where it fits the others (Electric); minus "
                "their sum is a pseudo-log-likelihood",
            ),
        ),
    ),
}


def objectives() -> dict[str, Objective]:
    return OBJECTIVES


def objective_help() -> str:
    """The clauses of all rows: `mlm = predict the original ...; rtd = ...`."""
    return "; ".join(f"{name} = {row.help}" for name, row in OBJECTIVES.items()) + "."
