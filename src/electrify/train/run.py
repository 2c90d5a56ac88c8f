"""`electrify pretrain`: one run, or a generator and then the run against it, from the command to
the exported folders.

    RUN/run.json          what the run is (recipe, corpus) and what it was made with; written first
        config.yaml       the resolved recipe, for people, `export`, and to go on without options
        tokenizer/        a copy of the corpus's
        metrics.jsonl     log.py
        checkpoint-N/     checkpoint.py
        discriminator/    a Hugging Face folder of each network, at the end
        generator-stage/  the run that trains the generator first, where there are two stages

The class `Run`, which makes the updates, is in loop.py.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Literal

from ..architectures import architecture_named
from ..build import Built
from ..draws import hashed
from ..errors import UserError, must_have, need
from ..exporting.folder import export_run
from ..files import claim, must_be_ours, write, written
from ..methods import DISCRIMINATOR
from ..recipe import Recipe, dump, override, stages_of
from ..rules import cautions, check
from ..text.corpus import TOKENIZER, verify
from ..text.prepare import prepared
from ..text.report import NONE_HELD_OUT
from . import CONFIG, FACTS, GENERATOR_STAGE, WANDB, checkpoint, dist, machine
from .checkpoint import conditions_of
from .job import (
    SPLIT,
    WARMUPS,
    Job,
    TrainingData,
    assembled,
    identity_of,
    run_json_of,
    set_up,
    split_batch,
    threads_of,
)
from .length import auto, fitted, with_updates_for
from .log import MetricsLog, begin_log
from .loop import Result, Run
from .options import AUTO, Pretrain
from .start import config_in, starts_of

Resume = Literal["auto", "never", "must"]
VERIFIED_BYTES = 4 << 30  # of token shards, verified at every start in two or three seconds
WIDEST_ON_CPU = 128


# ------------------------------------------------------------------ the way of a run


def pretrain(
    data: str | Path,
    *,
    output_dir: str | Path,
    recipe: Recipe,
    resume: Resume = "auto",
    milestones: frozenset[int] = frozenset(),
    prefix: Path | None = None,
    train_minutes: float | None = None,
    given: Iterable[str] = (),
) -> Result:
    """Trains `recipe` on `data`, a prepared corpus or text that is prepared first, into the run
    folder `output_dir`; with `generator_steps`, it trains a generator first.

    Args:
        data: the prepared corpus, or a file or folder of text.
        output_dir: the run folder. The same command continues the run that is there.
        recipe: the recipe.
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
    t, folder = recipe.train, Path(output_dir)
    check(recipe, given)
    if train_minutes is not None and t.generator_steps:
        raise UserError("train_minutes is for runs of one stage, without generator_steps")
    if WANDB in t.report_to:
        must_have("report_to=wandb", WANDB, WANDB)
    deadline = None if t.max_minutes is None else time.monotonic() + 60 * t.max_minutes
    machine.keep_memory()
    with dist.joined(machine.pick_device(t.device), timeout_s=t.ddp_timeout) as world:
        with dist.together():
            must_be_usable(folder, resume)
            earlier = run_json_of(folder)
            others = [folder / GENERATOR_STAGE, *([prefix.parent] if prefix else [])]
            begun = earlier or next(filter(None, map(run_json_of, others)), {})
        recipe = machine.with_machine(recipe, world, begun.get("recipe", {}))
        with dist.together():
            recipe, micro_rows = split_batch(recipe, world.size)
            starts = list(starts_of(recipe).values())
            for start in [] if begun else starts:  # before hours of preparing
                config_in(start, recipe.model.architecture)
            start = next(iter(starts), None)
            data = prepared(str(data), folder, tokenizer=start)
            if world.is_main:
                step = max(checkpoint.steps(folder), default=0)
                verify(data, max_bytes=VERIFIED_BYTES, key=step)
        more: dict[str, Any] = {"milestones": milestones, "prefix": prefix, "deadline": deadline}
        job = Job(recipe, folder, world, micro_rows, data, earlier, **more)
        if train_minutes is not None:
            job = replace(job, recipe=with_updates_for(job, train_minutes))
            # A run that has begun keeps its warm-ups, too.
            given |= {"max_steps", *(WARMUPS if earlier else ())}
        job, found = set_up(replace(job, recipe=fitted(job.recipe, given, world)))
        for note in notes(job, given):
            world.say(note)
        return two_stages(job, found) if t.generator_steps else run_in_folder(job, found)


