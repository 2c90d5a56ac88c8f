"""Budgets: recipes x budgets x seeds -> trials, each one encoder to pre-train, with its updates.

With a learning rate that is held and then decays over the last `decay_share` (`wsd`), runs of one
recipe and one seed that differ only in length are the same until the shorter one decays. So each
shorter run starts from the checkpoint of the longest one at `starts_at`, and only decays. A curve
over budgets costs little more than its longest run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

from ..data.loader import Rows
from ..data.phases import phases_of
from ..errors import UserError, need
from ..flop_counts import recipe_flops
from ..progress import say
from ..recipe import GENERATOR_SIZES, Entry, Recipe, load, override, stages_of, with_batch
from ..rules import broken, cautions, check, endless_warmups, periods
from ..text.corpus import Corpus
from ..train.job import WARMUPS
from ..train.length import WARMUP
from ..train.optim import scheduled
from ..train.start import with_shapes
from .options import CompareConfig, Equal, with_unit

OWN = {"seed", "max_steps", "device", "max_minutes", "save_steps", "save_total_limit"}
OWN |= {"eval_steps", "logging_steps", "report_to"}
"""Fields that a study sets for all recipes alike."""
MOST_OFF = 0.1
"""The largest share of a budget by which a run may miss it."""
UNTRAINED = {"untrained": "random", "untrained + words": "cooccurrence"}
"""The baselines of a study, and the word vectors that they begin with."""
RANDOM = next(iter(UNTRAINED))
NO_ENCODER = "no encoder"
BASELINES = (*UNTRAINED, NO_ENCODER)
Key = tuple[str, float, int, str]


@dataclass(frozen=True)
class Trial:
    """One encoder to pre-train."""

    entry: str
    """The name of its recipe."""
    budget: float
    """What was asked for, in the unit of the study; 0 for a baseline."""
    seed: int
    recipe: Recipe
    """With `max_steps` and seed."""
    flops: float
    """The cost of the whole run, in the study's convention."""
    starts_at: int | None
    """The update at which it leaves the longest run of its recipe and seed; None: run whole."""
    identity: str = ""
    """A hash of everything that decides its scores (study.py)."""

    @property
    def key(self) -> Key:
        """That of its line in results.jsonl."""
        return self.entry, self.budget, self.seed, self.identity

    @property
    def steps(self) -> int:
        return self.recipe.train.max_steps

    @property
    def own_share(self) -> float:
        """The share of all its updates, a first stage included, that are computed for it alone."""
        every = self.steps + self.recipe.train.generator_steps
        return (every - (self.starts_at or 0)) / every


# ------------------------------------------------------------------ costs


@dataclass(frozen=True)
class Cost:
    """The cost of runs, and what of that a budget counts."""

    vocab_size: int
    num_rows: Callable[[int, int], int] | None = None
    """(tokens of a row, segments) -> rows that the corpus fills; needed for epochs."""
    convention: Any = "hardware"
    equal: Equal = "flops"

    def flops(self, recipe: Recipe) -> float:
        """The FLOPs of the whole run, a first stage included."""
        return recipe_flops(recipe, vocab_size=self.vocab_size, convention=self.convention).train

    def epochs(self, recipe: Recipe) -> float:
        """How often the whole run sees the corpus: the rows that it takes over those that the
        corpus fills, as its log counts them."""
        assert self.num_rows is not None
        return sum(
            rows / max(1, self.num_rows(length, recipe.data.num_segments))
            for stage in stages_of(recipe)
            for length, rows in phases_of(stage).rows_taken(stage.train.max_steps).items()
        )

    def spent(self, recipe: Recipe) -> float:
        """What the whole run takes from a budget."""
        count = {"flops": self.flops, "epochs": self.epochs, "tokens": tokens_of}[self.equal]
        return float(count(recipe))


def tokens_of(recipe: Recipe) -> int:
    """Tokens that a run reads, padding and a first stage included."""
    return sum(phases_of(stage).slots(stage.train.max_steps) for stage in stages_of(recipe))


