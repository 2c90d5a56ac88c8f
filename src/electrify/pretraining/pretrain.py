"""`electrify pretrain`: one run, or two stages."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

from ..config.check_lengths import check_minutes
from ..config.checks import cautions, check
from ..config.given import checked, must_be, path_of
from ..config.networks import KEPT
from ..config.pretrain import PretrainConfig, load_file, override
from ..config.schema import convert
from ..config.stages import stages_of
from ..draws import hashed
from ..errors import UserError, need
from ..export.starting_vocabulary import check_vocabulary
from ..flops.count import outline
from ..oldfiles.run_folder import CONFIG, GENERATOR_STAGE, numbered
from ..progress import say
from ..text.manifest import TOKENIZER
from ..text.shards import Corpus
from ..train import dist
from ..train.folder import Resume, find_checkpoint, has_begun, refuse, refuse_stages
from ..train.machine import keep_memory, pick_device, with_precision
from ..train.space import bytes_needed, require_space, sizes_of
from .running import Job, Result, plan, train_run
from .starting import from_folders
from .timed import in_time

# Runs share the process's threads, signals and groups of processes.
_ALONE = threading.Lock()


def pretrain(
    data: str | Path,
    *,
    output_dir: str | Path,
    config: PretrainConfig,
    resume: Resume = "auto",
    milestones: frozenset[int] = frozenset(),
    trunk: Path | None = None,
    train_minutes: float | None = None,
) -> Result:
    """Trains `config` on the prepared corpus `data` into the run folder `output_dir`; with
    `generator_steps`, it trains a generator first.

    resume: auto continues the newest complete checkpoint if there is one; must insists on one;
    never refuses a folder that holds a run. milestones: updates whose checkpoints are kept whatever
    `save_total_limit` says. trunk: the checkpoint of a longer run that is the same up to there,
    from which a new run starts (train/trunk.py). train_minutes: the time that the run is to take;
    `max_steps` is then as many updates as fit into it, measured first (timed.py).

    Raises UserError for every mistake of the user, before anything is written if possible, and
    Unfinished if another process of the run is lost.
    """
    must_be(config, PretrainConfig, "config", advice="; load_recipe(NAME) gives one")
    folders = path_of(data, "data"), path_of(output_dir, "output_dir")
    convert(resume, Resume, "resume")
    kept = frozenset(checked(milestones, tuple[int, ...], "milestones"))
    begins = None if trunk is None else path_of(trunk, "trunk")
    check(config)
    if train_minutes is not None:
        train_minutes = float(checked(train_minutes, float, "train_minutes"))
        check_minutes(config, train_minutes)
    if not _ALONE.acquire(blocking=False):
        raise UserError(
            "this process is already pre-training, in another thread; wait until it ends, or start "
            "another process"
        )
    try:
        return _pretrain(*folders, config, resume, kept, begins, train_minutes)
    finally:
        _ALONE.release()


def _pretrain(
    data: Path,
    output_dir: Path,
    config: PretrainConfig,
    resume: Resume,
    milestones: frozenset[int],
    trunk: Path | None,
    train_minutes: float | None,
) -> Result:
    """Does the run, or both stages, in the processes that belong to it."""
    t = config.train
    given = {"discriminator": t.init_discriminator, "generator": t.init_generator}
    starts = {name: start for name, start in given.items() if start}
    deadline = None if t.max_minutes is None else time.monotonic() + 60 * t.max_minutes
    keep_memory()
    world = dist.start(pick_device(t.device), timeout_s=t.ddp_timeout)
    job = Job(data, output_dir, config, resume, starts, world, deadline, milestones, trunk)
    try:
        with dist.companions():
            folders = [output_dir, output_dir / GENERATOR_STAGE, *([trunk.parent] if trunk else [])]
            with dist.together():
                begun = next((folder for folder in folders if has_begun(folder)), None)
                bf16 = load_file(begun / CONFIG, within=begun).train.bf16 if begun else None
            job = replace(job, config=with_precision(config, world, begun=bf16))
            if train_minutes is not None:
                with dist.together():
                    refuse(output_dir, resume)
                job = in_time(job, train_minutes)
            asked = "max_steps" if train_minutes is None else "train_minutes"
            for caution in cautions(job.config, asked) if world.is_main else ():
                say(caution)
            return two_stages(job) if t.generator_steps else train_run(job)
    finally:
        dist.stop()


def two_stages(job: Job) -> Result:
    """Trains the generator as a run of its own in RUN/generator-stage, then does the run that
    starts from it (2003.10555 section 3.2).

    Both are ordinary runs: each resumes, and each refuses the folder of another recipe. Problems of
    the second are reported before the first begins.
    """
    need(
        job.trunk is None,
        "a run of two stages (generator_steps) does not start from a checkpoint of another run, "
        "because its second stage starts from the generator of its first",
        "leave trunk out",
    )
    folder = job.folder
    world = job.world
    with dist.together():
        first, second = stages(job)
        begun = find_checkpoint(folder) is not None
        if not begun:
            refuse_stages(folder, job.resume)
            if "discriminator" in job.starts:
                check_vocabulary(job.starts["discriminator"], tokenizer=job.data / TOKENIZER)
            must_hold_both(first, second)
    if begun:  # a checkpoint of the second stage holds the generator
        return train_run(second)
    if world.is_main:
        say(
            f"first stage: {first.config.train.max_steps:,} updates of the generator alone, in "
            f"{first.folder}"
        )
    result = train_run(first)
    if result.summary.signalled:  # perhaps in its last update or save
        return replace(result, summary=replace(result.summary, finished=False), exported={})
    if not result.summary.finished:
        return result
    if world.is_main:
        say("second stage: the discriminator, against that generator")
    return train_run(replace(second, resume="auto"))


def stages(job: Job) -> tuple[Job, Job]:
    """The two runs of two stages."""
    config = from_folders(job.config, job.folder, Corpus(job.data, "train").manifest.vocab_size)
    folder = job.folder / GENERATOR_STAGE
    starts = job.starts | {"generator": str(folder / KEPT)}
    if config.train.discriminator_start == "generator":
        starts |= {KEPT: starts["generator"]}
    first = replace(
        job, folder=folder, config=first_stage(config), starts={}, milestones=frozenset()
    )
    return first, replace(job, config=config, starts=starts)


def must_hold_both(first: Job, second: Job) -> None:
    """Raises UserError for what would stop the second stage after the first was trained: its
    corpus, its batch, its memory, or the space for the checkpoints of both."""
    vocab_size = plan(second).corpus.manifest.vocab_size
    needed = 0
    for job in (first, second):
        networks = outline(job.config, vocab_size=vocab_size).objective
        step = max((found.step for found in numbered(job.folder)), default=0)
        sizes = sizes_of(networks.parameters())
        needed += bytes_needed(
            job.folder, job.config.train, **sizes, step=step, milestones=job.milestones
        )
    require_space(second.folder, needed)


def first_stage(config: PretrainConfig) -> PretrainConfig:
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
