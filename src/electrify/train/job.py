"""A run that is to be done: recipe, corpus, folder and processes fitted to each other, and what
makes it the same run when it goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..build import Built
from ..data.loader import Loader, Rows
from ..data.phases import phases_of
from ..errors import UserError, need
from ..files import read_json
from ..flop_counts import first_stage_flops
from ..methods import DISCRIMINATOR, class_at
from ..model.embeddings import Shape
from ..recipe import STARTS, Recipe, values_of, with_batch
from ..text.corpus import TOKENIZER, Corpus
from . import FACTS, GENERATOR_STAGE, checkpoint, dist
from .loop import Run
from .machine import choose_threads
from .monitor import unigram_entropy
from .start import (
    GENERATOR,
    content_of,
    is_same,
    must_know_the_words,
    starting_point,
    starts_of,
    with_shapes,
)

# Fields that may differ when a run continues: where and how often things are done, and what becomes
# of an update that is refused. The numbers of a run in which none is are the same with any of them,
# but for the last bits on another device or with other threads.
GUARDS = {"non_finite", "max_non_finite", "spike", "spike_sigmas", "max_spikes"}
HOW_OFTEN = {"logging_steps", "save_steps", "save_total_limit", "eval_steps", "eval_rows"}
FREE = GUARDS | HOW_OFTEN | {"max_minutes", "report_to", "device", "threads", "ddp_timeout"}
# Fields that say how the work is split: they change sums only by rounding.
SPLIT = {"per_device_train_batch_size", "gradient_accumulation_steps", "fsdp"}
WARMUPS = ("warmup_steps", "generator_warmup_steps")
# Schedules, whose values follow each other in the order in which they are written.
ORDERED = ("seq_length_schedule", "batch_size_schedule")


@dataclass(frozen=True)
class Job:
    """What a run is given."""

    recipe: Recipe
    """With its global batch decided."""
    folder: Path
    world: dist.World
    micro_rows: int
    """Rows of one forward pass of one process."""
    data: Path = Path()
    """A prepared corpus."""
    earlier: dict[str, Any] | None = None
    """run.json of a run that goes on in the folder; None if it begins."""
    deadline: float | None = None
    """The time, on the clock of time.monotonic(), after which the run saves and stops."""
    milestones: frozenset[int] = frozenset()
    """Updates whose checkpoints are kept whatever `save_total_limit` says."""
    prefix: Path | None = None
    """The checkpoint of a longer run from which a new run starts."""
    generator: Shape | None = None
    """The shape of a generator that starts from a folder, once that is read."""
    flops_before: float = 0.0
    """FLOPs that an earlier stage has used."""


@dataclass(frozen=True)
class TrainingData:
    """What a run reads."""

    loader: Loader
    valid: Rows | None
    """The rows used for validation; None if the corpus has no valid split."""
    unigram_entropy: float
    """The loss, in nats, of the best model that sees no context."""
    group_rows: int = 1
    """Number of consecutive rows that a loss may compare with each other; no forward pass splits
    such a group."""

    @property
    def corpus(self) -> Corpus:
        return self.loader.corpus

    def validated(self, eval_rows: int) -> int:
        """How many rows are validated on."""
        limit = min(eval_rows, self.valid.num_rows if self.valid else 0)
        return limit - limit % self.group_rows


# ------------------------------------------------------------------ fitting


def set_up(job: Job) -> tuple[Job, TrainingData]:
    """Opens the corpus and fits the recipe to it, to the run that is there, and to the folders that
    it starts from. Raises UserError; writes nothing."""
    with dist.together():
        corpus, valid = (Corpus(job.data, split) for split in ("train", "valid"))
        saved = job.earlier["shapes"] if job.earlier else {}
        vocab_size = corpus.manifest.vocab_size
        recipe, generator = with_shapes(job.recipe, saved, vocab_size=vocab_size)
        if job.earlier:
            must_be_the_same(job.folder, job.earlier, recipe, corpus)
        else:
            for start in starts_of(recipe).values():
                must_know_the_words(start, corpus.folder / TOKENIZER)
        d, phases, seed = recipe.data, phases_of(recipe), recipe.train.seed
        loader = Loader(corpus, phases=phases, num_segments=d.num_segments, seed=seed)
        rows = {"max_seq_length": d.max_seq_length, "num_segments": d.num_segments}
        held_out = Rows(valid, **rows) if valid.num_tokens else None
        entropy = unigram_entropy(corpus, recipe.corruption)
        data = TrainingData(loader, held_out, entropy, compared_rows(recipe))
        before = first_stage_flops(recipe, vocab_size=vocab_size, convention="hardware")
    return replace(job, recipe=recipe, generator=generator, flops_before=before), data


def compared_rows(recipe: Recipe) -> int:
    """Number of consecutive rows that a loss compares with each other."""
    o = recipe.objective
    return class_at(o.row.cls).group_rows(o)


def split_batch(recipe: Recipe, processes: int) -> tuple[Recipe, int]:
    """The recipe with its global batch decided, and the rows of one forward pass. Raises UserError
    if the batch cannot be split evenly, or if a split would separate rows that a loss compares."""
    recipe = with_batch(recipe, processes=processes)
    t, group = recipe.train, compared_rows(recipe)
    micro = t.per_device_train_batch_size
    micro = micro or t.train_batch_size // processes // (t.gradient_accumulation_steps or 1)
    smaller = {rows: min(micro, rows // processes) for rows in t.batch_size_schedule}
    for rows, cut in ({t.train_batch_size: micro} | smaller).items():
        passes, left = divmod(rows, processes * max(1, cut))
        asked = None if rows in smaller else t.gradient_accumulation_steps
        need(
            cut > 0 and not left and asked in (None, passes),
            f"a batch of {rows} rows cannot be cut evenly into {processes} "
            f"process{'es' * (processes > 1)} with passes of {micro} rows",
            "choose train_batch_size, batch_size_schedule, per_device_train_batch_size and "
            "gradient_accumulation_steps that divide",
        )
        need(
            cut % group == 0 and t.eval_rows % group == 0,
            f"objective {recipe.objective.objective} compares {group} rows with each other, and "
            f"passes of {cut} rows, or eval_rows {t.eval_rows}, would cut such a group",
            f"choose multiples of {group}",
        )
    return recipe, micro


def threads_of(job: Job, before: int | None) -> int:
    """The threads with which this run computes, as many as before where it goes on."""
    recipe = job.recipe
    if before is None and (stage := run_json_of(job.folder / GENERATOR_STAGE)):
        before = stage["machine"]["threads"]
    return choose_threads(
        recipe.train.threads,
        device=job.world.device,
        width=recipe.model.hidden_size,
        tokens=job.micro_rows * recipe.data.max_seq_length,
        bf16=bool(recipe.train.bf16),
        earlier=before,
        processes=job.world.size,
    )


def assembled(job: Job, data: TrainingData, *, fresh: bool) -> tuple[Run, Built]:
    """The networks and the run that trains them. fresh: whether it begins at its starting
    weights."""
    t, starts = job.recipe.train, starts_of(job.recipe)
    if t.generator_steps:
        starts[GENERATOR] = str(job.folder / GENERATOR_STAGE / DISCRIMINATOR)
        if t.discriminator_start == "generator":
            starts[DISCRIMINATOR] = starts[GENERATOR]
    how = {"fresh": fresh, "main": job.world.is_main}
    with dist.together():
        built = starting_point(job.recipe, job.generator, data.corpus, starts, **how)
    return Run(built.objective, job, data, discriminator=built.discriminator_names()), built


# ------------------------------------------------------------------ the same run


def run_json_of(folder: Path) -> dict[str, Any] | None:
    """run.json of the run that goes on in the folder; None if none does: without a checkpoint it
    begins anew."""
    return read_json(folder / FACTS) if checkpoint.steps(folder) else None


def decisive(recipe: Recipe) -> dict[str, Any]:
    """Every field that decides the numbers of a run, as JSON has it. For the folders that a run
    starts from, it says only whether there are any."""
    values = {n: v for n, v in values_of(recipe).items() if n not in FREE | SPLIT}
    # As pairs, because JSON does not keep the order of several.
    pairs = {n: list(values[n].items()) for n in ORDERED if len(values[n]) > 1}
    return json.loads(json.dumps(values | pairs | {n: bool(values[n]) for n in STARTS}))


def identity_of(recipe: Recipe, corpus: Corpus) -> dict[str, Any]:
    """What makes a run the same run."""
    return {
        "recipe": decisive(recipe),
        "starts": {name: content_of(start) for name, start in starts_of(recipe).items()},
        "data": corpus.manifest.fingerprint,
        "tokenizer_sha256": corpus.manifest.tokenizer_sha256,
    }


def must_be_the_same(
    folder: Path, facts: Mapping[str, Any], recipe: Recipe, corpus: Corpus
) -> None:
    """Raises UserError, naming what differs, if the run in the folder has another recipe or other
    data."""
    theirs, ours = facts["recipe"], decisive(recipe)
    differ = [name for name in {**ours, **theirs} if theirs.get(name) != ours.get(name)]
    # The objective first, and last what only one of the two has.
    differ.sort(key=lambda n: (n != "objective", n not in ours or n not in theirs))
    odd = [f"{n} {theirs.get(n)} there, {ours.get(n)} here" for n in differ]
    for name, start in starts_of(recipe).items():
        if not is_same(start, facts["starts"].get(name, start)):
            odd.append(f"init_{name} {start} is not the one that it started from")
    if facts["tokenizer_sha256"] != corpus.manifest.tokenizer_sha256:
        odd.append("it was trained with another tokenizer than DATA")
    elif facts["data"] != corpus.manifest.fingerprint:
        odd.append("it was trained with another corpus than DATA")
    if odd:
        more = f"; and {len(odd) - 3} more" if len(odd) > 3 else ""
        advice = "choose another output_dir, or repeat its options and DATA to continue it"
        if "max_steps" in differ and "objective" not in differ:  # a schedule has a length
            advice += ". To train longer, start a new run with init_discriminator="
            advice += str(folder / DISCRIMINATOR)
        raise UserError(f"{folder} holds another run ({'; '.join(odd[:3])}{more})", advice)