def rows_of(corpus: Corpus) -> Callable[[int, int], int]:
    """(tokens of a row, segments) -> how many rows the corpus fills."""

    @cache
    def num_rows(length: int, segments: int) -> int:
        return Rows(corpus, max_seq_length=length, num_segments=segments).num_rows

    return num_rows


# ------------------------------------------------------------------ recipes and their lengths


def configured(entry: Entry, *, schedule: str | None, seed: int) -> Recipe:
    """The entry's recipe with its changes. schedule: a learning-rate schedule for all entries; None
    keeps the recipe's. Raises UserError if the changes are not possible."""
    fields: dict[str, Any] = {"seed": seed}
    if schedule is not None:
        fields["lr_scheduler_type"] = schedule
    for name in entry.changes.keys() & OWN:
        said = f"{name} is set by --seeds, --budgets, --device or the study itself"
        raise UserError(f"{said}. Leave that change out")
    recipe = override(load(entry.recipe), fields | entry.changes)
    check(recipe, entry.changes)
    return with_batch(recipe)  # its batch is what a budget counts


def as_started(recipe: Recipe, vocab_size: int) -> Recipe:
    """The recipe with the shapes of the folders from which it starts, which decide its cost. Raises
    UserError for folders that it cannot start from."""
    recipe, generator = with_shapes(recipe, {}, vocab_size=vocab_size)
    if generator is None or not recipe.train.init_generator:
        return recipe
    return override(recipe, {f"generator_{n}": getattr(generator, n) for n in GENERATOR_SIZES})


def of_length(recipe: Recipe, steps: int) -> Recipe:
    """The recipe with this many updates; a first stage keeps its share of them."""
    t = recipe.train
    fields: dict[str, Any] = {"max_steps": steps}
    if t.generator_steps:
        fields["generator_steps"] = max(1, round(steps * t.generator_steps / t.max_steps))
    return override(recipe, fields)


def with_warmups(recipe: Recipe, entry: Entry) -> Recipe:
    """The recipe with warm-ups of a tenth of the run where they would last to its end and are not
    changes of the entry."""
    shorter = {}
    for name, _, updates in endless_warmups(recipe):
        if name not in entry.changes:
            shorter[name] = int(WARMUP * updates)
            say(f"{entry.name}: {name} is {shorter[name]:,}, a tenth of the run")
    return override(recipe, shorter)


def steps_for(recipe: Recipe, budget: float, cost: Cost) -> int:
    """How many updates spend `budget`. What they spend grows with their number, though not evenly
    if rows or batches grow during the run."""
    steps = recipe.train.max_steps
    for _ in range(8):
        better = max(1, round(steps * budget / cost.spent(of_length(recipe, steps))))
        if better == steps:
            break
        steps = better
    return steps


def can_share(recipe: Recipe) -> bool:
    """Whether a longer run of this recipe begins as a shorter one does: the learning rate is held,
    and nothing else depends on the share of the run that is done."""
    c, t = recipe.corruption, recipe.train
    moves = (
        c.temperature_end not in (None, c.temperature),
        c.mask_rate_end not in (None, c.mask_rate),
        recipe.objective.mlm_share > 0,
        recipe.objective.mlm_end_share > 0,
        recipe.data.seq_length_schedule,
        t.batch_size_schedule,
        t.generator_steps,
    )
    return t.lr_scheduler_type == "wsd" and not any(moves)


def leaves_at(short: Recipe, long: Recipe) -> int:
    """The number of updates that both runs have in common: those with the same learning rate."""
    # The schedules agree until the shorter one decays.
    updates = range(min(short.train.max_steps, long.train.max_steps))
    return bisect_left(
        updates, True, key=lambda n: scheduled(short.train, n) != scheduled(long.train, n)
    )


# ------------------------------------------------------------------ trials


