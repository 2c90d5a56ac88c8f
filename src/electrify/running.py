"""One run: a recipe, a prepared corpus, and what to start from -> a trained run folder with the Hugging Face folders of its halves."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import faults
from .build import Built, Vocabulary, build, generator_shape, kept_shape
from .config.checks import LEARNED, check
from .config.pretrain import PretrainConfig, override
from .data.cooccurrence import word_vectors
from .data.loader import Loader, Rows
from .data.phases import phases_of
from .errors import UserError
from .export.hf import export_run
from .export.start import check_vocabulary, folder_shape, load_half
from .files.folders import aside
from .files.lock import lock
from .flops.count import first_stage_flops
from .model.encoder import Shape
from .progress import say
from .text.shards import Corpus, Manifest, verify_sample
from .text.words import word_edges
from .train import checkpoint, dist
from .train.folder import Resume, earlier_threads, find_checkpoint, fingerprint, header_lost, refuse, same_run, saved_shape, write_header
from .train.home import HEADER, TOKENIZER, Home
from .train.log import MetricsLog
from .train.loop import Run, Summary
from .train.memory import run_must_fit
from .train.peak import machine_peak
from .train.recover import resume
from .train.saved import must_go_on
from .train.sharding import is_sharded
from .train.threads import Threads, choose, computing_with


@dataclass(frozen=True)
class Result:
    """What a run left behind."""

    run: Path
    summary: Summary
    exported: dict[str, Path]
    """Hugging Face folders by half; empty where the run was stopped before its end."""


VERIFIED_BYTES = 4 << 30  # of token shards at every start: two or three seconds
Starts = dict[str, str]  # half -> Hugging Face folder or Hub id that it starts from


def train_run(
    data: Path, *, output_dir: Path, config: PretrainConfig, resume: Resume, starts: Starts, world: dist.World, deadline: float | None
) -> Result:
    """Trains `config` into `output_dir`, or continues what is there. deadline: on the clock of time.monotonic(); after it the run saves and stops.

    Raises UserError for every mistake of the user, before anything is written where that is possible.
    """
    corpus = Corpus(data, "train")
    config, micro_rows = split_batch(from_folders(config, output_dir, corpus.manifest.vocab_size), world.size)
    shapes = shapes_of(config, output_dir, corpus.manifest.vocab_size)
    run_must_fit(config, *shapes, rows=micro_rows, world=world)
    loader = Loader(corpus, phases=phases_of(config), num_segments=config.data.num_segments, seed=config.train.seed)
    refuse(output_dir, resume)
    with ExitStack() as held:
        loaded = claim(held, output_dir, config, corpus, world)
        threads = held.enter_context(computing_with(threads_of(config, micro_rows, output_dir, loaded, world)))
        built = starting_point(config, shapes[1], corpus, starts, fresh=loaded is None, counts=world.rank == 0)
        run = Run(
            built.objective,
            config.train,
            weights=config.objective.term_weights,
            kept=kept_names(built),
            loader=loader,
            valid=held_out(data, config),
            folder=output_dir,
            world=world,
            micro_rows=micro_rows,
            fingerprint=fingerprint(corpus.manifest, world),
            unigram_entropy=unigram_entropy(corpus),
            peak=machine_peak(world.device, torch.bfloat16 if config.train.bf16 else torch.float32) if world.is_main else math.inf,
            flops_before=first_stage_flops(config, built, convention="hardware"),
            deadline=deadline,
        )
        faults.at("build")
        begin(run, built, config, corpus.manifest, loaded, tokenizer=data / "tokenizer", threads=threads)
        if world.is_main:
            run.home = held.enter_context(Home(output_dir))
        with MetricsLog(output_dir, resume_step=run.step if loaded else None, report_to=config.train.report_to, rank=world.rank) as log:
            summary = run.train(log)
        in_memory = None if any(map(is_sharded, run.named.values())) else built
        exported = export_run(output_dir, built=in_memory) if summary.finished and world.rank == 0 else {}
        dist.barrier()
    return Result(output_dir, summary, exported)


Loaded = tuple[dict[str, dict[str, Tensor]], dict[str, Any]]  # tensors and state of a checkpoint


def claim(held: ExitStack, folder: Path, config: PretrainConfig, corpus: Corpus, world: dist.World) -> Loaded | None:
    """Locks the run folder as long as `held` and returns what to continue from, if anything. A mistake that one rank finds is raised on all."""
    manifest = corpus.manifest
    with dist.together():
        if world.rank == 0:
            held.enter_context(lock(folder, keep=True))
        found = find_checkpoint(folder)
        loaded = checkpoint.load(found.path) if found else None
        if found and loaded:
            must_go_on(found.path, *loaded)
            same_run(folder, config, manifest, loaded[1]["fingerprint"])
        if world.rank == 0:
            verify_sample(corpus.folder, max_bytes=VERIFIED_BYTES, key=loaded[1]["step"] if loaded else 0)
    dist.same_across(f"{manifest.fingerprint} {found}", what="prepared corpus and newest checkpoint")
    return loaded


def threads_of(config: PretrainConfig, micro_rows: int, folder: Path, loaded: Loaded | None, world: dist.World) -> Threads:
    """The threads that this run computes with; rank 0 says what was found out about them."""
    threads = choose(
        config.train.threads,
        device=world.device,
        width=config.model.hidden_size,
        tokens=micro_rows * config.data.max_seq_length,
        bf16=config.train.bf16,
        earlier=earlier_threads(folder, loaded[1]["fingerprint"] if loaded else None),
        processes=world.size,
    )
    if world.is_main and threads.text():
        say(threads.text())
    return threads


def begin(run: Run, built: Built, config: PretrainConfig, manifest: Manifest, loaded: Loaded | None, *, tokenizer: Path, threads: Threads) -> None:
    """Parameters from the checkpoint or the header of a new run, and the line that says what will be trained."""
    parameters = sum(p.numel() for p in run.named.values())
    saves = -(-config.train.max_steps // config.train.save_steps)
    copies = min(config.train.save_total_limit or 10, saves) + 1
    checkpoint.require_space(run.folder, 12 * parameters * copies)  # float32 parameters and two moments, in each kept checkpoint and the next
    lost = header_lost(run.folder, manifest, tokenizer=tokenizer) if loaded else [*HEADER, TOKENIZER]
    if lost and run.world.rank == 0:
        for name in lost if loaded else ():
            aside(run.folder / name)
        write_header(run, config, manifest, parameters, tokenizer=tokenizer, built=built, lost=lost, threads=threads)
    if loaded:
        resume(run, *loaded)
        if lost and run.world.rank == 0:
            say(f"warning: {run.folder} had lost {', '.join(lost)}, or it was changed: written again, and what stood there is kept")
        odd = [f"{k} {v} then, {run.fingerprint.get(k)} now" for k, v in loaded[1]["fingerprint"].items() if v != run.fingerprint.get(k)]
        if odd and run.world.rank == 0:
            say(f"warning: continuing under other conditions ({'; '.join(odd)}): the data is the same, the last bits may differ")
    if run.world.rank == 0:
        announce(run, parameters, run.loader)


def held_out(data: Path, config: PretrainConfig) -> Rows | None:
    """The rows that are validated on; None where the corpus has no valid split."""
    valid = Corpus(data, "valid")
    return Rows(valid, max_seq_length=config.data.max_seq_length, num_segments=config.data.num_segments) if valid.num_documents else None


def split_batch(config: PretrainConfig, world_size: int) -> tuple[PretrainConfig, int]:
    """The recipe with its global batch decided, and the rows of one forward pass. Raises UserError where the batch cannot be cut evenly."""
    t = config.train
    if t.per_device_train_batch_size and t.gradient_accumulation_steps:
        size = t.per_device_train_batch_size * t.gradient_accumulation_steps * world_size
        config = override(config, {"train_batch_size": size})
        return config, t.per_device_train_batch_size
    share, left = divmod(t.train_batch_size, world_size)
    micro = t.per_device_train_batch_size or share // (t.gradient_accumulation_steps or 1)
    if left or not micro or share % micro or share // micro != (t.gradient_accumulation_steps or share // micro):
        passes = f"{t.gradient_accumulation_steps} passes each" if t.gradient_accumulation_steps else f"passes of {micro} rows"
        raise UserError(
            f"a batch of {t.train_batch_size} rows cannot be cut evenly into {world_size} process{'es' * (world_size > 1)} with {passes}; "
            f"choose --train-batch-size, --per-device-train-batch-size and --gradient-accumulation-steps that divide"
        )
    for rows in t.batch_size_schedule:
        share, left = divmod(rows, world_size)
        if left or share % min(micro, share):
            raise UserError(
                f"batch_size_schedule: a batch of {rows} rows cannot be cut evenly into {world_size} process{'es' * (world_size > 1)} with passes "
                f"of {micro} rows; choose one that divides"
            )
    return config, micro


def from_folders(config: PretrainConfig, run: Path, vocab_size: int) -> PretrainConfig:
    """The recipe with the kept encoder's shape taken from the folder that it starts from."""
    start = config.train.init_discriminator
    if not start:
        return config
    shape = saved_shape(run, "discriminator") or folder_shape(start, vocab_size=vocab_size)
    own = {k: getattr(shape, k) for k in ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "embedding_size")}
    config = override(config, own | {"max_position_embeddings": shape.max_position_embeddings})
    # Again, for the folder has decided the shape. Where another one decides the generator's, generator_size does not count.
    check(override(config, {"generator_size": 1.0}) if config.train.init_generator else config)
    return config


