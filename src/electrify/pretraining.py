"""`electrify pretrain`: a prepared corpus and a recipe -> a trained run folder with Hugging Face folders of its halves."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from .build import Built, build
from .config.pretrain import PretrainConfig, check, dump, override, parse
from .data.loader import Loader, Rows
from .errors import UserError
from .export.hf import export_run
from .export.start import check_vocabulary, folder_shape, load_half
from .model.encoder import Shape
from .progress import say
from .text.shards import MANIFEST, Corpus, Manifest
from .train import checkpoint, dist
from .train.allocator import keep_memory
from .train.device import describe, pick_device
from .train.log import MetricsLog
from .train.loop import Run, Summary

Resume = Literal["auto", "never", "must"]
# Fields that may differ when a run continues: they move no number that training computes.
FREE_FIELDS = {"max_minutes", "logging_steps", "save_steps", "save_total_limit", "eval_steps", "eval_rows", "report_to", "device"}
SPLIT_FIELDS = {"per_device_train_batch_size", "gradient_accumulation_steps"}  # how a batch is cut: moves sums by rounding only


@dataclass(frozen=True)
class Result:
    """What a run left behind."""

    run: Path
    summary: Summary
    exported: dict[str, Path]
    """Hugging Face folders by half; empty where the run was stopped before its end."""


def pretrain(data: Path, *, output_dir: Path, config: PretrainConfig, resume: Resume = "auto") -> Result:
    """Trains `config` on the prepared corpus `data` into the run folder `output_dir`.

    resume: auto continues the newest complete checkpoint if there is one; must insists on one; never refuses a folder that holds a run.
    Raises UserError for every mistake of the user, before anything is written where that is possible.
    """
    check(config)
    keep_memory()
    corpus, valid = Corpus(data, "train"), Corpus(data, "valid")
    world = dist.start(pick_device(config.train.device))
    try:
        config, micro_rows = split_batch(from_folders(config, output_dir, corpus.manifest.vocab_size), world.size)
        # Again, for a folder may have decided the shape. Where one decides the generator's, generator_size does not count.
        check(override(config, {"generator_size": 1.0}) if config.train.init_generator else config)
        rows = {"max_seq_length": config.data.max_seq_length, "num_segments": config.data.num_segments}
        loader = Loader(corpus, batch_rows=config.train.train_batch_size, seed=config.train.seed, **rows)
        refuse(output_dir, resume)
        with ExitStack() as held:
            loaded = claim(held, output_dir, config, corpus.manifest, world)
            built = starting_point(config, output_dir, corpus.manifest, fresh=loaded is None, tokenizer=data / "tokenizer")
            run = Run(
                built.objective,
                config.train,
                weights=config.objective.term_weights,
                kept=kept_names(built),
                loader=loader,
                valid=Rows(valid, **rows) if valid.num_documents else None,
                folder=output_dir,
                world=world,
                micro_rows=micro_rows,
                fingerprint=fingerprint(corpus.manifest, world),
                unigram_entropy=unigram_entropy(corpus),
            )
            begin(run, built, config, corpus.manifest, loaded, tokenizer=data / "tokenizer")
            with MetricsLog(output_dir, resume_step=run.step if loaded else None, report_to=config.train.report_to, rank=world.rank) as log:
                summary = run.train(log)
            exported = export_run(output_dir, built=built) if summary.finished and world.rank == 0 else {}
            dist.barrier()
        return Result(output_dir, summary, exported)
    finally:
        dist.stop()


Loaded = tuple[dict[str, dict[str, Tensor]], dict[str, Any]]  # tensors and state of a checkpoint


def claim(held: ExitStack, folder: Path, config: PretrainConfig, manifest: Manifest, world: dist.World) -> Loaded | None:
    """Locks the run folder as long as `held` and returns what to continue from, if anything. A mistake that one rank finds is raised on all."""
    with dist.together():
        if world.rank == 0:
            held.enter_context(cleared(folder))
            held.enter_context(checkpoint.lock(folder))
        found = find_checkpoint(folder)
        loaded = checkpoint.load(found.path) if found else None
        if loaded:
            same_run(folder, config, manifest, loaded[1]["fingerprint"])
    dist.same_across(f"{manifest.fingerprint} {found}", what="prepared corpus and newest checkpoint")
    return loaded


def begin(run: Run, built: Built, config: PretrainConfig, manifest: Manifest, loaded: Loaded | None, *, tokenizer: Path) -> None:
    """Parameters from the checkpoint or the header of a new run, and the line that says what will be trained."""
    parameters = sum(p.numel() for p in run.named.values())
    saves = -(-config.train.max_steps // config.train.save_steps)
    copies = min(config.train.save_total_limit or 10, saves) + 1
    checkpoint.require_space(run.folder, 12 * parameters * copies)  # float32 parameters and two moments, in each kept checkpoint and the next
    if loaded:
        run.resume(*loaded)
        odd = [f"{k} {v} then, {run.fingerprint[k]} now" for k, v in loaded[1]["fingerprint"].items() if v != run.fingerprint[k]]
        if odd and run.world.rank == 0:
            say(f"warning: continuing under other conditions ({'; '.join(odd)}): the data is the same, the last bits may differ")
    elif run.world.rank == 0:
        write_header(run, config, manifest, parameters, tokenizer=tokenizer, built=built)
    if run.world.rank == 0:
        announce(run, parameters, run.loader)


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
    return config, micro


def from_folders(config: PretrainConfig, run: Path, vocab_size: int) -> PretrainConfig:
    """The recipe with the kept encoder's shape taken from the folder that it starts from."""
    start = config.train.init_discriminator
    if not start:
        return config
    shape = start_shape(run, "discriminator", start, vocab_size)
    own = {k: getattr(shape, k) for k in ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "embedding_size")}
    return override(config, own | {"max_position_embeddings": shape.max_position_embeddings})


