"""`electrify pretrain`: one run, or two stages; DATA is prepared first where it is text."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from .config.checks import cautions, check
from .config.pretrain import PretrainConfig, override
from .draws import hashed
from .export.start import check_vocabulary
from .progress import say
from .running import Result, Starts, from_folders, train_run
from .text.given import prepared as prepared
from .text.shards import Corpus
from .train import dist
from .train.allocator import keep_memory
from .train.device import pick_device
from .train.folder import GENERATOR_STAGE, Resume, find_checkpoint, refuse


def pretrain(data: Path, *, output_dir: Path, config: PretrainConfig, resume: Resume = "auto") -> Result:
    """Trains `config` on the prepared corpus `data` into the run folder `output_dir`; with `generator_steps`, a generator before that.

    resume: auto continues the newest complete checkpoint if there is one; must insists on one; never refuses a folder that holds a run.
    Raises UserError for every mistake of the user, before anything is written where that is possible, and Unfinished where another process of
    the run is lost.
    """
    check(config)
    t = config.train
    starts = {half: start for half, start in (("discriminator", t.init_discriminator), ("generator", t.init_generator)) if start}
    deadline = None if t.max_minutes is None else time.monotonic() + 60 * t.max_minutes
    keep_memory()
    world = dist.start(pick_device(t.device), timeout_s=t.ddp_timeout)
    stages = two_stages if t.generator_steps else train_run
    for caution in cautions(config) if world.is_main else ():
        say(caution)
    try:
        with dist.companions():
            return stages(data, output_dir=output_dir, config=config, resume=resume, starts=starts, world=world, deadline=deadline)
    finally:
        dist.stop()


def two_stages(
    data: Path, *, output_dir: Path, config: PretrainConfig, resume: Resume, starts: Starts, world: dist.World, deadline: float | None
) -> Result:
    """The generator as a run of its own in RUN/generator-stage, then the run that starts from it (2003.10555 section 3.2).

    Both are ordinary runs: each resumes, and each refuses the folder of another recipe. What is wrong with the second is said before the first.
    """
    config = from_folders(config, output_dir, Corpus(data, "train").manifest.vocab_size)
    if "discriminator" in starts:
        check_vocabulary(starts["discriminator"], tokenizer=data / "tokenizer")
    first = output_dir / GENERATOR_STAGE
    starts = starts | {"generator": str(first / "discriminator")}
    if config.train.discriminator_start == "generator":
        starts |= {"discriminator": starts["generator"]}
    if find_checkpoint(output_dir) is None:  # a checkpoint of the second stage holds the generator
        waiting = resume == "must" and any(first.glob("checkpoint-*"))
        refuse(output_dir, "auto" if waiting else resume)
        if world.is_main:
            say(f"first stage: {config.train.generator_steps:,} updates of the generator alone, in {first}")
        stage = generator_stage(config)
        result = train_run(data, output_dir=first, config=stage, resume=resume, starts={}, world=world, deadline=deadline)
        if not result.summary.finished:
            return result
        if world.is_main:
            say("second stage: the discriminator, against that generator")
        resume = "auto"
    return train_run(data, output_dir=output_dir, config=config, resume=resume, starts=starts, world=world, deadline=deadline)


def generator_stage(config: PretrainConfig) -> PretrainConfig:
    """The first stage: the generator of `config` as a masked language model of its own.

    Its seed is another one: with the same, each text of the second stage would come with the very masks that the generator was trained on.
    """
    t = config.train
    fields: dict[str, Any] = config.model.generator_numbers() | {
        "corruptor": "mask",
        "clean_rate": 0.0,
        "generator_training": "joint",
        "objective": "mlm",
        "max_steps": t.generator_steps,
        "generator_steps": 0,
        "discriminator_start": "generator",
        "learning_rate": t.generator_learning_rate or t.learning_rate,
        "generator_learning_rate": None,
        "temperature": 1.0,
        "temperature_end": None,
        "disallow_correct": False,
        "init_discriminator": None,
        "warmup_steps": min(t.warmup_steps, t.generator_steps),
        "seed": int(hashed(t.seed, 1, 0, 0)) >> 1 & (1 << 62) - 1,
    }
    fields |= dict.fromkeys("generator_" + k for k in config.model.generator_numbers())
    stage = override(config, fields)
    check(stage)
    return stage