def vocabulary_of(corpus: Corpus, config: PretrainConfig) -> Vocabulary:
    """What corruption reads of the corpus and of its tokenizer."""
    m = corpus.manifest
    edges = word_edges(corpus.folder / "tokenizer") if config.corruption.mask_unit == "word" else None
    return Vocabulary(m.vocab_size, m.special_ids, edges=edges, counts_V=torch.from_numpy(corpus.unigram()))


def shapes_of(config: PretrainConfig, run: Path, vocab_size: int) -> tuple[Shape, Shape | None]:
    """The kept encoder's shape, and that of the learned generator or of a tower: the folder's that it starts from, else the recipe's."""
    kept, start = kept_shape(config.model, vocab_size), config.train.init_generator
    if start:
        shape = saved_shape(run, "generator") or folder_shape(start, vocab_size=vocab_size)
        longest = max(phases_of(config).row_lengths)
        if shape.max_position_embeddings < longest:
            positions = f"the {shape.max_position_embeddings} positions of {start}"
            raise UserError(f"rows of {longest} tokens (max_seq_length, seq_length_schedule) exceed {positions}")
        return kept, shape
    return kept, generator_shape(config.model, vocab_size) if config.corruption.corruptor in LEARNED else None


def starting_point(config: PretrainConfig, generator: Shape | None, corpus: Corpus, starts: Starts, *, fresh: bool, counts: bool) -> Built:
    """The objective with its initial values: the seed's, then the corpus's, then those of the folders it starts from.

    counts: whether this rank reads the corpus for the initial words. One does; the others receive its values before the first step.
    """
    vectors = cache(partial(word_vectors, corpus, seed=config.train.seed)) if fresh and counts else None
    built = build(config, vocabulary_of(corpus, config), generator=generator, vectors=vectors)
    if fresh:
        # A disentangled table is a difference to the generator's, which must be there first.
        order = ("generator", "discriminator") if config.model.tie == "gdes" else ("discriminator", "generator")
        for half in (h for h in order if h in starts):
            start = starts[half]
            if half not in built.halves:
                raise UserError(f"--init-{half} {start}: the objective {config.objective.objective} has no {half}")
            check_vocabulary(start, tokenizer=corpus.folder / "tokenizer")
            first = built.halves["discriminator"] if half == "generator" and "discriminator" in starts else None
            for line in load_half(built.halves[half], start, what=half, given=first):
                say(line)
    return built