def start_shape(run: Path, half: str, start: str, vocab_size: int) -> Shape:
    """The shape of a half that started from the folder `start`. A run that has begun remembers it, so the folder may be gone when it continues."""
    facts = run / "run.json"
    if not facts.is_file():
        return folder_shape(start, vocab_size=vocab_size)
    try:
        return Shape(**json.loads(facts.read_text(encoding="utf-8"))["shapes"][half])
    except (ValueError, KeyError, TypeError) as e:
        raise UserError(f"{facts} does not say the shape of the {half} ({e}); it is damaged, or no file of this program") from e


def starting_point(config: PretrainConfig, run: Path, manifest: Manifest, *, fresh: bool, tokenizer: Path) -> Built:
    """The objective with its initial values: the seed's, then those of the folders it starts from."""
    t = config.train
    shape = start_shape(run, "generator", t.init_generator, manifest.vocab_size) if t.init_generator else None
    if shape and shape.max_position_embeddings < config.data.max_seq_length:
        raise UserError(f"max_seq_length {config.data.max_seq_length} exceeds the {shape.max_position_embeddings} positions of {t.init_generator}")
    built = build(config, vocab_size=manifest.vocab_size, special=manifest.special_ids, generator=shape)
    if fresh:
        for half, start in (("discriminator", t.init_discriminator), ("generator", t.init_generator)):
            if start and half not in built.halves:
                raise UserError(f"--init-{half} {start}: the objective {config.objective.objective} has no {half}")
            if start:
                check_vocabulary(start, tokenizer=tokenizer)
                first = built.halves["discriminator"] if half == "generator" and t.init_discriminator else None
                for line in load_half(built.halves[half], start, what=half, given=first):
                    say(line)
    return built


def kept_names(built: Built) -> set[str]:
    """Parameters of the half that is kept; what only the generator has takes the generator's learning rate."""
    half = built.halves["discriminator"]
    kept = {id(p) for part in (half.encoder, half.head) for p in part.parameters()}
    return {n for n, p in built.objective.named_parameters() if id(p) in kept}


def unigram_entropy(corpus: Corpus) -> float:
    """Nats: the loss of the best model that sees no context."""
    counts = corpus.unigram().astype(np.float64)
    p = counts[counts > 0] / max(1.0, counts.sum())
    return float(-(p * np.log(p)).sum())


# ------------------------------------------------------------------ the run folder


def refuse(folder: Path, resume: Resume) -> None:
    """Raises UserError where names in the folder already say that the wish cannot be: before anything is written there, the lock included."""
    saved = any(folder.glob("checkpoint-*"))
    holds = saved or (folder / "config.yaml").exists()
    if resume == "never" and holds:
        raise UserError(f"{folder} holds another run; choose another --output-dir, or continue it with --resume auto")
    if resume == "must" and not saved:
        raise UserError(f"--resume must: {folder} has no checkpoint; start the run with --resume auto")
    if not holds and folder.is_dir() and any(p for p in folder.iterdir() if not p.name.startswith(".")):
        raise UserError(f"{folder} is not empty and holds no run; choose another --output-dir")
    if not saved and (folder / "discriminator").exists():
        raise UserError(f"{folder} holds a finished run whose checkpoints are gone; choose another --output-dir")


def find_checkpoint(folder: Path) -> checkpoint.Found | None:
    """The checkpoint to continue from, None in a new folder. Raises UserError where there are only damaged ones: never begin anew over a run."""
    found = checkpoint.newest(folder)
    if found is None and any(folder.glob("checkpoint-*")):
        raise UserError(f"{folder} has checkpoints and none of them is complete; choose another --output-dir, or remove them to begin anew")
    return found


