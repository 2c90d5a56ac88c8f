"""Checks whether the numbers of a recipe can work together, with one message for each way in which
they cannot."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from ..cores import thread_count
from ..errors import nearest, need
from .check_lengths import check_extension, check_lengths, check_periods, check_schedules
from .check_model import check_model
from .check_task import check_task
from .pretrain import PretrainConfig, TrainConfig, starts_of
from .schema import MAX_TYPO, brief
from .stages import endless_warmups, stages_of

TRACKERS = ("none", "tensorboard")


def check(config: PretrainConfig, given: Iterable[str] = ()) -> None:
    """Raises UserError if the numbers cannot work together. given: the fields that somebody wrote,
    each of which has to do something; those that a recipe carries along need not."""
    check_model(config.model, config.corruption)
    check_task(config.corruption, config.objective, config.model)
    check_train(config.train)
    check_stages(config)
    check_extension(config)
    check_lengths(config)
    check_schedules(config)
    check_periods(config)
    segments = config.data.num_segments
    need(segments in (1, 2), f"num_segments is 1 or 2, not {segments}")
    check_idle(config, given)


def _needs_networks(config: PretrainConfig) -> str | None:
    c = config.corruption
    return None if c.row.learned else f"corruptor {c.corruptor} has no generator"


def _needs_masked_lm(config: PretrainConfig) -> str | None:
    c = config.corruption
    shows = c.row.shows_mask or c.row.leaves
    return None if shows else f"corruptor {c.corruptor} shows no masked language model a text"


def _needs_local(config: PretrainConfig) -> str | None:
    init = config.model.init
    return None if init == "local" else f"it is for init local, not {init}"


# Fields that many recipes carry along and that do nothing in some: a function that says why, where
# they do nothing.
IDLE: dict[str, Callable[[PretrainConfig], str | None]] = {
    "generator_size": _needs_networks,
    "tie": _needs_networks,
    "mask_mix": _needs_masked_lm,
    "local_amplitude": _needs_local,
}


def check_idle(config: PretrainConfig, given: Iterable[str]) -> None:
    """Raises UserError for a field among those given that does nothing in this recipe."""
    for name in given:
        why = IDLE[name](config) if name in IDLE else None
        need(why is None, f"{name} does nothing here: {why}", "leave it out")


def cautions(config: PretrainConfig, asked: str = "max_steps") -> Iterator[str]:
    """Warnings, shown at the start of a run, about settings that work but are probably not
    intended. asked: the field that decides the number of updates."""
    for w in endless_warmups(config):
        yield (
            f"{w.name} {w.steps:,} is not below {w.of} {w.updates:,}, so the learning rate never "
            f"reaches {w.peak:g}; give --{w.change.replace('_', '-')} {w.updates // 10} or so"
        )
    d = config.data
    for length in d.seq_length_schedule:
        if length >= d.max_seq_length:
            yield (
                f"seq_length_schedule: rows of {length} tokens are not shorter than those of the "
                f"rest of the run, max_seq_length {d.max_seq_length}"
            )
    *before, _ = stages_of(config)
    yield from _idle_parts(config, asked)
    for stage in before:
        yield from _idle_parts(stage, "generator_steps")


def _idle_parts(config: PretrainConfig, asked: str) -> Iterator[str]:
    """Parts of schedules that never happen in the updates of a stage. asked: the field that decides
    their number."""
    d, t = config.data, config.train
    updates = t.max_steps
    for name, schedule, last_name, last in (
        ("seq_length_schedule", d.seq_length_schedule, "max_seq_length", d.max_seq_length),
        ("batch_size_schedule", t.batch_size_schedule, "train_batch_size", t.train_batch_size),
    ):
        starts = starts_of(schedule, last, updates)
        taken = [value for first, value in starts.items() if first < updates]
        for value in (*schedule, last):
            if value not in taken:
                yield (
                    f"{name} with {last_name} {last}: none of {updates:,} updates has {value}, "
                    f"whose share rounds to 0 updates; give more {asked}, or other shares"
                )


def check_stages(config: PretrainConfig) -> None:
    """Two-stage training: a generator first, then a discriminator against it."""
    t = config.train
    need(t.generator_steps >= 0, f"generator_steps cannot be negative: {t.generator_steps}")
    check_folders(config)
    check_generator_training(config)
    if t.generator_steps:
        check_first_stage(config)
        check_start(config)
    else:
        need(
            t.discriminator_start == "generator",
            f"discriminator_start {t.discriminator_start} is for two stages: it needs "
            "generator_steps",
        )


def check_folders(config: PretrainConfig) -> None:
    """Whether the run can begin with the networks of its folders."""
    t = config.train
    c = config.corruption
    need(
        t.init_generator is None or c.row.has_generator,
        f"init_generator is for corruptor generator, not {c.corruptor}",
        "leave it out"
        if t.init_discriminator
        else "the encoder that this recipe keeps starts from an init_discriminator",
    )
    need(
        c.generator_training != "frozen" or bool(t.generator_steps or t.init_generator),
        "a frozen generator needs generator_steps, or an init_generator, to be one",
    )
    need(
        config.model.init_rtd_bias == "zero" or t.init_discriminator is None,
        "init_rtd_bias and init_discriminator exclude each other: the folder's head has a bias",
    )
    need(
        config.model.tie != "lower" or not (t.init_generator or t.generator_steps),
        "tie lower: the generator's lowest blocks are those of the encoder, so it cannot be "
        "trained first or start from a folder",
        "leave generator_steps and init_generator out",
    )


def check_generator_training(config: PretrainConfig) -> None:
    """Whether there is a generator that trains where an option is for one."""
    t = config.train
    learned = config.corruption.row.learned
    frozen = config.corruption.generator_training == "frozen"
    trained = learned and (not frozen or bool(t.generator_steps))
    for name in ("generator_learning_rate", "generator_warmup_steps", "generator_weight_decay"):
        need(trained or getattr(t, name) is None, f"{name}: no generator is trained here")
    need(
        t.clip == "together" or (learned and not frozen),
        "clip apart: no generator is trained beside the encoder here",
    )
    need(
        config.model.generator_dropout is None or not frozen or bool(t.generator_steps),
        "generator_dropout: a frozen generator has none",
    )


def check_first_stage(config: PretrainConfig) -> None:
    """Whether a generator can be trained before the discriminator."""
    corruption = config.corruption
    need(
        corruption.generator_training == "frozen" or config.objective.row.rewarded,
        "generator_steps trains the generator first",
        "say --generator-training frozen with it (recipes two-stage-*), or objective adversarial",
    )
    need(
        corruption.row.has_generator,
        f"generator_steps is for corruptor generator, not {corruption.corruptor}",
    )
    need(
        config.train.init_generator is None,
        "generator_steps and init_generator exclude each other: both say where the generator "
        "comes from",
    )


def check_start(config: PretrainConfig) -> None:
    """Whether the discriminator can start from the weights of the first stage's generator."""
    t = config.train
    m = config.model
    own = m.generator_numbers()
    odd = [name for name in own if own[name] != getattr(m, name)]
    need(
        t.discriminator_start == "random" or (not odd and t.init_discriminator is None),
        "a discriminator that starts from the generator needs generator_size 1 and no "
        "init_discriminator; or say --discriminator-start random",
    )


