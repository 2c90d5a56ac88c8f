"""One row for each corruptor: everything that is said of it outside of its own file. Free of torch.

The choices and the help of `--corruptor`, its own flags, the checks of a recipe, the networks that
it leaves and the sentence of the model card follow from the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .rows import Exported, NoOptions


@dataclass(frozen=True, kw_only=True)
class CorruptorRow:
    """A new corruptor is a class, a row here, and recipes."""

    cls: str
    """Where its class lies, `module:Class`; built by `Class.build(source, **options)`."""
    help: str
    """How it changes text, in a clause for the help of `--corruptor`."""
    learned: bool = False
    """Whether it has networks of its own, of the generator's shape."""
    shows_mask: bool = False
    """Whether the encoder that is kept reads [MASK]."""
    options: type = NoOptions
    """Its own options, a frozen dataclass whose fields are bare flags."""
    check: Callable[[Any, Any], str | None] = lambda model, options: None
    """A sentence if own options do not go together or with the model, else None."""
    leaves: dict[str, Exported] = field(default_factory=dict)
    """Networks of its own that are exported, by the name of their folder. Only `generator` can be
    started from a folder, frozen, and trained in a first stage."""
    card: str
    """A sentence for the model card on the encoder that is kept. `{asked}` is what the objective
    asks, `{architecture}` what the architecture's row calls it."""

    @property
    def has_generator(self) -> bool:
        """Whether it is one masked language model, which may also be trained apart."""
        return "generator" in self.leaves


def _text_in_which(changed: str) -> str:
    return f"A text encoder pre-trained on text in which {changed}, {{asked}}."


GENERATOR = Exported(
    title="masked language model",
    purpose="The masked language model that proposed the replacements for the encoder beside it. "
    "Fine-tune that one, not this.",
    logits="token",
    fills=True,
)

CORRUPTORS: dict[str, CorruptorRow] = {
    "mask": CorruptorRow(
        cls="electrify.corruption.masking:MaskMix",
        help="[MASK], kept and random tokens, no parameters",
        shows_mask=True,
        card="A text encoder pre-trained to predict masked tokens (BERT without next-sentence "
        "prediction), in {architecture}.",
    ),
    "generator": CorruptorRow(
        cls="electrify.corruption.generator:Generator",
        help="samples of a masked language model that is trained at the same time",
        learned=True,
        leaves={"generator": GENERATOR},
        card=_text_in_which("a small generator changed tokens"),
    ),
    "unigram": CorruptorRow(
        cls="electrify.corruption.frequency:Unigram",
        help="tokens drawn by their frequency in the corpus",
        card=_text_in_which("tokens were replaced by others drawn by their frequency"),
    ),
    "uniform": CorruptorRow(
        cls="electrify.corruption.frequency:Uniform",
        help="tokens drawn with equal probability",
        card=_text_in_which("tokens were replaced by others drawn at random"),
    ),
    "two_tower": CorruptorRow(
        cls="electrify.corruption.two_tower:TwoTower",
        help="samples of a cloze model made of a left-to-right and a right-to-left encoder",
        learned=True,
        card=_text_in_which("a small cloze model changed tokens"),
    ),
}


def corruptors() -> dict[str, CorruptorRow]:
    return CORRUPTORS


def corruptor_help() -> str:
    """The clauses of all rows."""
    return "; ".join(f"{name} = {row.help}" for name, row in CORRUPTORS.items()) + "."
