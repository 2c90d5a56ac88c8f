"""How a global batch is split: the rows of one forward pass, on each process, in each phase."""

from __future__ import annotations

from ..config.pretrain import PretrainConfig, with_batch
from ..errors import UserError


def split_batch(config: PretrainConfig, world_size: int) -> tuple[PretrainConfig, int]:
    """The recipe with its global batch decided, and the rows of one forward pass. Raises UserError
    if the batch cannot be split evenly, or if a split would separate rows that a loss compares.
    """
    config = with_batch(config, processes=world_size)
    micro = rows_of_a_pass(config, world_size)
    must_cut_evenly(config, micro, world_size)
    must_hold_groups(config, micro, world_size)
    return config, micro


def rows_of_a_pass(config: PretrainConfig, world_size: int) -> int:
    """The rows of a forward pass if the recipe gives only the batch and not how it is split."""
    t = config.train
    processes = f"{world_size} process{'es' * (world_size > 1)}"
    share, left = divmod(t.train_batch_size, world_size)
    micro = t.per_device_train_batch_size or share // (t.gradient_accumulation_steps or 1)
    if (
        left
        or not micro
        or share % micro
        or share // micro != (t.gradient_accumulation_steps or share // micro)
    ):
        steps = t.gradient_accumulation_steps
        passes = f"{steps} passes each" if steps else f"passes of {micro} rows"
        raise UserError(
            f"a batch of {t.train_batch_size} rows cannot be cut evenly into {processes} with "
            f"{passes}; choose --train-batch-size, "
            f"--per-device-train-batch-size and --gradient-accumulation-steps that divide"
        )
    return micro


def must_cut_evenly(config: PretrainConfig, micro_rows: int, world_size: int) -> None:
    """Raises UserError if a batch of the schedule cannot be split into whole passes."""
    processes = f"{world_size} process{'es' * (world_size > 1)}"
    for rows in config.train.batch_size_schedule:
        share, left = divmod(rows, world_size)
        if left or share % min(micro_rows, share):
            raise UserError(
                f"batch_size_schedule: a batch of {rows} rows cannot be cut evenly into "
                f"{processes} with passes of {micro_rows} rows; "
                f"choose one that divides"
            )


def must_hold_groups(config: PretrainConfig, micro_rows: int, world_size: int) -> None:
    """Raises UserError if a forward pass does not hold whole groups of the rows that a loss
    compares."""
    o = config.objective
    t = config.train
    if o.row.group_rows is None:
        return
    group = o.row.group_rows(o.term_weights, o.options)
    shares = [min(micro_rows, rows // world_size) for rows in t.batch_size_schedule]
    smaller = [("forward passes of batch_size_schedule", rows) for rows in shares]
    for what, rows in [("forward passes", micro_rows), ("eval_rows", t.eval_rows), *smaller]:
        if rows % group:
            raise UserError(
                f"objective {o.objective} compares {group} rows with each other, and {what} of "
                f"{rows} rows would cut such a group: "
                "choose --train-batch-size, --per-device-train-batch-size and --eval-rows that "
                f"are multiples of {group}"
            )
