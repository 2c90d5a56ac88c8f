"""The runs that a recipe stands for: itself, and before it, with `generator_steps`, one that trains
its generator alone. The only place that says what such a first stage is. Free of torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from .pretrain import PretrainConfig, with_weights
from .sections import GENERATOR_SIZES, CorruptionConfig, ModelConfig, ObjectiveConfig
from .training import TrainConfig

GENERATOR_WARMUP = "generator_warmup_steps"


def stages_of(config: PretrainConfig) -> list[PretrainConfig]:
    """The recipes of the runs, in their order; the last is the recipe itself.

    The first stage is the generator as a masked language model of its own (2003.10555 section 3.2).
    Its corruption and its objective are made anew, so an option of either that is not named here is
    at its default there.
    """
    if not config.train.generator_steps:
        return [config]
    c, o = config.corruption, config.objective
    first = PretrainConfig(
        model=_generator(config.model),
        corruption=CorruptionConfig(
            corruptor="mask",
            mask_rate=c.mask_rate,
            mask_mix=c.mask_mix,
            mask_unit=c.mask_unit,
            span_length=c.span_length,
            mask_choice=c.mask_choice,
        ),
        objective=o if o.objective == "mlm" else ObjectiveConfig(objective="mlm"),
        data=config.data,
        train=_alone(config.train),
    )
    return [with_weights(first), config]


def _generator(m: ModelConfig) -> ModelConfig:
    """The generator as the encoder that is kept."""
    fields: dict[str, Any] = m.generator_numbers()
    if m.generator_dropout is not None:
        fields |= dict.fromkeys(("dropout", "attention_dropout"), m.generator_dropout)
    fields |= dict.fromkeys(f"generator_{name}" for name in GENERATOR_SIZES)
    return dataclasses.replace(m, **fields, generator_dropout=None, init_rtd_bias="zero")


def _alone(t: TrainConfig) -> TrainConfig:
    """How a generator is trained where it is the only network."""
    warmup, decay = t.generator_warmup_steps, t.generator_weight_decay
    return dataclasses.replace(
        t,
        max_steps=t.generator_steps,
        generator_steps=0,
        discriminator_start="generator",
        learning_rate=t.generator_learning_rate or t.learning_rate,
        generator_learning_rate=None,
        warmup_steps=t.warmup_steps if warmup is None else warmup,
        generator_warmup_steps=None,
        weight_decay=t.weight_decay if decay is None else decay,
        generator_weight_decay=None,
        clip="together",
        init_discriminator=None,
    )


@dataclass(frozen=True)
class WarmUp:
    """A warm-up of a recipe, under the names of its fields."""

    name: str
    """The field that says it."""
    steps: int
    of: Literal["max_steps", "generator_steps"]
    """The field that says how many updates there are."""
    updates: int
    peak: float
    """The learning rate that it leads to."""

    @property
    def change(self) -> str:
        """The field that changes this one and no other."""
        return GENERATOR_WARMUP if self.of == "generator_steps" else self.name


def endless_warmups(config: PretrainConfig) -> Iterator[WarmUp]:
    """The warm-ups that take the whole of their stage, whose learning rates never reach their
    peak."""
    *before, _ = stages_of(config)
    t = config.train
    own = t.generator_warmup_steps
    found = [WarmUp("warmup_steps", t.warmup_steps, "max_steps", t.max_steps, t.learning_rate)]
    for stage in before:
        s = stage.train
        name = "warmup_steps" if own is None else GENERATOR_WARMUP
        steps, updates, peak = s.warmup_steps, s.max_steps, s.learning_rate
        found.append(WarmUp(name, steps, "generator_steps", updates, peak))
    if own is not None and not (before and config.corruption.generator_training == "frozen"):
        peak = t.generator_learning_rate or t.learning_rate
        found.append(WarmUp(GENERATOR_WARMUP, own, "max_steps", t.max_steps, peak))
    return (warmup for warmup in found if warmup.steps >= warmup.updates)
