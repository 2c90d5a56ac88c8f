"""The run folder: whose it is, whether this run may continue there, and the files at its head (config.yaml, run.json, tokenizer).

A folder is refused before anything is written into it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch

from .. import faults
from ..build import Built
from ..config.pretrain import PretrainConfig, dump, parse
from ..errors import UserError
from ..model.encoder import Shape
from ..text.shards import Manifest
from ..text.streams import must_lead_somewhere
from . import checkpoint, dist
from .device import describe
from .home import HEADER, TOKENIZER, content
from .loop import Run
from .threads import Threads

Resume = Literal["auto", "never", "must"]
GENERATOR_STAGE = "generator-stage"  # the folder, inside a run, of the run that made its generator
# Fields that may differ when a run continues: they move no number that training computes, as long as it computes numbers.
FREE_FIELDS = {"max_minutes", "logging_steps", "save_steps", "save_total_limit", "eval_steps", "eval_rows", "report_to", "device", "threads"}
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
    data = {"data": manifest.fingerprint, "tokenizer": manifest.tokenizer_sha256}
    machine = {"torch": torch.__version__, "threads": torch.get_num_threads(), "world_size": world.size, "device": world.device.type} if world else {}
    return data | machine


def earlier_threads(folder: Path, saved: dict[str, Any] | None) -> Any:
    """The number of threads that a run which continues has had, by the fingerprint of its checkpoint; of a new second stage that of the first."""
    if saved:
        return saved.get("threads")
    with suppress(OSError, ValueError, KeyError, TypeError):
        return json.loads((folder / GENERATOR_STAGE / "run.json").read_text(encoding="utf-8"))["threads"]["number"]
    return None


def write_header(
    run: Run,
    config: PretrainConfig,
    manifest: Manifest,
    parameters: int,
    *,
    tokenizer: Path,
    built: Built,
    lost: list[str],
    threads: Threads,
) -> None:
    """config.yaml (resolved), run.json (versions, machine, hashes) and a copy of the tokenizer: what ran, enough to export without DATA.

    lost: the names among them that are written; the others are there."""
    facts = {
        "machine": describe(run.world.device),
        "threads": threads.facts(),
        "parameters": parameters,
        "unigram_entropy": run.monitor.unigram_entropy,
        "data": manifest.fingerprint,
        "tokenizer_sha256": manifest.tokenizer_sha256,
        "shapes": {name: asdict(half.encoder.shape) for name, half in built.halves.items()},
        "vocab_size": manifest.vocab_size,
        "special_ids": asdict(manifest.special_ids),
        "corpus": {"counts": manifest.counts, "sources": manifest.sources},
    }
    for name, text in (("config.yaml", dump(config)), ("run.json", json.dumps(facts, indent=1, sort_keys=True, default=str) + "\n")):
        if name not in lost:
            continue
        part = run.folder / f".{name}.part"
        part.write_text(text, encoding="utf-8")
        os.replace(part, run.folder / name)  # config.yaml first: from then on the folder is known as a run's, however this ends
        faults.at("header")
    if TOKENIZER in lost:
        shutil.copytree(tokenizer, run.folder / TOKENIZER, dirs_exist_ok=True)


def header_lost(folder: Path, manifest: Manifest) -> list[str]:
    """What a run that continues does not find at the head of its folder any more, or finds changed."""
    lost = [name for name in HEADER if not (folder / name).is_file()]
    found = content(folder / TOKENIZER / "tokenizer.json") or b""
    return lost + [TOKENIZER] * (hashlib.sha256(found).hexdigest() != manifest.tokenizer_sha256)


def saved_shape(folder: Path, half: str) -> Shape | None:
    """The shape of a half of the run that has begun in the folder; None where none has. So the folders that it started from may be gone by then."""
    facts = folder / "run.json"
    if not facts.is_file():
        return None
    try:
        return Shape(**json.loads(facts.read_text(encoding="utf-8"))["shapes"][half])
    except (ValueError, KeyError, TypeError) as e:
        raise UserError(f"{facts} does not say the shape of the {half} ({e}); it is damaged, or no file of this program") from e