SMALLEST = 1e-37  # float32 has fewer digits below 1.2e-38
LONGEST_WAIT_S = 31 * 24 * 3600.0

ABOVE_ZERO = (
    "max_steps",
    "train_batch_size",
    "logging_steps",
    "save_steps",
    "eval_rows",
    "learning_rate",
    "adam_epsilon",
    "ddp_timeout",
    "spike_sigmas",
)
FROM_ZERO = (
    "warmup_steps",
    "eval_steps",
    "weight_decay",
    "max_grad_norm",
    "max_non_finite",
    "max_spikes",
)
# These must be above 0 if they are given.
OPTIONAL = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "save_total_limit",
    "max_minutes",
    "generator_learning_rate",
)
# And these finite.
FINITE = (
    "learning_rate",
    "generator_learning_rate",
    "weight_decay",
    "generator_weight_decay",
    "adam_epsilon",
)


def check_train(t: TrainConfig) -> None:
    check_ranges(t)
    thread_count(t.threads)
    for name in t.report_to:
        need(
            name in TRACKERS,
            f"report_to has no tracker {brief(name)}{nearest(name[:MAX_TYPO], TRACKERS)}",
        )
    need(
        t.clip == "together" or t.max_grad_norm > 0,
        "clip apart needs a max_grad_norm above 0, to which to clip",
    )
    for name in ("adam_beta1", "adam_beta2"):
        need(0 <= getattr(t, name) < 1, f"{name} must lie in [0, 1), not {getattr(t, name)}")
    sharded = t.fsdp == "full_shard"
    need(
        not (sharded and t.torch_compile),
        "fsdp full_shard gathers parameters on the way, which torch_compile does not follow: "
        "take one of the two",
    )
    need(0 <= t.seed < 2**63, f"seed must lie between 0 and 2**63 - 1, not {t.seed}")


def check_ranges(t: TrainConfig) -> None:
    """Whether the numbers of the training loop are in a range in which they can work."""
    for name in ABOVE_ZERO:
        need(getattr(t, name) > 0, f"{name} must be positive, not {getattr(t, name)}")
    for name in FROM_ZERO:
        need(getattr(t, name) >= 0, f"{name} cannot be negative: {getattr(t, name)}")
    for name in OPTIONAL:
        need(
            getattr(t, name) is None or getattr(t, name) > 0,
            f"{name} must be positive, not {getattr(t, name)}",
        )
    for name in FINITE:
        need(getattr(t, name) != math.inf, f"{name} must be a finite number")
    need(
        t.adam_epsilon >= SMALLEST,
        f"adam_epsilon {t.adam_epsilon:g} is too small for numbers of 32 bits",
        f"give at least {SMALLEST:g}",
    )
    need(
        t.ddp_timeout <= LONGEST_WAIT_S,
        f"ddp_timeout {t.ddp_timeout:g} is more than a month; processes that wait so long for "
        "another one hang",
    )
    for name in ("generator_warmup_steps", "generator_weight_decay"):
        own = getattr(t, name)
        need(own is None or own >= 0, f"{name} cannot be negative: {own}")
    need(t.max_grad_norm != math.inf, "max_grad_norm must be a finite number; 0 does not clip")
