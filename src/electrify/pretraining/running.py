"""One run: open the corpus, claim the folder, build, continue or begin, train, export."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from ..build import Built
from ..config.pretrain import PretrainConfig
from ..data.loader import Loader, Rows
from ..data.phases import phases_of
from ..export.hf import export_run
from ..flops.count import first_stage_flops
from ..model.shape import Shape
from ..oldfiles.folders import aside
from ..oldfiles.run_folder import HEADER, TOKENIZER
from ..progress import say
from ..text.shards import Corpus
from ..train import dist
from ..train.claim import Loaded, claim
from ..train.context import RunContext, TrainingData
from ..train.decisive import decisive
from ..train.dist import is_sharded
from ..train.folder import Resume, earlier_threads, fingerprint, refuse
from ..train.header import header_lost, write_header
from ..train.home import Home
from ..train.log import MetricsLog, begin_log
from ..train.loop import Run, Summary
from ..train.machine import Threads, choose, computing_with, run_must_fit
from ..train.meter import machine_peak
from ..train.space import bytes_needed, require_space, sizes_of
from .announcing import announce, changed
from .batches import split_batch
from .frequencies import unigram_entropy
from .objective_checks import must_be_whole
from .starting import Starts, from_folders, kept_names, shapes_of, starting_point


@dataclass(frozen=True)
class Job:
    """Describes a run that is to be done."""

    data: Path
    """A prepared corpus."""
    folder: Path
    config: PretrainConfig
    resume: Resume
    starts: Starts
    world: dist.World
    deadline: float | None
    """The time, on the clock of time.monotonic(), after which the run saves and stops."""
    milestones: frozenset[int] = frozenset()
    """Updates whose checkpoints are kept, so that shorter runs can start from them."""
    trunk: Path | None = None
    """The checkpoint of a longer run from which a new run starts."""


@dataclass(frozen=True)
class Result:
    """The result of a run."""

    run: Path
    summary: Summary
    exported: dict[str, Path]
    """The Hugging Face folder of each network; empty if the run was stopped before its end."""


@dataclass(frozen=True)
class Planned:
    """What a job comes to with this corpus and these processes."""

    corpus: Corpus
    config: PretrainConfig
    micro_rows: int
    shapes: tuple[Shape, Shape | None]
    """The shapes of the kept encoder, and of the generator."""
    loader: Loader


def train_run(job: Job) -> Result:
    """Trains the job's recipe into its folder, or continues the run that is there.

    Raises UserError for every mistake of the user, before anything is written if possible.
    """
    folder = job.folder
    world = job.world
    with dist.together():
        planned = plan(job)
        refuse(folder, job.resume)
    config = planned.config
    with ExitStack() as held:
        loaded = claim(held, folder, config, planned.corpus, world, trunk=job.trunk)
        threads = held.enter_context(
            computing_with(threads_of(config, planned.micro_rows, folder, loaded, world))
        )
        run, built = assembled(job, planned, fresh=loaded is None)
        with dist.together():
            begin(run, built, config, loaded, threads)
        if loaded:
            loaded.tensors.clear()  # they are a file's, which is to go when newer ones come
        if loaded and loaded.of_trunk and world.is_main:
            begin_log(folder, trunk=loaded.path.parent, step=run.step)
        if world.is_main:
            run.saver.home = held.enter_context(Home(folder))
        summary, exported = trained(run, built, resumed=loaded is not None)
    return Result(folder, summary, exported)


def plan(job: Job) -> Planned:
    """Opens the corpus and fits the recipe to it and to the memory. Raises UserError."""
    corpus = Corpus(job.data, "train")
    vocab_size = corpus.manifest.vocab_size
    recipe = from_folders(job.config, job.folder, vocab_size)
    config, micro_rows = split_batch(recipe, job.world.size)
    shapes = shapes_of(config, job.folder, vocab_size)
    run_must_fit(config, shapes[0], rows=micro_rows, world=job.world)
    segments, seed = config.data.num_segments, config.train.seed
    loader = Loader(corpus, phases=phases_of(config), num_segments=segments, seed=seed)
    must_be_whole(config, loader, shapes[1])
    return Planned(corpus, config, micro_rows, shapes, loader)


def assembled(job: Job, planned: Planned, *, fresh: bool) -> tuple[Run, Built]:
    """The networks and the run that trains them. fresh: whether it begins at its starting
    weights."""
    config = planned.config
    shape, corpus = planned.shapes[1], planned.corpus
    with dist.together():
        built = starting_point(
            config, shape, corpus, job.starts, fresh=fresh, main=job.world.is_main
        )
    run = Run(
        built.objective,
        config,
        opened(planned.loader, config, planned.micro_rows),
        context_of(job, config, planned.corpus),
        kept=kept_names(built),
    )
    return run, built


def trained(run: Run, built: Built, *, resumed: bool) -> tuple[Summary, dict[str, Path]]:
    """Trains to the end, or to a stop, and exports what is finished."""
    folder = run.context.folder
    rank = run.world.rank
    trackers = run.config.report_to
    step = run.step if resumed else None
    with dist.together():
        opened_log = MetricsLog(folder, resume_step=step, report_to=trackers, rank=rank)
    with opened_log as log:
        summary = run.train(log)
    in_memory = None if any(map(is_sharded, run.state.named.values())) else built
    with dist.together():
        exported = export_run(folder, built=in_memory) if summary.finished and rank == 0 else {}
    return summary, exported


def opened(loader: Loader, config: PretrainConfig, micro_rows: int) -> TrainingData:
    """The rows for training and for validation."""
    corpus, d = loader.corpus, config.data
    held_out = Corpus(corpus.folder, "valid")
    valid = None
    if held_out.num_tokens:
        valid = Rows(held_out, max_seq_length=d.max_seq_length, num_segments=d.num_segments)
    o = config.objective
    group = o.row.group_rows(o.term_weights, o.options) if o.row.group_rows else 1
    return TrainingData(
        loader, valid, micro_rows, unigram_entropy(corpus, config.corruption), group
    )


def context_of(job: Job, config: PretrainConfig, corpus: Corpus) -> RunContext:
    """Where the run runs."""
    dtype = torch.bfloat16 if config.train.bf16 else torch.float32
    return RunContext(
        job.world,
        job.folder,
        fingerprint=fingerprint(corpus.manifest, job.world, config),
        recipe=decisive(config),
        deadline=job.deadline,
        peak=machine_peak(job.world.device, dtype) if job.world.is_main else math.inf,
        flops_before=first_stage_flops(
            config, vocab_size=corpus.manifest.vocab_size, convention="hardware"
        ),
        milestones=job.milestones,
    )


def threads_of(
    config: PretrainConfig, micro_rows: int, folder: Path, loaded: Loaded | None, world: dist.World
) -> Threads:
    """The threads with which this run computes; rank 0 reports how they were chosen."""
    threads = choose(
        config.train.threads,
        device=world.device,
        width=config.model.hidden_size,
        tokens=micro_rows * config.data.max_seq_length,
        bf16=bool(config.train.bf16),
        earlier=earlier_threads(folder, loaded.state["fingerprint"] if loaded else None),
        processes=world.size,
    )
    if world.is_main and threads.text():
        say(threads.text())
    return threads


def begin(
    run: Run, built: Built, config: PretrainConfig, loaded: Loaded | None, threads: Threads
) -> None:
    """Loads the parameters from the checkpoint, or writes the header of a new run; then prints the
    line that says what will be trained."""
    folder = run.context.folder
    world = run.world
    corpus = run.data.loader.corpus
    step = loaded.state["step"] if loaded else 0
    sizes = sizes_of(run.state.named.values())
    kept = run.context.milestones
    require_space(folder, bytes_needed(folder, config.train, **sizes, step=step, milestones=kept))
    parameters = sizes["parameters"]
    tokenizer = corpus.folder / TOKENIZER
    begun = loaded is not None and not loaded.of_trunk
    lost = [*HEADER, TOKENIZER]
    if begun and world.is_main:  # which may be about to write it again
        lost = header_lost(folder, config, corpus.manifest, tokenizer=tokenizer)
    if lost and world.rank == 0:
        for name in lost if begun else ():
            aside(folder / name)
        write_header(
            folder,
            config,
            corpus.manifest,
            parameters,
            tokenizer=tokenizer,
            built=built,
            lost=lost,
            threads=threads,
            device=world.device,
            unigram_entropy=run.data.unigram_entropy,
        )
    if loaded:
        run.state.load(loaded.tensors, loaded.state, folder=folder, rank=world.rank)
    if world.rank == 0:
        for warning in changed(run, loaded, lost if begun else []):
            say(f"warning: {warning}")
        announce(run, parameters)
