"""One row for each corruptor: everything that is said about it outside its own file. Free of torch.

The choices and the help of `--corruptor`, its own flags, the checks of a recipe, the networks that
it leaves and the sentence of the model card follow from the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .given import Checked
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
    """Whether the encoder that is kept reads [MASK]: its class returns a `Masked`."""
    options: type = NoOptions
    """Its own options, a frozen dataclass of `Checked` whose fields are bare flags."""
    check: Callable[[Any, Any], str | None] = lambda model, options: None
    """A sentence if its own options do not go together or with the model, else None."""
    leaves: dict[str, Exported] = field(default_factory=dict)
    """Networks of its own that are exported, by the name of their folder."""
    has_generator: bool = False
    """Whether it is one masked language model, which may also start from a folder, be frozen, be
    trained in a first stage, and share blocks with the encoder that is kept."""
    judges_all: bool = False
    """Whether the loss of its own language model is over every token that may be chosen, and not
    over the chosen ones."""
    card: str
    """A sentence for the model card on the encoder that is kept. `{asked}` is what the objective
    asks, `{architecture}` what the architecture's row calls it, `{generator}` what the generator
    was (see `networks.py`)."""


def _text_in_which(changed: str) -> str:
    return f"A text encoder pre-trained on text in which {changed}, {{asked}}."


@dataclass(frozen=True, kw_only=True)
class MixtureOptions(Checked):
    """The options of the mixture."""

    read_outs: tuple[int, ...] = ()
    """For mixture: after how many of the generator's blocks each of its language models is read
    out, in ascending order, the last after all of them; by default after half, three quarters and
    all."""


def _mixture_check(model: Any, o: MixtureOptions) -> str | None:
    blocks = model.generator_numbers()["num_hidden_layers"]
    depths = list(o.read_outs)
    if not depths or (depths == sorted(set(depths)) and depths[0] > 0 and depths[-1] == blocks):
        return None
    given = ",".join(map(str, depths))
    return (
        f"read_outs must be numbers of blocks in ascending order, the last of them {blocks}, the "
        f"generator's blocks, not {given}"
    )


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
        has_generator=True,
        card=_text_in_which("{generator} changed tokens"),
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
        judges_all=True,
        card=_text_in_which("a small cloze model changed tokens"),
    ),
    "mixture": CorruptorRow(
        cls="electrify.corruption.mixture:Mixture",
        help="samples of a mixture of masked language models, read out at several depths of one "
        "encoder, whose weights are trained against the encoder that is kept (AMOS)",
        learned=True,
        options=MixtureOptions,
        check=_mixture_check,
        leaves={"generator": GENERATOR},
        card=_text_in_which(
            "a mixture of masked language models changed tokens, trained to find replacements that "
            "pass for original"
        ),
    ),
}


def corruptors() -> dict[str, CorruptorRow]:
    return CORRUPTORS


def corruptor_help() -> str:
    """The clauses of all rows."""
    return "; ".join(f"{name} = {row.help}" for name, row in CORRUPTORS.items()) + "."