def kept_names(built: Built) -> set[str]:
    """Parameters that are the kept encoder's, its heads' included; what only the generator has takes the generator's learning rate."""
    half = built.halves["discriminator"]
    shared = {id(p) for part in (half.encoder, half.head) for p in part.parameters()}
    generators = ("corruptor.", "baseline_head.")  # the baseline reads the generator's states
    return {n for n, p in built.objective.named_parameters(remove_duplicate=True) if id(p) in shared or not n.startswith(generators)}


def unigram_entropy(corpus: Corpus) -> float:
    """Nats: the loss of the best model that sees no context."""
    counts = corpus.unigram().astype(np.float64)
    p = counts[counts > 0] / max(1.0, counts.sum())
    return float(-(p * np.log(p)).sum())


def announce(run: Run, parameters: int, loader: Loader) -> None:
    epochs, phases = loader.epoch(run.config.max_steps), loader.phases.all
    rows = ", ".join(f"{s.num_rows:,} rows of {length} ({100 * s.fill_rate:.1f} % filled)" for length, s in loader.streams.items())
    batch = f"batch {phases[0].batch_rows} rows"
    if len(phases) > 1:
        batch = "batches of " + ", then ".join(f"{p.batch_rows} x {p.row_length}" + f" from step {p.first:,}" * (p.first > 0) for p in phases)
    say(
        f"{parameters / 1e6:.1f} M parameters, {rows}, {batch}, {run.config.max_steps:,} steps = {epochs:.1f} epochs"
        + (f", continuing after step {run.step:,}" if run.step else "")
    )
    if run.config.eval_steps and run.valid is None:
        say("warning: the corpus has no valid split, so nothing is validated; prepare it with --valid-fraction 0.01")
