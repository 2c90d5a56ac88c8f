"""The run folder: whose it is, whether this run may continue there, and the files at its head (config.yaml, run.json, tokenizer).

A folder is refused before anything is written into it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch

from .. import faults
from ..build import Built
from ..config.pretrain import PretrainConfig, dump, load_file
from ..errors import UserError
from ..files.seals import sealed
from ..files.tokenizers import copy_tokenizer, hashes_of
from ..model.encoder import Shape
from ..text.shards import Manifest
from ..text.streams import must_lead_somewhere
from . import checkpoint, dist
from .device import describe
from .facts import FACTS, read_facts
from .loop import Run

Resume = Literal["auto", "never", "must"]
GENERATOR_STAGE = "generator-stage"  # the folder, inside a run, of the run that made its generator
# Fields that may differ when a run continues: they move no number that training computes, as long as it computes numbers.
FREE_FIELDS = {"max_minutes", "logging_steps", "save_steps", "save_total_limit", "eval_steps", "eval_rows", "report_to", "device"}
FREE_FIELDS |= {"non_finite", "max_non_finite", "spike", "spike_sigmas", "max_spikes", "ddp_timeout"}
SPLIT_FIELDS = {"per_device_train_batch_size", "gradient_accumulation_steps", "fsdp"}  # how the work is cut: moves sums by rounding only


def refuse(folder: Path, resume: Resume) -> None:
    """Raises UserError where names in the folder already say that the wish cannot be: before anything is written there, the lock included."""
    must_lead_somewhere(folder)
    saved = any(folder.glob("checkpoint-*"))
    holds = saved or (folder / "config.yaml").exists()
    if resume == "never" and holds:
        raise UserError(f"{folder} holds another run; choose another --output-dir, or continue it with --resume auto")
    if resume == "must" and not saved:
        raise UserError(f"--resume must: {folder} has no checkpoint; start the run with --resume auto")
    if not holds and folder.is_dir() and any(p for p in folder.iterdir() if not p.name.startswith(".") and p.name != GENERATOR_STAGE):
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
    if not os.path.lexists(path):
        raise UserError(f"{folder} has checkpoints but no config.yaml; it is no run of this program, or a damaged one")
    theirs = load_file(path, within=folder)
    flat = [{k: v for section in asdict(c).values() for k, v in section.items()} for c in (config, theirs)]
    odd = [f"{k} {flat[1][k]} there, {flat[0][k]} here" for k in flat[0] if flat[0][k] != flat[1][k] and k not in FREE_FIELDS | SPLIT_FIELDS]
    if odd:
        raise UserError(f"{folder} holds another run ({'; '.join(odd)}); choose another --output-dir, or repeat its options to continue it")
    for key, what in (("tokenizer", "tokenizer"), ("data", "corpus")):
        if saved[key] != fingerprint(manifest, None)[key]:
            raise UserError(f"{folder} was trained with another {what} than DATA; give the run its own data, or start a new --output-dir")


def fingerprint(manifest: Manifest, world: dist.World | None) -> dict[str, Any]:
    """What bit-identical continuation rests on."""
    data = {"data": manifest.fingerprint, "tokenizer": manifest.tokenizer_sha256}
    machine = {"torch": torch.__version__, "threads": torch.get_num_threads(), "world_size": world.size, "device": world.device.type} if world else {}
    return data | machine


def write_header(run: Run, config: PretrainConfig, manifest: Manifest, parameters: int, *, tokenizer: Path, built: Built) -> None:
    """config.yaml (resolved), run.json (versions, machine, hashes) and a copy of the tokenizer: what ran, enough to export without DATA."""
    facts = {
        "machine": describe(run.world.device),
        "parameters": parameters,
        "unigram_entropy": run.monitor.unigram_entropy,
        "data": manifest.fingerprint,
        "tokenizer_sha256": manifest.tokenizer_sha256,
        "tokenizer_files": hashes_of(tokenizer),
        "shapes": {name: asdict(half.encoder.shape) for name, half in built.halves.items()},
        "vocab_size": manifest.vocab_size,
        "special_ids": asdict(manifest.special_ids),
        "corpus": {"counts": manifest.counts, "sources": manifest.sources},
    }
    facts = sealed(json.loads(json.dumps(facts, default=str)))
    for name, text in (("config.yaml", dump(config)), (FACTS, json.dumps(facts, indent=1, sort_keys=True) + "\n")):
        part = run.folder / f".{name}.part"
        part.write_text(text, encoding="utf-8")
        os.replace(part, run.folder / name)  # config.yaml first: from then on the folder is known as a run's, however this ends
        faults.at("header")
    copy_tokenizer(tokenizer, run.folder / "tokenizer", within=tokenizer.parent)


def saved_shape(folder: Path, half: str) -> Shape | None:
    """The shape of a half of the run that has begun in the folder; None where none has. So the folders that it started from may be gone by then."""
    if not os.path.lexists(folder / FACTS):
        return None
    shapes = read_facts(folder)[0].shapes
    if half not in shapes:
        raise UserError(f"{folder / FACTS} does not say the shape of the {half}; it is damaged, or not a file of this program")
    return shapes[half]
