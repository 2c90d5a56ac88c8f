"""The plan of a study: recipes x budgets x seeds -> cells, each one encoder to pre-train.

    entry("electra-tiny:mask_rate=0.3")  ->  Entry  ->  cells(...)  ->  list[Cell]

With a learning rate that is held and then decays over the last fifth (`wsd`), runs of one entry and
one seed that differ only in length are the same up to four fifths of the shorter one. The longest
run is the trunk; each shorter run starts from the trunk's checkpoint at `starts_at` and only
decays. So a curve over budgets costs little more than its longest run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import UserError
from ..recipe import GENERATOR_SIZES, Entry, Recipe, load, override, with_batch
from ..rules import broken, check, endless_warmups
from ..train.optim import planned
from .cost import Cost

# Fields that a study sets for all recipes alike, and by what.
SET_BY = {"seed": "--seed and --seeds", "max_steps": "--budgets", "device": "--device"}
SET_BY |= dict.fromkeys(
    ("save_steps", "save_total_limit", "eval_steps", "logging_steps", "report_to", "max_minutes"),
    "the study itself",
)
MOST_UPDATES = 10**12
MOST_OFF = 0.1
"""The largest share of a budget by which a run may miss it."""


@dataclass(frozen=True)
class Cell:
    """One encoder to pre-train."""

    entry: str
    budget: float
    """What was asked for, in the unit of the study."""
    seed: int
    config: Recipe
    """The whole run's recipe, `max_steps` and seed included."""
    flops: float
    """What it costs from scratch: where budgets are FLOPs the budget, to within one update."""
    starts_at: int | None
    """The update at which it leaves the trunk of its entry and seed; None if it is run whole."""
    identity: str = ""
    """A hash of everything that decides its scores (study.py)."""
    starts: dict[str, str] = field(default_factory=dict)
    """`starts_of` its recipe when the study was planned."""

    @property
    def steps(self) -> int:
        return self.config.train.max_steps

    @property
    def own_steps(self) -> int:
        """Updates that are computed for this cell alone, a first stage included."""
        return self.steps - (self.starts_at or 0) + self.config.train.generator_steps

    @property
    def own_flops(self) -> float:
        """What these cost: a run that starts from another one has no schedule other than that of
        its rate."""
        return self.flops * self.own_steps / (self.steps + self.config.train.generator_steps)


def configured(entry: Entry, *, schedule: str | None, seed: int) -> Recipe:
    """The entry's recipe with its changes. schedule: a learning-rate schedule for all entries; None
    keeps the recipe's. Raises UserError if the changes are not possible."""
    fields: dict[str, Any] = {"seed": seed}
    if schedule is not None:
        fields["lr_scheduler_type"] = schedule
    for name in entry.changes.keys() & SET_BY.keys():
        raise UserError(f"{entry.name}: {name} is set by {SET_BY[name]}; leave that change out")
    try:
        config = override(load(entry.recipe), fields | entry.changes)
        check(config, entry.changes)
    except UserError as e:
        raise UserError(f"{entry.name}: {e}") from e
    return with_batch(config)  # its batch is what a budget counts


def as_started(config: Recipe, vocab_size: int) -> Recipe:
    """The recipe with the shapes of the folders from which it starts, which decide what it costs.
    Raises UserError for folders that it cannot start from."""
    t = config.train
    if not (t.init_discriminator or t.init_generator):
        return config
    from ..train.start import with_shapes  # imports torch

    config, generator = with_shapes(config, {}, vocab_size=vocab_size)
    if generator is None or not t.init_generator:
        return config
    sizes = {f"generator_{name}": getattr(generator, name) for name in GENERATOR_SIZES}
    return override(config, sizes)


def can_share(config: Recipe) -> bool:
    """Whether a longer run of this recipe begins as a shorter one does: the learning rate is held,
    and nothing else depends on the share of the run that is done."""
    c = config.corruption
    moves = c.temperature_end not in (None, c.temperature)
    moves |= c.mask_rate_end not in (None, c.mask_rate)
    moves |= config.objective.mlm_share > 0
    return (
        config.train.lr_scheduler_type == "wsd"
        and not moves
        and not config.data.seq_length_schedule
        and not config.train.batch_size_schedule
        and not config.train.generator_steps
    )


