"""The run folder: whose it is, whether this run may continue there, and the files at its head
(config.yaml, run.json, tokenizer).

A folder is refused before anything is written into it.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch

from .. import faults
from ..build import Built
from ..config.pretrain import RUN_MARK, PretrainConfig, dump, load_file, override, parse, values_of
from ..errors import UserError
from ..files.folders import foreign, own_bytes, own_object, relative, remove_temporaries
from ..files.inside import must_be_utf8, must_not_be_in_a_checkpoint, must_stay_inside
from ..files.model_folder import model_mark, must_be_as_written
from ..files.seals import sealed
from ..files.tokenizer_folder import publish_tokenizer, tokenizer_hashes
from ..files.whole import write_atomically
from ..model.shape import Shape
from ..text.shards import Manifest
from ..text.streams import must_lead_somewhere
from . import checkpoint, dist
from .device import describe
from .facts import FACTS, read_facts
from .home import HEADER, TOKENIZER, content
from .log import BOARD
from .threads import Threads

Resume = Literal["auto", "never", "must"]
CONFIG = "config.yaml"
HALVES = ("discriminator", "generator")
STARTS = ("init_discriminator", "init_generator")
GENERATOR_STAGE = "generator-stage"  # the folder, inside a run, of the run that made its generator
# Fields that may differ when a run continues: they move no number that training computes, as long
# as it computes numbers.
FREE_FIELDS = {
    "max_minutes",
    "logging_steps",
    "save_steps",
    "save_total_limit",
    "eval_steps",
    "eval_rows",
    "report_to",
    "device",
    "threads",
}
FREE_FIELDS |= {
    "non_finite",
    "max_non_finite",
    "spike",
    "spike_sigmas",
    "max_spikes",
    "ddp_timeout",
}
SPLIT_FIELDS = {
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "fsdp",
}  # how the work is cut: moves sums by rounding only


def refuse(folder: Path, resume: Resume) -> None:
    """Raises UserError where names in the folder already say that the wish cannot be: before
    anything is written there, the lock included."""
    must_lead_somewhere(folder)
    must_be_utf8(folder)
    must_not_be_in_a_checkpoint(folder)
    saved = any(folder.glob("checkpoint-*"))
    begun = os.path.lexists(folder / CONFIG)
    if begun and not is_run(folder):
        raise UserError(
            f"{folder / CONFIG} is not the recipe of a run that electrify began; choose another "
            "--output-dir"
        )
    holds = saved or begun
    if resume == "never" and holds:
        raise UserError(
            f"{folder} holds another run; choose another --output-dir, or continue it with "
            "--resume auto"
        )
    if resume == "must" and not saved:
        raise UserError(
            f"--resume must: {folder} has no checkpoint; start the run with --resume auto"
        )
    if not holds and folder.is_dir() and any(_stands_in_the_way(p) for p in folder.iterdir()):
        raise UserError(f"{folder} is not empty and holds no run; choose another --output-dir")
    if not saved and (folder / "discriminator").exists():
        raise UserError(
            f"{folder} holds a finished run whose checkpoints are gone; choose another --output-dir"
        )
    for half in HALVES:  # found now, and not when the run has ended
        if model_mark(folder / half) is None and (
            os.path.lexists(folder / half)
            and (not (folder / half).is_dir() or foreign(folder / half))
        ):
            raise UserError(
                f"{folder / half} is not a model that electrify wrote; move it away, or choose "
                "another --output-dir"
            )
        must_be_as_written(folder / half)
    for name in (*HALVES, TOKENIZER, BOARD, GENERATOR_STAGE):
        must_stay_inside(folder / name, folder)


def _stands_in_the_way(path: Path) -> bool:
    """What a new run does not settle beside: anything but hidden files and its own first stage."""
    return not path.name.startswith(".") and not (
        path.name == GENERATOR_STAGE and path.is_dir() and (is_run(path) or not foreign(path))
    )


def find_checkpoint(folder: Path) -> checkpoint.Found | None:
    """The checkpoint to continue from, None in a new folder. Raises UserError where there are only
    damaged ones: never begin anew over a run."""
    found = checkpoint.newest(folder)
    if found is None and any(folder.glob("checkpoint-*")):
        raise UserError(
            f"{folder} has checkpoints and none of them is complete; choose another --output-dir, "
            "or remove them to begin anew"
        )
    return found


def is_run(folder: Path) -> bool:
    """Whether the config.yaml in the folder is one that we wrote: by its first line.

    Those of earlier versions have no such line. They are known by what lies beside: a run.json or a
    checkpoint's manifest of ours. One whose run was killed before there was either is known by
    being, to the byte, what its recipe is written as.
    """
    try:
        text = (own_bytes(folder / CONFIG) or b"").decode("utf-8")
    except UnicodeDecodeError:
        return False
    if text.startswith(RUN_MARK):
        return True
    if not text.strip():
        return False
    if {"data", "special_ids", "vocab_size"} <= (own_object(folder / FACTS) or {}).keys():
        return True
    if any(
        (own_object(found.path / checkpoint.MANIFEST) or {}).get("step") == found.step
        for found in checkpoint.numbered(folder)
    ):
        return True
    try:
        return dump(parse(text, CONFIG)) == text
    except UserError:
        return False


def same_run(
    folder: Path, config: PretrainConfig, manifest: Manifest, saved: dict[str, Any]
) -> None:
    """Raises UserError where the folder's run has another recipe or other data, listing what
    differs."""
    path = folder / CONFIG
    if not os.path.lexists(path):
        raise UserError(
            f"{folder} has checkpoints but no config.yaml; it is no run of this program, or a "
            "damaged one"
        )
    theirs = load_file(path, within=folder)
    flat = [values_of(c) for c in (config, theirs)]
    known = dict.fromkeys((*flat[0], *flat[1]))
    differ = [
        k for k in known if flat[0].get(k) != flat[1].get(k) and k not in FREE_FIELDS | SPLIT_FIELDS
    ]
    differ = [
        k for k in differ if k not in STARTS or not _is_same_place(flat[1][k], flat[0][k], folder)
    ]
    odd = [f"{k} {flat[1].get(k)} there, {flat[0].get(k)} here" for k in differ]
    if odd:
        raise UserError(
            f"{folder} holds another run ({'; '.join(odd)}); choose another --output-dir, or "
            "repeat its options to continue it"
        )
    for key, what in (("tokenizer", "tokenizer"), ("data", "corpus")):
        if saved[key] != fingerprint(manifest, None)[key]:
            raise UserError(
                f"{folder} was trained with another {what} than DATA; give the run its own data, "
                "or start a new --output-dir"
            )


def fingerprint(manifest: Manifest, world: dist.World | None) -> dict[str, Any]:
    """What bit-identical continuation rests on."""
    data = {"data": manifest.fingerprint, "tokenizer": manifest.tokenizer_sha256}
    machine = (
        {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "world_size": world.size,
            "device": world.device.type,
        }
        if world
        else {}
    )
    return data | machine


def earlier_threads(folder: Path, saved: dict[str, Any] | None) -> Any:
    """The number of threads that a run which continues has had, by the fingerprint of its
    checkpoint; of a new second stage that of the first."""
    if saved:
        return saved.get("threads")
    threads = (own_object(folder / GENERATOR_STAGE / FACTS) or {}).get("threads")
    return threads.get("number") if isinstance(threads, dict) else None


def write_header(
    folder: Path,
    config: PretrainConfig,
    manifest: Manifest,
    parameters: int,
    *,
    tokenizer: Path,
    built: Built,
    lost: list[str],
    threads: Threads,
    device: torch.device,
    unigram_entropy: float,
) -> None:
    """config.yaml (resolved), run.json (versions, machine, hashes) and a copy of the tokenizer:
    what ran, enough to export without DATA.

    lost: the names among them that are written; the others are there."""
    facts = {
        "machine": describe(device),
        "threads": threads.facts(),
        "parameters": parameters,
        "unigram_entropy": unigram_entropy,
        "data": manifest.fingerprint,
        "tokenizer_sha256": manifest.tokenizer_sha256,
        "tokenizer_files": tokenizer_hashes(tokenizer),
        "architecture": built.kept.architecture.name,
        "shapes": {name: asdict(model.encoder.shape) for name, model in built.exports.items()},
        "vocab_size": manifest.vocab_size,
        "special_ids": asdict(manifest.special_ids),
        "corpus": {"counts": manifest.counts, "sources": manifest.sources},
    }
    earlier = own_object(folder / FACTS) or {}
    ours = {earlier.get("tokenizer_sha256"), *_texts(earlier.get("tokenizer_files"))}
    facts = sealed(json.loads(json.dumps(facts, default=str)))
    remove_temporaries(folder)
    written = {
        CONFIG: RUN_MARK + dump(portable(config, folder)),
        FACTS: json.dumps(facts, indent=1, sort_keys=True) + "\n",
    }
    for name, text in written.items():
        if name not in lost:
            continue
        write_atomically(
            folder / name, text
        )  # config.yaml first: from then on the folder is known as a run's, however this ends
        faults.at("header")
    if TOKENIZER in lost:
        publish_tokenizer(tokenizer, folder / TOKENIZER, ours=ours)


def _texts(found: Any) -> list[str]:
    return [v for v in found.values() if isinstance(v, str)] if isinstance(found, dict) else []


def header_lost(folder: Path, manifest: Manifest, *, tokenizer: Path) -> list[str]:
    """What a run that continues does not find at the head of its folder any more, or finds changed:
    run.json by its seal and by what it says of the corpus. tokenizer: that of the corpus."""
    lost = [name for name in HEADER if content(folder / name) is None]
    if FACTS not in lost and _says_otherwise(folder, manifest, tokenizer):
        lost.append(FACTS)
    found = content(folder / TOKENIZER / "tokenizer.json") or b""
    return lost + [TOKENIZER] * (hashlib.sha256(found).hexdigest() != manifest.tokenizer_sha256)


def _says_otherwise(folder: Path, manifest: Manifest, tokenizer: Path) -> bool:
    """Whether run.json is not of this corpus: else it would be found out when the run has ended and
    is exported."""
    try:
        facts = read_facts(folder)[1]
    except UserError:
        return True
    wanted = {
        "data": manifest.fingerprint,
        "tokenizer_sha256": manifest.tokenizer_sha256,
        "vocab_size": manifest.vocab_size,
        "special_ids": json.loads(json.dumps(asdict(manifest.special_ids))),
    }
    # Runs that were begun before the hashes of the tokenizer's files were written down have none.
    wanted |= (
        {"tokenizer_files": tokenizer_hashes(tokenizer)}
        if facts.get("tokenizer_files") is not None
        else {}
    )
    return any(facts.get(key, value) != value for key, value in wanted.items())


def portable(config: PretrainConfig, folder: Path) -> PretrainConfig:
    """The recipe with the folders that it starts from as they are found from `folder`: a
    config.yaml names no place of this machine."""
    starts = {name: start for name in STARTS if (start := getattr(config.train, name))}
    found = {name: relative(start, folder) for name, start in starts.items()}
    return override(
        config,
        {
            name: new if new.startswith("..") or new == starts[name] else f"./{new}"
            for name, new in found.items()
        },
    )


def _is_same_place(theirs: str | None, mine: str | None, folder: Path) -> bool:
    """Whether two starts are one folder, there or not. theirs: as config.yaml has it, from `folder`
    (earlier versions: as given); mine: as given."""
    if not theirs or not mine:
        return False
    there = os.path.normpath(os.path.join(os.path.realpath(folder), os.path.expanduser(theirs)))
    return there == os.path.realpath(os.path.expanduser(mine))


def saved_shape(folder: Path, half: str) -> Shape | None:
    """The shape of a network of the run that has begun in the folder; None where none has. So the
    folders that it started from may be gone by then."""
    if not os.path.lexists(folder / FACTS):
        return None
    shapes = read_facts(folder)[0].shapes
    if half not in shapes:
        raise UserError(
            f"{folder / FACTS} does not say the shape of the {half}; it is damaged, or not a file "
            "of this program"
        )
    return shapes[half]