def planned(config: CompareConfig, entries: Sequence[Entry], cost: Cost) -> list[Trial]:
    """The trials of all entries, and those of the baselines. Raises UserError."""
    seeds = range(config.seed, config.seed + config.seeds)
    schedule = None if config.lr_scheduler_type == "recipe" else config.lr_scheduler_type
    trials = [t for e in entries for t in trials_of(e, config.budgets, seeds, cost, schedule)]
    if config.baselines:
        first = configured(entries[0], schedule="constant", seed=seeds[0])
        base = as_started(first, cost.vocab_size)
        trials += [untrained(base, name, seed) for name in UNTRAINED for seed in seeds]
    return trials


def trials_of(
    entry: Entry, budgets: Sequence[float], seeds: Sequence[int], cost: Cost, schedule: str | None
) -> Iterator[Trial]:
    """The trials of an entry: for each seed the longest run first, then those that start from it.
    Raises UserError for an entry that cannot be run, and for a budget that does not fit."""
    lengths: dict[float, tuple[int, float, dict[str, Any]]] = {}
    try:
        base = configured(entry, schedule=schedule, seed=seeds[0])
        counted = as_started(base, cost.vocab_size)
        for budget in sorted(budgets, reverse=True):
            steps = steps_for(counted, budget, cost)
            fitting = with_warmups(of_length(counted, steps), entry)
            own = {name: getattr(fitting.train, name) for name in WARMUPS}
            lengths[budget] = steps, _fits(fitting, budget, cost), own
    except UserError as e:
        raise UserError(f"{entry.name}: {e}") from e
    most, _, warmups = lengths[max(budgets)]
    longest = override(of_length(base, most), warmups)
    for seed in seeds:
        for budget, (steps, flops, own) in lengths.items():
            recipe = override(of_length(base, steps), {"seed": seed} | own)
            shared = steps < most and own == warmups and can_share(recipe)
            starts_at = leaves_at(recipe, longest) if shared else None
            yield Trial(entry.name, budget, seed, recipe, flops, starts_at or None)


def _fits(recipe: Recipe, budget: float, cost: Cost) -> float:
    """The FLOPs of a run for a budget. Raises UserError if a learning rate would never reach its
    peak, if a part of the run would have no update, or if a whole number of updates is far from the
    budget."""
    spent = cost.spent(recipe)
    asked, real = (with_unit(x, cost.equal) for x in (budget, spent))
    for sentence in (*cautions(recipe), *broken(recipe)):
        raise UserError(f"a budget of {asked}: {sentence}. Give larger --budgets")
    need(
        abs(spent - budget) <= MOST_OFF * budget,
        f"a budget of {asked} lies between two numbers of updates: {recipe.train.max_steps:,} of "
        f"them would be {real}. Give larger --budgets, or smaller batches",
    )
    return cost.flops(recipe)


def untrained(base: Recipe, name: str, seed: int) -> Trial:
    """A baseline: the encoder of a recipe (`as_started`) before training, which is a run of the
    fewest updates at a rate that moves no weight."""
    fields: dict[str, Any] = dict.fromkeys(("init_discriminator", "init_generator"))
    fields |= dict.fromkeys(base.model.extends)
    fields["discriminator_start"] = "generator"  # for a run of one stage
    if base.corruption.generator_training == "frozen":
        # There is no first stage or folder: its generator is untrained, too.
        weights = {"generator": 1.0} | base.objective.term_weights
        fields |= {"generator_training": "joint", "term_weights": weights}
    fields |= {
        "seed": seed,
        "init_words": UNTRAINED[name],
        # Each part of the run has an update.
        "max_steps": next(
            n for n in count(1) if not any(periods(override(base, {"max_steps": n})))
        ),
        "warmup_steps": 0,
        "learning_rate": 1e-12,
        "generator_learning_rate": None,
        "generator_warmup_steps": None,
        "generator_steps": 0,
    }
    recipe = override(base, fields)
    check(recipe)
    return Trial(name, 0.0, seed, recipe, 0.0, None)