def pretrain_as(options: Pretrain) -> tuple[Result, Recipe]:
    """`pretrain` by the options of the command, with the recipe that `auto` means. Returns that
    recipe, too. Raises as `pretrain`."""
    data, run, given = options.data, Path(options.output_dir), set(options.changes)
    if options.recipe == AUTO:
        must_be_usable(run, options.resume)
        data, recipe = auto(options)
        given |= {"max_steps"}
    else:
        recipe = override(options.base, options.changes)
    result = pretrain(
        data,
        output_dir=run,
        recipe=recipe,
        resume=options.resume,
        train_minutes=options.train_minutes,
        given=given,
    )
    return result, recipe


def notes(job: Job, given: frozenset[str]) -> Iterator[str]:
    """What works and is probably not meant."""
    recipe = job.recipe
    yield from cautions(recipe)
    width = recipe.model.hidden_size
    if job.world.device.type == "cpu" and width > WIDEST_ON_CPU:
        yield f"note: hidden_size {width} is slow on a CPU. See `electrify recipes`"
    if given & {"train_batch_size", *SPLIT} == {"per_device_train_batch_size"}:
        rows = recipe.train.train_batch_size
        yield f"note: train_batch_size is {rows}; per_device_train_batch_size only cuts it"
    own = architecture_named(recipe.model.architecture, recipe.model.options)
    shape = {field.name for field in fields(own.shape_type)}
    idle = ", ".join(sorted(given & shape)) if recipe.train.init_discriminator else ""
    if idle:
        has = "have" if "," in idle else "has"
        yield f"note: {idle} {has} no effect, because init_discriminator sets the shape"


def two_stages(second: Job, data: TrainingData) -> Result:
    """Trains the generator as a run of its own in RUN/generator-stage, then does the run that
    starts from it (2003.10555 section 3.2). Both are ordinary runs: each resumes, and each refuses
    the folder of another recipe."""
    if second.earlier:  # its checkpoints hold the generator
        return run_in_folder(second, data)
    stage = second.folder / GENERATOR_STAGE
    with dist.together():
        earlier = run_json_of(stage)
    own = {"recipe": first_stage(second.recipe), "earlier": earlier, "milestones": frozenset()}
    first = set_up(replace(second, folder=stage, **own))
    with claimed(second, data):
        updates = second.recipe.train.generator_steps
        second.world.say(f"first stage: {updates:,} updates of the generator alone, in {stage}")
        result = run_in_folder(*first)
        if result.signalled or not result.finished:  # perhaps in its last update or save
            return replace(result, folder=second.folder, finished=False, exported={})
        second.world.say("second stage: the discriminator, against that generator")
        return train_run(second, data)


def first_stage(recipe: Recipe) -> Recipe:
    """The first of the two runs of `recipe`, whose warm-up ends with it at the latest.

    It has another seed: with the same seed, each text of the second stage would get the very masks
    with which the generator was trained.
    """
    stage, _ = stages_of(recipe)
    t = stage.train
    seed = int(hashed(t.seed, 1, 0, 0)) >> 1 & (1 << 62) - 1
    stage = override(stage, {"warmup_steps": min(t.warmup_steps, t.max_steps), "seed": seed})
    check(stage)
    return stage


def run_in_folder(job: Job, data: TrainingData) -> Result:
    """Holds the folder while it does the run."""
    with claimed(job, data):
        return train_run(job, data)


def train_run(job: Job, data: TrainingData) -> Result:
    """Trains into a folder that is claimed, or continues the run that is there, and exports."""
    recipe, folder, world = job.recipe, job.folder, job.world
    with dist.together():
        found = checkpoint.newest(folder)
        need(
            found is not None or not job.earlier,
            f"{folder} has checkpoints and none of them is whole",
            "choose another output_dir, or remove them to begin anew",
        )
        if not job.earlier and job.prefix:
            found = checkpoint.load(job.prefix)
        tensors, state = found or ({}, {"step": None, "conditions": {}})
        step = state["step"]
    # Hosts may see one folder under several names.
    fingerprint = data.corpus.manifest.fingerprint
    dist.same_across(f"{fingerprint} {step}", what="corpus and newest checkpoint")
    with machine.computing_with(threads_of(job, state["conditions"].get("threads"))):
        run, built = assembled(job, data, fresh=not tensors)
        facts = job.earlier or all_facts(run, built)
        with dist.together():
            if world.is_main and not job.earlier:
                begin(run, facts)
                if job.prefix:
                    begin_log(folder, prefix=job.prefix.parent, step=step)
        if tensors:
            run.state.load(tensors, state)
            tensors.clear()  # they are a file's, which is to go when newer ones come
        for line in announcement(run, state["conditions"], parameters=facts["parameters"]):
            world.say(line)
        with dist.together():
            log = MetricsLog(folder, recipe, resume_step=step, rank=world.rank)
        with log:
            result = run.train(log)
    with dist.together():
        if result.finished and world.is_main:
            whole = not any(map(dist.is_sharded, run.state.named.values()))
            exported = export_run(folder, built if whole else None, config=recipe, facts=facts)
            result = replace(result, exported=exported)
    return result


