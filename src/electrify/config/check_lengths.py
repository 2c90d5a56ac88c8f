"""Checks whether a run's encoders can read its rows, whether what changes during the run goes
together, and whether it can be planned to take a time."""

from __future__ import annotations

import math

from ..errors import need
from .flags import flag_of
from .pretrain import PretrainConfig
from .sections import ModelConfig

POSITIONS = "max_position_embeddings"


def check_lengths(config: PretrainConfig) -> None:
    """The rows at the end of the run."""
    length, (name, longest) = config.data.max_seq_length, limit(config)
    need(length <= longest, f"max_seq_length {length} exceeds {name} {longest}")
    need(length >= 8, f"max_seq_length {length} is too short", "use at least 8")


def limit(config: PretrainConfig) -> tuple[str, float]:
    """The tokens of the longest sequence that the kept encoder reads, and the option that says so.
    An encoder that starts from a folder may be extended; otherwise the folder decides, and rows are
    compared with that when it is read."""
    if not config.train.init_discriminator:
        return POSITIONS, config.model.max_position_embeddings
    name = extending(config.model, POSITIONS)
    if name in config.model.extends:
        return name, getattr(config.model.options, name)
    return POSITIONS, math.inf


def extending(model: ModelConfig, number: str) -> str | None:
    """The option of an architecture that extends a number of a folder's encoder; None if there is
    none, because weights depend on it."""
    return next((name for name, of in model.row.extends.items() if of == number), None)


def may_extend(config: PretrainConfig) -> bool:
    """Whether a run may extend an encoder; see `check_extension`."""
    return config.train.init_discriminator is not None and not config.train.generator_steps


def check_extension(config: PretrainConfig) -> None:
    """An encoder that goes on from a folder with longer rows."""
    t = config.train
    for name in config.model.extends:
        need(
            t.init_discriminator is not None,
            f"{name} is for an encoder that starts from a folder: give --init-discriminator, or "
            f"{config.model.row.extends[name]} in its place",
        )
        need(
            not t.generator_steps,
            f"{name} does not go with a first stage, whose generator starts from no folder: leave "
            "generator_steps out",
        )


def check_schedules(config: PretrainConfig) -> None:
    """Row lengths and batch sizes that change during the run."""
    d = config.data
    t = config.train
    name_of_limit, longest = limit(config)
    for name, schedule in (
        ("seq_length_schedule", d.seq_length_schedule),
        ("batch_size_schedule", t.batch_size_schedule),
    ):
        shares = schedule.values()
        need(
            all(0 < s < 1 for s in shares) and sum(shares) < 1,
            f"the shares of {name} must be positive and sum to less than 1: {schedule}",
        )
    for length in d.seq_length_schedule:
        need(
            8 <= length <= longest,
            (
                f"seq_length_schedule: rows of {length} tokens; at least 8"
                + f", at most {name_of_limit} {longest}" * (longest < math.inf)
            ),
        )
    check_by_rows(config)
    grows = d.seq_length_schedule or t.batch_size_schedule
    for name in ("non_finite", "spike"):
        back = getattr(t, name) == "rollback"
        need(
            not (back and grows),
            (
                f"{name} rollback moves batches forward: it cannot go with a schedule of lengths "
                "or batches"
            ),
        )
    for rows in t.batch_size_schedule:
        need(rows > 0, f"batch_size_schedule: batches must be positive, not {rows}")


def check_by_rows(config: PretrainConfig) -> None:
    """Whether a run has the rows for which an own option of the architecture gives a value."""
    there = config.data.seq_length_schedule
    for name in config.model.row.by_rows:
        for length in getattr(config.model.options, name):
            need(
                length in there,
                f"{name}: seq_length_schedule has no rows of {length} tokens, only of "
                f"{', '.join(map(str, there)) or 'max_seq_length'}",
                f"name its lengths only, or give {flag_of(name)} none",
            )
            need(
                length != config.data.max_seq_length,
                f"{name}: rows of {length} tokens are also those of the end of the run "
                "(max_seq_length), for which the value without a schedule holds",
                "leave them out",
            )


def check_periods(config: PretrainConfig, *, of: str = "", more: str = "more max_steps") -> None:
    """Whether the later parts of a run come at all. of: what decides the number of updates, for the
    message. more: what to give for a higher one."""
    steps = config.train.max_steps
    for name in config.objective.row.moving:
        share = getattr(config.objective.options, name)
        need(
            share * steps <= steps - 1,
            f"{of}{name} {share} of {steps:,} updates leaves none for what comes after",
            f"give a smaller one, or {more}",
        )


def check_minutes(config: PretrainConfig, minutes: float) -> None:
    """Raises UserError if a run of this recipe cannot be planned to take `minutes`."""
    need(
        math.isfinite(minutes) and minutes > 0,
        f"train_minutes must be a number above 0, not {minutes}",
    )
    need(
        not config.train.generator_steps,
        "train_minutes is for runs of one stage",
        "leave it out if generator_steps trains a generator first",
    )
