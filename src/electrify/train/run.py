"""`electrify pretrain`: one run, or a generator and then the run against it, from the command to
the exported folders.

    RUN/run.json          what the run is (recipe, corpus) and what it was made with; written first
        config.yaml       the resolved recipe, for people and for `export`
        tokenizer/        a copy of the corpus's
        metrics.jsonl     log.py
        checkpoint-N/     checkpoint.py
        discriminator/    a Hugging Face folder of each network, at the end
        generator-stage/  the run that trains the generator first, where there are two stages
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from ..build import Built
from ..data.loader import Loader, Rows, prefetch
from ..data.phases import phases_of
from ..draws import hashed
from ..errors import UserError, need
from ..exporting.folder import export_run
from ..files import claim, must_be_ours, read_json, write, written
from ..flop_counts import first_stage_flops
from ..model.shape import Shape
from ..progress import say
from ..recipe import STARTS, Recipe, dump, override, stages_of, values_of, with_batch
from ..rules import cautions, check, periods
from ..tables import DISCRIMINATOR
from ..text.corpus import Corpus, is_prepared, prepared, verify
from ..text.report import more_validation
from . import CONFIG, FACTS, GENERATOR_STAGE, TOKENIZER, checkpoint, dist
from .log import MetricsLog, begin_log
from .loop import Run, Summary
from .machine import (
    Threads,
    choose,
    computing_with,
    describe,
    keep_memory,
    pick_device,
    with_compiler,
    with_precision,
)
from .meter import machine_peak
from .monitor import unigram_entropy
from .start import (
    GENERATOR,
    Starts,
    content_of,
    discriminator_names,
    is_same,
    must_know_the_words,
    starting_point,
    starts_of,
    with_shapes,
)
from .state import RunContext, TrainingData

Resume = Literal["auto", "never", "must"]
VERIFIED_BYTES = 4 << 30  # of token shards, verified at every start in two or three seconds
WIDEST_ON_CPU = 128
# Fields that may differ when a run continues: where and how often things are done, and what becomes
# of an update that is refused. The numbers of a run in which none is are the same with any of them,
# but for the last bits on another device or with other threads.
GUARDS = {"non_finite", "max_non_finite", "spike", "spike_sigmas", "max_spikes"}
HOW_OFTEN = {"logging_steps", "save_steps", "save_total_limit", "eval_steps", "eval_rows"}
FREE = GUARDS | HOW_OFTEN | {"max_minutes", "report_to", "device", "threads", "ddp_timeout"}
# Fields that say how the work is split: they change sums only by rounding.
SPLIT = {"per_device_train_batch_size", "gradient_accumulation_steps", "fsdp"}
# Schedules, whose values follow each other in the order in which they are written.
ORDERED = ("seq_length_schedule", "batch_size_schedule")
LENGTHS = ("max_steps", "warmup_steps", "generator_warmup_steps")


@dataclass(frozen=True)
class Job:
    """A run that is to be done."""

    data: Path
    """A prepared corpus."""
    folder: Path
    config: Recipe
    world: dist.World
    starts: Starts
    """The folder or Hub id from which each network starts."""
    deadline: float | None = None
    """The time, on the clock of time.monotonic(), after which the run saves and stops."""
    milestones: frozenset[int] = frozenset()
    """Updates whose checkpoints are kept, so that shorter runs can start from them."""
    prefix: Path | None = None
    """The checkpoint of a longer run from which a new run starts."""


@dataclass(frozen=True)
class Planned:
    """What a job comes to with this corpus and these processes."""

    job: Job
    """With the numbers of the folders that it starts from."""
    loader: Loader
    micro_rows: int
    """Rows of one forward pass of one process."""
    generator: Shape | None
    earlier: dict[str, Any] | None
    """run.json of a run that goes on; None if it begins."""


@dataclass(frozen=True)
class Result:
    """The result of a run."""

    run: Path
    summary: Summary
    exported: dict[str, Path]
    """The Hugging Face folder of each network; empty if the run was stopped before its end."""


# ------------------------------------------------------------------ the way of a run


def pretrain(
    data: str | Path,
    *,
    output_dir: str | Path,
    config: Recipe,
    resume: Resume = "auto",
    milestones: frozenset[int] = frozenset(),
    prefix: Path | None = None,
    train_minutes: float | None = None,
    given: Iterable[str] = (),
) -> Result:
    """Trains `config` on `data`, a prepared corpus or text that is prepared first, into the run
    folder `output_dir`; with `generator_steps`, it trains a generator first.

    Args:
        data: the prepared corpus, or a file or folder of text.
        output_dir: the run folder. The same command continues the run that is there.
        config: the recipe.
        resume: auto continues the newest complete checkpoint if there is one; must insists on one;
            never refuses a folder that holds a run.
        milestones: updates whose checkpoints are kept whatever `save_total_limit` says.
        prefix: the checkpoint of a longer run, which is the same up to there and from which a new
            run starts.
        train_minutes: the time that the run is to take; `max_steps` is then as many updates as fit
            into it, measured first.
        given: the fields of the recipe that the user wrote, which must have an effect.

    Raises:
        UserError: for every mistake of the user, before anything is written if possible.
        Unfinished: if another process of the run is lost.
    """
    given = frozenset(given)
    check(config, given)
    if train_minutes is not None and config.train.generator_steps:
        raise UserError("train_minutes is for runs of one stage, without generator_steps")
    t, folder = config.train, Path(output_dir)
    deadline = None if t.max_minutes is None else time.monotonic() + 60 * t.max_minutes
    keep_memory()
    world = dist.start(pick_device(t.device), timeout_s=t.ddp_timeout)
    try:
        with dist.companions():
            with dist.together():
                must_be_free(folder, resume)
                places = [folder, folder / GENERATOR_STAGE, *([prefix.parent] if prefix else [])]
                earlier = next(filter(None, map(facts_of, places)), None)
            config = with_shorter_warmup(config, given, world)
            begun = earlier["recipe"] if earlier else {}
            config = with_precision(config, world, begun=begun.get("bf16"))
            config = with_compiler(config, world, begun=begun.get("torch_compile"))
            with dist.together():
                config, _ = split_batch(config, world.size)
                starts = starts_of(config)
                if not is_prepared(str(data)) and not earlier:
                    with_shapes(config, {}, vocab_size=None)  # before hours of preparing
                data = prepared(str(data), folder, tokenizer=next(iter(starts.values()), None))
                if world.is_main:
                    step = max(checkpoint.steps(folder), default=0)
                    verify(data, max_bytes=VERIFIED_BYTES, key=step)
            job = Job(data, folder, config, world, starts, deadline, milestones, prefix)
            if train_minutes is not None:
                job = replace(job, config=in_time(job, train_minutes))
            asked = "max_steps" if train_minutes is None else "train_minutes"
            for caution in cautions(job.config, asked) if world.is_main else ():
                say(caution)
            width = config.model.hidden_size
            if world.is_main and world.device.type == "cpu" and width > WIDEST_ON_CPU:
                say(f"note: hidden_size {width} is slow on a CPU. See `electrify recipes`")
            batch = given & {"train_batch_size", *SPLIT}
            if world.is_main and batch == {"per_device_train_batch_size"}:
                rows = job.config.train.train_batch_size
                say(f"note: train_batch_size is {rows}; per_device_train_batch_size only cuts it")
            if t.generator_steps:
                return two_stages(job)
            planned = plan(job)
            with claimed(planned):
                return train_run(planned)
    finally:
        dist.stop()


def two_stages(job: Job) -> Result:
    """Trains the generator as a run of its own in RUN/generator-stage, then does the run that
    starts from it (2003.10555 section 3.2). Both are ordinary runs: each resumes, and each refuses
    the folder of another recipe."""
    need(
        job.prefix is None, "a run of two stages starts from the generator of its first, no prefix"
    )
    stage = job.folder / GENERATOR_STAGE
    starts = dict(job.starts) | {GENERATOR: str(stage / DISCRIMINATOR)}
    if job.config.train.discriminator_start == "generator":
        starts[DISCRIMINATOR] = starts[GENERATOR]
    second = plan(replace(job, starts=starts))
    if second.earlier:  # its checkpoints hold the generator
        with claimed(second):
            return train_run(second)
    config = first_stage(second.job.config)
    first = plan(replace(job, folder=stage, config=config, starts={}, milestones=frozenset()))
    with claimed(second):
        updates = config.train.max_steps
        if job.world.is_main:
            say(f"first stage: {updates:,} updates of the generator alone, in {stage}")
        with claimed(first):
            result = train_run(first)
        summary = result.summary
        if summary.signalled:  # perhaps in its last update or save
            return replace(result, summary=replace(summary, finished=False), exported={})
        if not summary.finished:
            return result
        if job.world.is_main:
            say("second stage: the discriminator, against that generator")
        return train_run(second)


def first_stage(config: Recipe) -> Recipe:
    """The first of the two runs of `config`, whose warm-up ends with it at the latest.

    It has another seed: with the same seed, each text of the second stage would get the very masks
    with which the generator was trained.
    """
    stage, _ = stages_of(config)
    t = stage.train
    seed = int(hashed(t.seed, 1, 0, 0)) >> 1 & (1 << 62) - 1
    stage = override(stage, {"warmup_steps": min(t.warmup_steps, t.max_steps), "seed": seed})
    check(stage)
    return stage


def plan(job: Job) -> Planned:
    """Opens the corpus and fits the recipe to it, to the run that is there, and to the folders that
    it starts from. Raises UserError; writes nothing."""
    with dist.together():
        corpus = Corpus(job.data, "train")
        vocab_size = corpus.manifest.vocab_size
        earlier = facts_of(job.folder)
        config, micro_rows = split_batch(job.config, job.world.size)
        saved = earlier["shapes"] if earlier else {}
        config, generator = with_shapes(config, saved, vocab_size=vocab_size)
        if earlier:
            must_be_the_same(job.folder, earlier, config, corpus)
        else:
            for start in starts_of(config).values():
                must_know_the_words(start, corpus.folder / TOKENIZER)
        segments, seed = config.data.num_segments, config.train.seed
        loader = Loader(corpus, phases=phases_of(config), num_segments=segments, seed=seed)
    return Planned(replace(job, config=config), loader, micro_rows, generator, earlier)


def train_run(planned: Planned) -> Result:
    """Trains into a folder that is claimed, or continues the run that is there, and exports."""
    job, corpus = planned.job, planned.loader.corpus
    config, folder, world = job.config, job.folder, job.world
    with dist.together():
        found = checkpoint.newest(folder)
        need(
            found is not None or not planned.earlier,
            f"{folder} has checkpoints and none of them is whole",
            "choose another --output-dir, or remove them to begin anew",
        )
        if not planned.earlier and job.prefix:
            found = job.prefix, *checkpoint.load(job.prefix)
        tensors, state = found[1:] if found else ({}, {"step": None, "conditions": {}})
        step = state["step"]
    # Hosts may see one folder under several names.
    dist.same_across(f"{corpus.manifest.fingerprint} {step}", what="corpus and newest checkpoint")
    threads = threads_of(planned, state["conditions"].get("threads"))
    with computing_with(threads):
        run, built = assembled(planned, fresh=not tensors)
        facts = planned.earlier or all_facts(planned, built, threads, run)
        with dist.together():
            if world.is_main and not planned.earlier:
                begin(planned, facts)
                if job.prefix:
                    begin_log(folder, prefix=job.prefix.parent, step=step)
        if tensors:
            run.state.load(tensors, state, rank=world.rank)
            tensors.clear()  # they are a file's, which is to go when newer ones come
        if world.is_main:
            announce(run, state["conditions"], parameters=facts["parameters"])
        with dist.together():
            report_to = config.train.report_to
            log = MetricsLog(folder, resume_step=step, report_to=report_to, rank=world.rank)
        with log:
            summary = run.train(log)
    exported: dict[str, Path] = {}
    with dist.together():
        if summary.finished and world.is_main:
            whole = not any(map(dist.is_sharded, run.state.named.values()))
            exported = export_run(folder, built if whole else None, config=config, facts=facts)
    return Result(folder, summary, exported)


def assembled(planned: Planned, *, fresh: bool) -> tuple[Run, Built]:
    """The networks and the run that trains them. fresh: whether it begins at its starting
    weights."""
    job, config, corpus = planned.job, planned.job.config, planned.loader.corpus
    world = job.world
    with dist.together():
        built = starting_point(
            config, planned.generator, corpus, job.starts, fresh=fresh, main=world.is_main
        )
    dtype = torch.bfloat16 if config.train.bf16 else torch.float32
    words = corpus.manifest.vocab_size
    context = RunContext(
        world,
        job.folder,
        conditions={
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "world_size": world.size,
            "device": world.device.type,
        },
        deadline=job.deadline,
        peak=machine_peak(world.device, dtype) if world.is_main else math.inf,
        flops_before=first_stage_flops(config, vocab_size=words, convention="hardware"),
        milestones=job.milestones,
    )
    data, names = data_of(planned), discriminator_names(built)
    return Run(built.objective, config, data, context, discriminator=names), built


def data_of(planned: Planned) -> TrainingData:
    """The rows for training and for validation."""
    config, loader = planned.job.config, planned.loader
    d, o = config.data, config.objective
    held_out = Corpus(loader.corpus.folder, "valid")
    valid = None
    if held_out.num_tokens:
        valid = Rows(held_out, max_seq_length=d.max_seq_length, num_segments=d.num_segments)
    group = o.row.group_rows(o) if o.row.group_rows else 1
    entropy = unigram_entropy(loader.corpus, config.corruption)
    return TrainingData(loader, valid, planned.micro_rows, entropy, group)


# ------------------------------------------------------------------ whose folder it is


def must_be_free(folder: Path, resume: Resume) -> None:
    """Raises UserError if the folder already shows that the run cannot go there."""
    must_be_ours(folder, FACTS)
    begun = bool(checkpoint.steps(folder))
    if resume == "never" and (folder / FACTS).exists():
        raise UserError(
            f"{folder} holds another run",
            "choose another --output-dir, or continue it with --resume auto",
        )
    need(
        resume != "must" or begun or bool(checkpoint.steps(folder / GENERATOR_STAGE)),
        f"--resume must: {folder} has no checkpoint",
        "start the run with --resume auto",
    )
    if (folder / DISCRIMINATOR).exists() and not begun:
        raise UserError(
            f"{folder} holds a finished run whose checkpoints are gone",
            "choose another --output-dir",
        )


@contextmanager
def claimed(planned: Planned) -> Iterator[None]:
    """Holds the run's folder for this group of processes, and writes first what tells whose it
    is."""
    job = planned.job
    with ExitStack() as held:
        with dist.together():
            if job.world.is_main:
                held.enter_context(claim(job.folder, FACTS))
                if not planned.earlier:
                    write_facts(job.folder, identity_of(job.config, planned.loader.corpus))
        yield


def facts_of(folder: Path) -> dict[str, Any] | None:
    """run.json of the run that goes on in the folder; None if none does: without a checkpoint it
    begins anew."""
    return read_json(folder / FACTS) if checkpoint.steps(folder) else None


def decisive(config: Recipe) -> dict[str, Any]:
    """Every field that decides the numbers of a run, as JSON has it. For the folders that a run
    starts from, it says only whether there are any."""
    values = {n: v for n, v in values_of(config).items() if n not in FREE | SPLIT}
    # As pairs, because JSON does not keep the order of several.
    pairs = {n: list(values[n].items()) for n in ORDERED if len(values[n]) > 1}
    return json.loads(json.dumps(values | pairs | {n: bool(values[n]) for n in STARTS}))


def identity_of(config: Recipe, corpus: Corpus) -> dict[str, Any]:
    """What makes a run the same run."""
    return {
        "recipe": decisive(config),
        "starts": {name: content_of(start) for name, start in starts_of(config).items()},
        "data": corpus.manifest.fingerprint,
        "tokenizer_sha256": corpus.manifest.tokenizer_sha256,
    }


def must_be_the_same(
    folder: Path, facts: Mapping[str, Any], config: Recipe, corpus: Corpus
) -> None:
    """Raises UserError, naming what differs, if the run in the folder has another recipe or other
    data."""
    theirs, ours = facts["recipe"], decisive(config)
    differ = [name for name in {**ours, **theirs} if theirs.get(name) != ours.get(name)]
    # The objective first, and last what only one of the two has.
    differ.sort(key=lambda n: (n != "objective", n not in ours or n not in theirs))
    odd = [f"{n} {theirs.get(n)} there, {ours.get(n)} here" for n in differ]
    for name, start in starts_of(config).items():
        if not is_same(start, facts["starts"].get(name, start)):
            odd.append(f"--init-{name} {start} is not the one that it started from")
    m = corpus.manifest
    if facts["tokenizer_sha256"] != m.tokenizer_sha256:
        odd.append("it was trained with another tokenizer than DATA")
    elif facts["data"] != m.fingerprint:
        odd.append("it was trained with another corpus than DATA")
    if odd:
        more = f"; and {len(odd) - 3} more" if len(odd) > 3 else ""
        raise UserError(
            f"{folder} holds another run ({'; '.join(odd[:3])}{more})",
            "choose another --output-dir, or repeat its options and DATA to continue it",
        )


def all_facts(planned: Planned, built: Built, threads: Threads, run: Run) -> dict[str, Any]:
    """run.json: what the run is, and what it was made with and on."""
    job, corpus = planned.job, planned.loader.corpus
    m = corpus.manifest
    facts = identity_of(job.config, corpus) | {
        "machine": describe(job.world.device),
        "architecture": built.discriminator.architecture.name,
        "shapes": {name: asdict(model.encoder.shape) for name, model in built.exports.items()},
        "vocab_size": m.vocab_size,
        "special_ids": asdict(m.special_ids),
        "corpus": {"counts": m.counts, "sources": m.sources},
        "tokenizer_files": m.tokenizer_files | {"tokenizer.json": m.tokenizer_sha256},
        "threads": asdict(threads),
        "parameters": sum(p.numel() for p in run.state.named.values()),
        "unigram_entropy": run.data.unigram_entropy,
    }
    return json.loads(json.dumps(facts, sort_keys=True, default=str))  # as a later start reads them


def write_facts(folder: Path, facts: Mapping[str, Any]) -> None:
    write(folder / FACTS, json.dumps(facts, indent=1, sort_keys=True) + "\n")


def begin(planned: Planned, facts: Mapping[str, Any]) -> None:
    """Writes what a run has at its head: what ran, and enough to export without DATA."""
    job = planned.job
    write_facts(job.folder, facts)
    with written(job.folder / TOKENIZER) as part:
        part.mkdir()
        for name in facts["tokenizer_files"]:
            shutil.copyfile(planned.loader.corpus.folder / TOKENIZER / name, part / name)
    # Folders as paths relative to the run, so that config.yaml names none of this machine.
    near = {}
    for name in STARTS:
        start = os.path.realpath(os.path.expanduser(getattr(job.config.train, name) or ""))
        if getattr(job.config.train, name) and os.path.isdir(start):
            path = os.path.relpath(start, os.path.realpath(job.folder))
            near[name] = path if path.startswith("..") else f"./{path}"
    write(job.folder / CONFIG, dump(override(job.config, near)))


# ------------------------------------------------------------------ what it takes


def split_batch(config: Recipe, processes: int) -> tuple[Recipe, int]:
    """The recipe with its global batch decided, and the rows of one forward pass. Raises UserError
    if the batch cannot be split evenly, or if a split would separate rows that a loss compares."""
    config = with_batch(config, processes=processes)
    t, o = config.train, config.objective
    share, left = divmod(t.train_batch_size, processes)
    micro = t.per_device_train_batch_size or share // (t.gradient_accumulation_steps or 1)
    passes = t.gradient_accumulation_steps or share // max(1, micro)
    batches = {t.train_batch_size: not left and micro > 0 and share == passes * micro}
    for rows in t.batch_size_schedule:
        share, left = divmod(rows, processes)
        batches[rows] = not left and micro > 0 and share % min(micro, share) == 0
    for rows, whole in batches.items():
        need(
            whole,
            f"a batch of {rows} rows cannot be cut evenly into {processes} "
            f"process{'es' * (processes > 1)} with passes of {micro} rows",
            "choose --train-batch-size, --batch-size-schedule, --per-device-train-batch-size and "
            "--gradient-accumulation-steps that divide",
        )
    group = o.row.group_rows(o) if o.row.group_rows else 1
    cuts = [*(min(micro, rows // processes) for rows in batches), t.eval_rows]
    need(
        not any(rows % group for rows in cuts),
        f"objective {o.objective} compares {group} rows with each other, and passes of "
        f"{', '.join(map(str, cuts))} rows would cut such a group",
        "choose --train-batch-size, --batch-size-schedule, --per-device-train-batch-size and "
        f"--eval-rows that are multiples of {group}",
    )
    return config, micro


def threads_of(planned: Planned, before: int | None) -> Threads:
    """The threads with which this run computes, as many as before where it goes on; rank 0 reports
    how they were chosen."""
    job, config = planned.job, planned.job.config
    if before is None and (stage := facts_of(job.folder / GENERATOR_STAGE)):
        before = stage["threads"]["number"]
    threads = choose(
        config.train.threads,
        device=job.world.device,
        width=config.model.hidden_size,
        tokens=planned.micro_rows * config.data.max_seq_length,
        bf16=bool(config.train.bf16),
        earlier=before,
        processes=job.world.size,
    )
    if job.world.is_main and threads.text():
        say(threads.text())
    return threads


def announce(run: Run, then: Mapping[str, Any], *, parameters: int) -> None:
    """What a run says as it begins or continues. then: the conditions of the checkpoint from which
    it goes on."""
    now = run.context.conditions
    odd = [f"{k} {v} then, {now[k]} now" for k, v in then.items() if v != now[k]]
    if odd:
        say(
            f"warning: continuing under other conditions ({'; '.join(odd)}): the data is the same, "
            "the last bits may differ"
        )
    loader, steps = run.data.loader, run.config.max_steps
    rows = ", ".join(
        f"{s.num_rows:,} rows of {length} ({100 * s.fill_rate:.1f} % filled)"
        for length, s in loader.streams.items()
    )
    batches = ", then ".join(
        f"{p.batch_rows} x {p.row_length}" + f" from step {p.first:,}" * (p.first > 0)
        for p in loader.phases.all
    )
    say(
        f"{parameters / 1e6:.1f} M parameters, {rows}, batches of {batches}, {steps:,} steps = "
        f"{loader.epoch(steps):.1f} epochs"
        + (f", continuing after step {run.step:,}" if run.step else "")
    )
    if run.config.eval_steps and not run.data.validated(run.config.eval_rows, processes=1)[0]:
        say(f"warning: nothing is validated: {more_validation(loader.corpus.manifest)}")


# ------------------------------------------------------------------ --train-minutes

# Updates that are not counted: the first ones compile, and fill memory.
FIRST = 3
FEWEST = 5
MOST = 1000
LONGEST_S = 20.0
SLOW_S = 60.0  # after which a single update must do
SHARE = 0.05  # of the time at most is spent measuring
MARGIN = 0.96  # for checkpoints, the export, and a machine that is a little slower later on
# A validation has no backward pass, which costs twice as much as the forward pass.
FORWARD = 1 / 3
WARMUP = 0.1  # longest warm-up, as a share of the run


def in_time(job: Job, minutes: float) -> Recipe:
    """The recipe with as many updates as `minutes` of this machine hold, so that the schedule is
    complete when they end, and a warm-up of a tenth of them at most. The rate is measured with
    updates of the run itself, which are thrown away. A run that has begun keeps its number.

    Raises UserError for a time that is too short.
    """
    with dist.together():
        facts = facts_of(job.folder)
    if facts:
        length = {name: facts["recipe"][name] for name in LENGTHS}
        if job.world.is_main:
            say(f"a run that has begun keeps its {length['max_steps']:,} updates")
        return override(job.config, length)
    limit_s = min(LONGEST_S, SHARE * 60 * minutes)
    if job.world.is_main:
        say(f"measuring how many updates fit into {minutes:g} minutes, for about {limit_s:.0f} s")
    began = time.monotonic()
    per_slot, eval_rows = measured(job, limit_s=limit_s)
    spent = torch.tensor([time.monotonic() - began, per_slot], dtype=torch.float64)
    dist.sum_across([spent])
    took, per_slot = (spent / job.world.size).tolist()
    left = MARGIN * (60 * minutes - took)
    config = of_time(job.config, left, per_slot=per_slot, eval_rows=eval_rows)
    if config is None:
        raise UserError(
            f"train_minutes {minutes:g}: not even {FEWEST} updates fit into it on this machine",
            "give more minutes, or a smaller recipe",
        )
    for sentence in periods(config):
        raise UserError(f"train_minutes {minutes:g}: {sentence}. Give more minutes")
    if job.world.is_main:
        t = config.train
        text = f"{minutes:g} minutes hold {t.max_steps:,} updates, the first "
        say(f"{text}{t.warmup_steps:,} of them warm-up")
    return config


def with_shorter_warmup(config: Recipe, given: Collection[str], world: dist.World) -> Recipe:
    """The recipe with a warm-up of a tenth of the run where its own is as long as the run, and the
    user set only the length of the run."""
    t, shorter = config.train, {}
    for name in LENGTHS[1:]:
        if "max_steps" in given and name not in given and (getattr(t, name) or 0) >= t.max_steps:
            shorter[name] = int(WARMUP * t.max_steps)
            if world.is_main:
                say(f"{name} is {shorter[name]:,}, a tenth of the run, not {getattr(t, name):,}")
    return override(config, shorter)


def of_time(config: Recipe, seconds: float, *, per_slot: float, eval_rows: int) -> Recipe | None:
    """The recipe with the most updates whose slots, validations included, take `seconds`; None if
    these are fewer than five. per_slot, eval_rows: see `measured`."""

    def length(steps: int) -> Recipe:
        given = {name: getattr(config.train, name) for name in LENGTHS[1:]}
        warmups = {k: min(v, int(WARMUP * steps)) for k, v in given.items() if v is not None}
        return override(config, {"max_steps": steps} | warmups)

    def cost(steps: int) -> float:
        found = length(steps)
        every = found.train.eval_steps
        validations = 1 + (steps // every if every else 0)
        slots = phases_of(found).slots(steps)
        slots += FORWARD * validations * eval_rows * found.data.max_seq_length
        return slots * per_slot

    steps = bisect_right(range(1 << 40), seconds, lo=FEWEST, key=cost) - 1
    return None if steps < FEWEST else length(steps)


def measured(job: Job, *, limit_s: float) -> tuple[float, int]:
    """Trains for about `limit_s` seconds and writes nothing. Returns the seconds for one token of a
    batch, padding included, on average over the whole run, and the rows of one validation (the
    corpus may have fewer than the recipe asks for). If later parts of the run cost more than its
    beginning (longer rows, a head that joins later), their FLOPs say by how much."""
    longest = max(job.config.train.max_steps, MOST)
    planned = plan(replace(job, config=override(job.config, {"max_steps": longest})))
    with computing_with(threads_of(planned, None)):
        run, _ = assembled(planned, fresh=True)
        first = FIRST + (run.graphs is not None)  # the next one is captured
        began = start = time.monotonic()
        for batch in prefetch(run.batch, range(MOST)):
            run.update(batch)
            if run.world.device.type == "cuda":
                torch.cuda.synchronize(run.world.device)
            now = time.monotonic()
            if run.step == first:
                start = now
            enough = first + (FEWEST if now - began < SLOW_S else 1)
            if dist.any_across(run.step >= enough and now - began >= limit_s):
                break
        per_flop = (time.monotonic() - start) / (run.flops(run.step) - run.flops(first))
        run.give_back()
    whole = run.flops(longest) - run.flops(0)
    eval_rows, _ = run.data.validated(run.config.eval_rows, processes=job.world.size)
    return per_flop * whole / planned.loader.phases.slots(longest), eval_rows