@contextmanager
def cleared(folder: Path) -> Iterator[None]:
    """A folder that was made for a run which a mistake of the user kept from beginning goes again."""
    new = not folder.exists()
    try:
        yield
    except UserError:
        if new and [p.name for p in folder.glob("*")] == [checkpoint.LOCK]:
            (folder / checkpoint.LOCK).unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()
        raise


def same_run(folder: Path, config: PretrainConfig, manifest: Manifest, saved: dict[str, Any]) -> None:
    """Raises UserError where the folder's run has another recipe or other data, listing what differs."""
    path = folder / "config.yaml"
    if not path.is_file():
        raise UserError(f"{folder} has checkpoints but no config.yaml; it is no run of this program, or a damaged one")
    theirs = parse(path.read_text(encoding="utf-8"), str(path))
    flat = [{k: v for section in asdict(c).values() for k, v in section.items()} for c in (config, theirs)]
    odd = [f"{k} {flat[1][k]} there, {flat[0][k]} here" for k in flat[0] if flat[0][k] != flat[1][k] and k not in FREE_FIELDS | SPLIT_FIELDS]
    if odd:
        raise UserError(f"{folder} holds another run ({'; '.join(odd)}); choose another --output-dir, or repeat its options to continue it")
    for key, what in (("tokenizer", "tokenizer"), ("data", "corpus")):
        if saved[key] != fingerprint(manifest, None)[key]:
            raise UserError(f"{folder} was trained with another {what} than DATA; give the run its own data, or start a new --output-dir")


def fingerprint(manifest: Manifest, world: dist.World | None) -> dict[str, Any]:
    """What bit-identical continuation rests on."""
    import torch

    data = {"data": manifest.fingerprint, "tokenizer": manifest.tokenizer_sha256}
    machine = {"torch": torch.__version__, "threads": torch.get_num_threads(), "world_size": world.size, "device": world.device.type} if world else {}
    return data | machine


def write_header(run: Run, config: PretrainConfig, manifest: Manifest, parameters: int, *, tokenizer: Path, built: Built) -> None:
    """config.yaml (resolved), run.json (versions, machine, hashes) and a copy of the tokenizer: what ran, enough to export without DATA."""
    shutil.copytree(tokenizer, run.folder / "tokenizer", dirs_exist_ok=True)
    facts = {
        "machine": describe(run.world.device),
        "parameters": parameters,
        "data": manifest.fingerprint,
        "tokenizer_sha256": manifest.tokenizer_sha256,
        "shapes": {name: asdict(half.encoder.shape) for name, half in built.halves.items()},
        "vocab_size": manifest.vocab_size,
        "special_ids": asdict(manifest.special_ids),
        "corpus": {"counts": manifest.counts, "sources": manifest.sources},
    }
    for name, text in (("config.yaml", dump(config)), ("run.json", json.dumps(facts, indent=1, sort_keys=True, default=str) + "\n")):
        part = run.folder / f".{name}.part"
        part.write_text(text, encoding="utf-8")
        os.replace(part, run.folder / name)


def announce(run: Run, parameters: int, loader: Loader) -> None:
    epochs = loader.epoch(run.config.max_steps)
    say(
        f"{parameters / 1e6:.1f} M parameters, {loader.num_rows:,} rows of {loader.rows.row_length} ({100 * loader.fill_rate:.1f} % filled), "
        f"batch {loader.batch_rows} rows, {run.config.max_steps:,} steps = {epochs:.1f} epochs"
        + (f", continuing after step {run.step:,}" if run.step else "")
    )
    if run.config.eval_steps and run.valid is None:
        say("warning: the corpus has no valid split, so nothing is validated; prepare it with --valid-fraction 0.01")


def prepared(data: str, run: Path) -> Path:
    """The prepared folder: `data` itself, or RUN-data made from the corpus `data` with the defaults of `electrify prepare`."""
    from .config.prepare import PrepareConfig
    from .text.prepare import prepare

    if (Path(data) / MANIFEST).is_file():
        return Path(data)
    if (Path(data) / "unfinished").is_dir():
        raise UserError(f"{data} is a prepared corpus that was never finished; repeat its `electrify prepare`, which continues")
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError(f"{data} is no prepared corpus; run `electrify prepare {data} --output-dir DATA` before several processes train on it")
    run = run if run.name not in ("", "..") else run.resolve()
    folder = run.with_name(run.name + "-data")
    say(f"{data} is no prepared corpus: preparing it into {folder}")
    prepare(PrepareConfig(inputs=(data,), output_dir=str(folder)))
    return folder