# ------------------------------------------------------------------ whose folder it is


def must_be_usable(folder: Path, resume: Resume) -> None:
    """Raises UserError if the folder already shows that the run cannot go there."""
    must_be_ours(folder, FACTS)
    begun = bool(checkpoint.steps(folder))
    need(
        resume != "never" or not (folder / FACTS).exists(),
        f"{folder} holds another run",
        "choose another output_dir, or continue it with resume=auto",
    )
    need(
        resume != "must" or begun or bool(checkpoint.steps(folder / GENERATOR_STAGE)),
        f"resume=must: {folder} has no checkpoint",
        "start the run with resume=auto",
    )
    need(
        begun or not (folder / DISCRIMINATOR).exists(),
        f"{folder} holds a finished run whose checkpoints are gone",
        "choose another output_dir",
    )


@contextmanager
def claimed(job: Job, data: TrainingData) -> Iterator[None]:
    """Holds the run's folder for this group of processes, and writes first what tells whose it is
    and how it goes on."""
    with ExitStack() as held:
        with dist.together():
            if job.world.is_main:
                held.enter_context(claim(job.folder, FACTS))
                if not job.earlier:
                    write_facts(job.folder, identity_of(job.recipe, data.corpus))
                    write_recipe(job)
        yield


def all_facts(run: Run, built: Built) -> dict[str, Any]:
    """run.json: what the run is, and what it was made with and on."""
    m = run.data.corpus.manifest
    facts = identity_of(run.job.recipe, run.data.corpus) | {
        "machine": machine.describe(run.world.device),
        "shapes": {name: asdict(model.encoder.shape) for name, model in built.exports.items()},
        "vocab_size": m.vocab_size,
        "special_ids": asdict(m.special_ids),
        "corpus": {"counts": m.counts, "sources": m.sources},
        "tokenizer_files": m.tokenizer_files | {"tokenizer.json": m.tokenizer_sha256},
        "parameters": sum(p.numel() for p in run.state.named.values()),
        "unigram_entropy": run.data.unigram_entropy,
    }
    return json.loads(json.dumps(facts, sort_keys=True, default=str))  # as a later start reads them


def write_facts(folder: Path, facts: Mapping[str, Any]) -> None:
    write(folder / FACTS, json.dumps(facts, indent=1, sort_keys=True) + "\n")


def write_recipe(job: Job) -> None:
    """config.yaml, which names no folder of this machine: folders are relative to the run."""
    near = {}
    for name, start in starts_of(job.recipe).items():
        if os.path.isdir(start):
            path = os.path.relpath(os.path.realpath(start), os.path.realpath(job.folder))
            near[f"init_{name}"] = path if path.startswith("..") else f"./{path}"
    write(job.folder / CONFIG, dump(override(job.recipe, near)))


def begin(run: Run, facts: Mapping[str, Any]) -> None:
    """Writes what a run has at its head: what ran, and enough to export without DATA."""
    job = run.job
    write_facts(job.folder, facts)
    with written(job.folder / TOKENIZER) as part:
        part.mkdir()
        for name in facts["tokenizer_files"]:
            shutil.copyfile(run.data.corpus.folder / TOKENIZER / name, part / name)


# ------------------------------------------------------------------ what it takes


def announcement(run: Run, then: Mapping[str, Any], *, parameters: int) -> Iterator[str]:
    """What a run says as it begins or continues. then: the conditions of the checkpoint from which
    it goes on."""
    now = conditions_of(run.world)
    odd = [f"{k} {v} then, {now[k]} now" for k, v in then.items() if v != now[k]]
    if odd:
        yield (
            f"warning: continuing under other conditions ({'; '.join(odd)}): the data is the same, "
            "the last bits may differ"
        )
    loader, steps = run.data.loader, run.settings.max_steps
    rows = ", ".join(
        f"{s.num_rows:,} rows of {length} ({100 * s.fill_rate:.1f} % filled)"
        for length, s in loader.streams.items()
    )
    batches = ", then ".join(
        f"{p.batch_rows} x {p.row_length}" + f" from step {p.first:,}" * (p.first > 0)
        for p in loader.phases.all
    )
    epochs = f"{steps:,} steps = {loader.epoch(steps):.1f} epochs"
    goes_on = f", continuing after step {run.step:,}" * (run.step > 0)
    yield f"{parameters / 1e6:.1f} M parameters, {rows}, batches of {batches}, {epochs}{goes_on}"
    if run.settings.eval_steps and not run.data.validated(run.settings.eval_rows):
        yield f"warning: nothing is validated: {NONE_HELD_OUT}"
