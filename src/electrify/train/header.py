"""The header files of a run folder (config.yaml, run.json, tokenizer): written at the start,
checked when the run continues, and sufficient for an export without the corpus.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ..build import Built
from ..config.own_rows import needed
from ..config.pretrain import RUN_MARK, PretrainConfig, dump, override
from ..errors import UserError
from ..model.shape import Shape
from ..oldfiles.folders import aside, own_bytes, own_object, relative, remove_temporaries, sha256
from ..oldfiles.reading import UnreadableError
from ..oldfiles.run_folder import CONFIG, FACTS, HEADER, TOKENIZER, numbered
from ..oldfiles.seals import sealed
from ..oldfiles.tokenizer_folder import publish_tokenizer, tokenizer_hashes
from ..oldfiles.whole import write_atomically
from ..progress import say
from ..text.manifest import Manifest
from .decisive import STARTS, contents_of_starts, decisive, differing
from .facts import read_facts
from .machine import Threads, describe


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
    """Writes config.yaml (resolved), run.json (versions, machine, hashes) and a copy of the
    tokenizer: what ran, and enough to export without DATA.

    lost: the names of those that are written; the others exist."""
    facts = _what_ran(manifest, built, device) | _what_was_asked(config)
    facts |= {
        "threads": threads.facts(),
        "parameters": parameters,
        "unigram_entropy": unigram_entropy,
        "tokenizer_files": tokenizer_hashes(tokenizer),
    }
    earlier = own_object(folder / FACTS) or {}
    ours = {earlier.get("tokenizer_sha256"), *_texts(earlier.get("tokenizer_files"))}
    facts = sealed(json.loads(json.dumps(facts, default=str)))
    remove_temporaries(folder)
    recipe = RUN_MARK + dump(portable(config, folder))
    written = {CONFIG: recipe, FACTS: json.dumps(facts, indent=1, sort_keys=True) + "\n"}
    for name, text in written.items():
        if name not in lost:
            continue
        _keep_other(folder / name, text)
        # config.yaml comes first: it makes the folder recognisable as a run, however this ends.
        write_atomically(folder / name, text)
    if TOKENIZER in lost:
        publish_tokenizer(tokenizer, folder / TOKENIZER, ours=ours)


def _keep_other(path: Path, text: str) -> None:
    """Gives another name to an existing recipe that is not this text: somebody may have written it,
    or notes in it."""
    if path.name == CONFIG and own_bytes(path) not in (None, text.encode()):
        kept = aside(path)
        say(f"warning: {path} was another recipe; it is kept as {kept and kept.name}")


def _what_ran(manifest: Manifest, built: Built, device: torch.device) -> dict[str, Any]:
    """What run.json says about machine, corpus and networks."""
    return {
        "machine": describe(device),
        "data": manifest.fingerprint,
        "tokenizer_sha256": manifest.tokenizer_sha256,
        "architecture": built.kept.architecture.name,
        "shapes": {name: asdict(model.encoder.shape) for name, model in built.exports.items()},
        "vocab_size": manifest.vocab_size,
        "special_ids": asdict(manifest.special_ids),
        "corpus": {"counts": manifest.counts, "sources": manifest.sources},
    }


def _what_was_asked(config: PretrainConfig) -> dict[str, Any]:
    """The recipe's part of run.json."""
    own = needed(config)
    asked = {"recipe": decisive(config), "starts": contents_of_starts(config)}
    return asked | ({"own_rows": own} if own else {})


def _texts(found: Any) -> list[str]:
    return [v for v in found.values() if isinstance(v, str)] if isinstance(found, dict) else []


def header_lost(
    folder: Path, config: PretrainConfig, manifest: Manifest, *, tokenizer: Path
) -> list[str]:
    """What a run that continues no longer finds at the head of its folder, or finds changed:
    run.json is judged by its seal and by what it says about recipe and corpus. tokenizer: that of
    the corpus."""
    lost = [name for name in HEADER if own_bytes(folder / name) is None]
    if FACTS not in lost and _says_otherwise(folder, config, manifest, tokenizer):
        lost.append(FACTS)
    wanted = tokenizer_hashes(tokenizer) | {"tokenizer.json": manifest.tokenizer_sha256}
    if FACTS not in lost and read_facts(folder)[0].tokenizer_files is None:
        # The first versions did not write down the others, and copied fewer.
        wanted = {"tokenizer.json": manifest.tokenizer_sha256}
    return lost + [TOKENIZER] * any(
        sha256(folder / TOKENIZER / name) != digest for name, digest in wanted.items()
    )


def _says_otherwise(
    folder: Path, config: PretrainConfig, manifest: Manifest, tokenizer: Path
) -> bool:
    """Whether run.json is not of this run; otherwise that would be found out only when the run has
    ended and is exported."""
    try:
        facts = read_facts(folder)[1]
    except UnreadableError:
        raise
    except UserError:
        return True
    wanted = {
        "data": manifest.fingerprint,
        "tokenizer_sha256": manifest.tokenizer_sha256,
        "vocab_size": manifest.vocab_size,
        "special_ids": json.loads(json.dumps(asdict(manifest.special_ids))),
    }
    # Runs that began before the hashes of the tokenizer's files were recorded have none.
    wanted |= (
        {"tokenizer_files": tokenizer_hashes(tokenizer)}
        if facts.get("tokenizer_files") is not None
        else {}
    )
    return bool(differing(facts.get("recipe") or {}, config)) or any(
        facts.get(key, value) != value for key, value in wanted.items()
    )


def portable(config: PretrainConfig, folder: Path) -> PretrainConfig:
    """The recipe with the folders that it starts from as paths relative to `folder`, so that a
    config.yaml does not contain absolute paths of this machine."""
    starts = {name: start for name in STARTS if (start := getattr(config.train, name))}
    found = {name: relative(start, folder) for name, start in starts.items()}
    return override(
        config,
        {
            name: new if new.startswith("..") or new == starts[name] else f"./{new}"
            for name, new in found.items()
        },
    )


def saved_shape(folder: Path, network: str) -> Shape | None:
    """The shape of a network of the run that goes on in the folder, or None if none does (without
    a checkpoint a run begins anew), or its run.json was changed: then the folders from which it
    started are asked again. Otherwise they may be gone by then. A run of another recipe, which
    `same_run` reports, may lack the network."""
    if not os.path.lexists(folder / FACTS) or not numbered(folder):
        return None
    try:
        shapes = read_facts(folder)[0].shapes
    except UnreadableError:
        raise
    except UserError:
        return None  # `header_lost` finds it, too, and it is written again
    return shapes.get(network)
