"""A run folder: its recipe, its facts, every checkpoint to the last byte, and how far it came."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..config.checks import check
from ..config.pretrain import PretrainConfig, load_file
from ..export.hf import special_ids
from ..files.lock import holder
from ..files.reading import sha256_of
from ..files.schema import is_count
from ..text.tokenizer import TOKENIZER_FILE
from ..train import checkpoint, log
from ..train.facts import read_facts
from ..train.folder import GENERATOR_STAGE
from .data import Data
from .files import (
    AGAIN,
    Bar,
    files_below,
    is_regular,
    links_out,
    named,
    read_bytes,
    read_json,
    size_of,
)
from .findings import DamageError, Diagnosis, Finding, error, note, ok, warning
from .history import history_findings
from .model import examine_model
from .recipe import recipe_traps
from .together import entropy_of, with_data
from .tokenizers import ROLES, check_tokenizer
from .weights import Header, open_header

CONFIG = "config.yaml"
FACTS = "run.json"
NEEDED = "Without them nothing can be exported."
HALVES = ("discriminator", "generator")


def examine_run(folder: Path, *, data: list[Data]) -> list[Diagnosis]:
    """The run, and the folders that it made inside: models, and the run of its first stage. data:
    prepared corpora to compare it with."""
    found = Diagnosis(folder, "RUN")
    kept: dict[str, Any] = {}
    found.run(lambda: config_findings(folder, kept))
    found.run(lambda: facts_findings(folder, kept))
    found.run(lambda: tokenizer_findings(folder, kept))
    found.run(lambda: checkpoints_findings(folder, kept))
    config = kept.get("config")
    facts = kept.get("facts", {})
    if config is not None:
        found.traits["config"] = config
        found.run(lambda: progress_findings(folder, config, kept))
        found.run(lambda: recipe_traps(config, tokens=train_tokens(facts)))
        found.run(lambda: history_findings(folder, config, unigram_entropy=entropy_of(facts, data)))
    found.run(lambda: links_out(folder))
    found.run(lambda: with_data(facts, data))
    inside = [examine_model(folder / half) for half in HALVES if os.path.isdir(folder / half)]
    stage = (
        examine_run(folder / GENERATOR_STAGE, data=data)
        if os.path.isdir(folder / GENERATOR_STAGE)
        else []
    )
    return [found, *inside, *stage]


def train_tokens(facts: dict[str, Any]) -> int | None:
    """Tokens of the corpus, validation included: what the run wrote down."""
    corpus = facts.get("corpus")
    counts = corpus.get("counts") if isinstance(corpus, dict) else None
    tokens = counts.get("tokens") if isinstance(counts, dict) else None
    return int(tokens) if isinstance(tokens, int | float) and 0 < tokens < math.inf else None


# ------------------------------------------------------------------ the files at its head


def config_findings(folder: Path, kept: dict[str, Any]) -> Iterator[Finding]:
    config = load_file(folder / CONFIG)
    check(config)
    kept["config"] = config
    yield from ()


def facts_findings(folder: Path, kept: dict[str, Any]) -> Iterator[Finding]:
    facts = read_json(folder / FACTS)
    try:
        ids = special_ids(facts)
        numbers = [facts["vocab_size"], *(getattr(ids, role) for role in ROLES if role != "unk")]
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise DamageError(
            "facts",
            f"{FACTS} does not say special_ids or vocab_size ({type(e).__name__}: {e})",
            f"{NEEDED} {AGAIN}",
        ) from e
    if not all(map(is_count, numbers)) or not isinstance(ids.unk, int):
        raise DamageError(
            "facts",
            (
                f"{FACTS} has special_ids and a vocab_size that are no such numbers: "
                f"{str(numbers)[:80]}"
            ),
            f"{NEEDED} {AGAIN}",
        )
    beyond = {role: i for role in ROLES if (i := getattr(ids, role)) >= facts["vocab_size"]}
    if beyond:
        yield error(
            "facts",
            f"{FACTS}: special ids {beyond} are not of a vocabulary of {facts['vocab_size']:,}",
            AGAIN,
        )
    kept["facts"] = facts
    kept["special"] = ids
    if not beyond:
        read_facts(folder)  # which `export` and a run that goes on refuse, if they do


def tokenizer_findings(folder: Path, kept: dict[str, Any]) -> Iterator[Finding]:
    facts = kept.get("facts")
    if facts is None:
        return
    path = folder / "tokenizer" / TOKENIZER_FILE
    read_bytes(path)
    if "tokenizer_sha256" in facts and sha256_of(path) != facts["tokenizer_sha256"]:
        advice = (
            "Copy the folder `tokenizer` of the prepared corpus there: with another one the ids "
            "mean other words."
        )
        yield error(
            "hash",
            f"tokenizer/{TOKENIZER_FILE} does not have the hash in {FACTS}: it was changed",
            advice,
        )
    yield from check_tokenizer(
        folder / "tokenizer", vocab_size=facts["vocab_size"], special=kept["special"]
    )


# ------------------------------------------------------------------ checkpoints


def checkpoints_findings(folder: Path, kept: dict[str, Any]) -> Iterator[Finding]:
    """Every checkpoint; the newest good one goes into `kept`."""
    there = checkpoint.numbered(folder)
    with Bar(
        [f for c in there for f in files_below(c.path)], title=f"reading {folder.name}"
    ) as bar:
        whys = {}
        for c in there:
            whys[c.step] = why_bad(c.path)
            bar.read(sum(map(size_of, files_below(c.path))))
    there = [c for c in there if c.path.exists()]  # a run at work removes the oldest
    good = [c for c in there if whys[c.step] is None]
    kept["newest"] = newest = good[0] if good else None
    for c in there:
        if whys[c.step] is not None:
            instead = (
                f"continuing takes {newest.path.name}"
                if newest
                else "there is none to continue from"
            )
            yield error(
                "checkpoint",
                f"{c.path.name}: {whys[c.step]}",
                f"It is damaged; {instead}. Remove it, or restore it from a copy.",
            )
    if newest:
        size = sum(map(size_of, files_below(newest.path)))
        which = named((c.path.name for c in good), at_most=5)
        yield ok(
            "checkpoints",
            (
                f"whole to the last byte: {which}; {newest.path.name} would be continued "
                f"({size / 1e6:,.0f} MB)"
            ),
        )
        yield from model_findings(newest.path, kept)
    if holder(folder) is None:  # else they are being written
        left = checkpoint.temporaries(folder)
        if left:
            size = sum(size_of(f) for t in left for f in files_below(t)) / 1e6
            fact = (
                f"temporary folders are left over ({len(left)}, {size:,.0f} MB): "
                f"{named(p.name for p in left)}"
            )
            yield note(
                "left-over",
                fact,
                (
                    "A kill while saving leaves such; the next checkpoint of the run removes them, "
                    "or do it yourself."
                ),
            )


def why_bad(path: Path) -> str | None:
    """As resuming judges it, and bytes of the manifest that change nothing of what it says."""
    odd = (
        [name for name in os.listdir(path) if not is_regular(path / name)] if path.is_dir() else []
    )
    if odd:
        return f"{odd[0]} is no file"
    why = checkpoint.why_bad(path)
    if why is None and checkpoint.manifest_text(
        read_json(path / checkpoint.MANIFEST)
    ).encode() != read_bytes(path / checkpoint.MANIFEST):
        return f"{checkpoint.MANIFEST} is not byte for byte as it was written"
    return why


def model_findings(path: Path, kept: dict[str, Any]) -> Iterator[Finding]:
    """Word tables of a checkpoint against what recipe and facts say. Read is only where tensors
    begin, not the tensors."""
    config: PretrainConfig | None = kept.get("config")
    if config is None or "facts" not in kept or not (path / "model.safetensors").exists():
        return
    header: Header = open_header(path / "model.safetensors")
    words = {
        name: shape
        for name, (shape, _) in header.items()
        if name.endswith("encoder.embeddings.words.weight") and len(shape) == 2
    }
    rows = {shape[0] for shape in words.values()}
    if rows and rows != {kept["facts"]["vocab_size"]}:
        fact = (
            f"{path.name} has {named(f'{r:,}' for r in rows)} word embeddings and {FACTS} says "
            f"{kept['facts']['vocab_size']:,}"
        )
        yield error("vocabulary", fact, AGAIN)
    shared = config.model.tie in ("embeddings", "tokens", "all")
    if (
        config.corruption.corruptor == "generator"
        and words
        and (len(words) == 1) != shared
        and config.model.tie != "gdes"
    ):
        fact = (
            f"{path.name} has {len(words)} word table{'s' * (len(words) > 1)} and the recipe says "
            f"tie {config.model.tie}"
        )
        yield error("tie", fact, f"Checkpoint and {CONFIG} are not of one run. {AGAIN}")


# ------------------------------------------------------------------ how far it came


def progress_findings(
    folder: Path, config: PretrainConfig, kept: dict[str, Any]
) -> Iterator[Finding]:
    newest = kept.get("newest")
    steps = config.train.max_steps
    process = holder(folder)
    if process is not None:
        yield note(
            "in-use",
            f"process {process} is at work in this folder",
            "What is read here may be half written; look again when it has ended.",
        )
        return
    there = checkpoint.numbered(folder)
    exported = is_regular(folder / "discriminator" / "config.json")
    if newest is None and exported and not there:
        yield note(
            "no-checkpoint",
            "the run is exported and its checkpoints are gone",
            "It cannot be continued; its models are complete in themselves.",
        )
    elif newest is None and there:
        advice = (
            "Continuing refuses to begin anew over a run: restore one from a copy, or remove them "
            "all."
        )
        yield error(
            "no-checkpoint",
            f"none of {len(there)} checkpoint{'s' * (len(there) > 1)} is whole",
            advice,
        )
    elif newest is None:
        last = (
            max((r["step"] for r in log.read(folder / log.FILE)), default=0)
            if is_regular(folder / log.FILE)
            else 0
        )
        fact = (
            f"nothing has been saved yet (the log ends at step {last:,}, --save-steps is "
            f"{config.train.save_steps:,})"
        )
        yield warning(
            "no-checkpoint",
            fact,
            "The same command begins anew; with a smaller --save-steps less would be lost.",
        )
    elif newest.step < steps:
        share = newest.step / steps
        yield note(
            "unfinished",
            f"the run stands at step {newest.step:,} of {steps:,} ({share:.0%})",
            "The same `electrify pretrain` command continues it.",
        )
    elif not exported:
        advice = f"`electrify export {folder} --output-dir MODEL` writes it."
        yield warning(
            "not-exported",
            f"the run has done its {steps:,} steps and has no exported model",
            advice,
        )
    else:
        yield ok("finished", f"the run has done its {steps:,} steps and is exported")