def leaves_at(short: Recipe, long: Recipe) -> int:
    """The number of updates that both runs have in common: those with the same learning rate."""
    # The schedules agree until the shorter one decays.
    updates = range(min(short.train.max_steps, long.train.max_steps))
    return bisect_left(
        updates, True, key=lambda n: planned(short.train, n) != planned(long.train, n)
    )


def of_length(config: Recipe, steps: int) -> Recipe:
    """The recipe with this many updates; a first stage keeps its share of them."""
    t = config.train
    fields: dict[str, Any] = {"max_steps": steps}
    if t.generator_steps:
        fields["generator_steps"] = max(1, round(steps * t.generator_steps / t.max_steps))
    return override(config, fields)


def steps_for(config: Recipe, budget: float, cost: Cost) -> int:
    """How many updates spend `budget`, first stage included. What they spend grows with their
    number, though not evenly if rows or batches grow during the run. Raises UserError for more
    updates than anybody can wait for."""
    steps = config.train.max_steps
    for _ in range(8):
        wanted = steps * (budget / cost.spent(of_length(config, steps)))
        if wanted > MOST_UPDATES:
            raise UserError(
                f"a budget of {cost.shown(budget)} is more than {MOST_UPDATES:.0e} updates; give "
                "smaller --budgets"
            )
        better = max(1, round(wanted))
        if better == steps:
            break
        steps = better
    return steps


def cells(
    entries: Sequence[Entry],
    budgets: Sequence[float],
    seeds: Sequence[int],
    cost: Cost,
    *,
    schedule: str | None = "wsd",
) -> list[Cell]:
    """The cells of a study: for each entry and seed the longest run first, then those that start
    from it. Raises UserError for an entry that cannot be run, and for a budget that ends within its
    warm-up."""
    planned_cells = []
    for entry in entries:
        base = configured(entry, schedule=schedule, seed=seeds[0])
        try:
            counted = as_started(base, cost.vocab_size)
        except UserError as e:
            raise UserError(f"{entry.name}: {e}") from e
        lengths: dict[float, tuple[Recipe, float]] = {}
        for budget in sorted(budgets, reverse=True):
            steps = steps_for(counted, budget, cost)
            whole = of_length(counted, steps)
            _must_be_long_enough(entry, cost.shown(budget), whole)
            _must_be_met(entry, cost, budget, whole)
            same = [b for b, (config, _) in lengths.items() if config.train.max_steps == steps]
            if same:
                raise UserError(
                    f"{entry.name}: {same[0]:g} and {cost.shown(budget)} are both "
                    f"{steps:,} updates; leave one of --budgets out"
                )
            lengths[budget] = of_length(base, steps), cost.flops(whole)
        for seed in seeds:
            planned_cells += _of_one_seed(entry, lengths, seed)
    return planned_cells


def _of_one_seed(entry: Entry, lengths: dict[float, tuple[Recipe, float]], seed: int) -> list[Cell]:
    runs = {b: (override(config, {"seed": seed}), f) for b, (config, f) in lengths.items()}
    trunk = next(iter(runs.values()))[0]
    found = []
    for budget, (config, flops) in runs.items():
        for sentence in broken(config):
            raise UserError(f"{entry.name}: {sentence}. Give larger --budgets")
        shared = config is not trunk and can_share(config)
        starts_at = leaves_at(config, trunk) if shared else None
        found.append(Cell(entry.name, budget, seed, config, flops, starts_at or None))
    return found


def _must_be_long_enough(entry: Entry, budget: str, config: Recipe) -> None:
    """Raises UserError if a learning rate would never reach its peak."""
    for name, warmup, updates in endless_warmups(config):
        raise UserError(
            f"{entry.name}: a budget of {budget} is {updates:,} updates, which end within {name} "
            f"{warmup:,}. Give larger --budgets, or change {name}"
        )


def _must_be_met(entry: Entry, cost: Cost, budget: float, config: Recipe) -> None:
    """Raises UserError if a whole number of updates is far from what they may spend."""
    spent = cost.spent(config)
    if abs(spent - budget) > MOST_OFF * budget:
        raise UserError(
            f"{entry.name}: a budget of {cost.shown(budget)} lies between two numbers of updates: "
            f"{config.train.max_steps:,} of them would be {cost.shown(spent)}; give larger "
            "--budgets, or smaller batches"
        )
