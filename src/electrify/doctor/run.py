"""Checks a run folder: its recipe, its facts, its tokenizer, and its progress."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

from ..architectures import architecture_named
from ..config.checks import check
from ..config.compare import STUDY
from ..config.networks import KEPT, network_names
from ..config.pretrain import PretrainConfig, load_file
from ..export.hf import special_ids
from ..files import is_held
from ..oldfiles.folders import sha256
from ..oldfiles.run_folder import CONFIG, FACTS, GENERATOR_STAGE, METRICS, TOKENIZER
from ..oldfiles.schema import is_count
from ..text.tokenizer import TOKENIZER_FILE
from ..train import checkpoint, log
from .checkpoints import checkpoints_findings
from .consistency import entropy_of, with_data
from .data import Data
from .files import AGAIN, is_regular, links_out, named, read_bytes, read_json
from .findings import DamageError, Diagnosis, Finding, error, guarded, note, ok, warning
from .history import history_findings
from .model import examine_model
from .recipe import recipe_traps
from .tokenizers import ROLES, check_tokenizer, leading_out

NEEDED = "Without them nothing can be exported."


def examine_run(folder: Path, *, data: list[Data]) -> list[Diagnosis]:
    """Checks the run and the folders that it has made inside: models, and the run of its first
    stage. data: prepared corpora to compare it with."""
    found = Diagnosis(folder, "RUN")
    kept: dict[str, Any] = {}
    found.run(lambda: config_findings(folder, kept))
    found.run(lambda: facts_findings(folder, kept))
    found.run(lambda: tokenizer_findings(folder, kept))
    found.run(lambda: checkpoints_findings(folder, kept))
    config = kept.get("config")
    facts = kept.get("facts", {})
    if config is not None:
        found.traits = {"config": config, "data": facts.get("data")}
        found.run(lambda: progress_findings(folder, config, kept))
        shape = kept.get("shapes", {}).get("generator")
        found.run(lambda: recipe_traps(config, tokens=train_tokens(facts), shape=shape))
        entropy = partial(entropy_of, facts, data, config)
        found.run(lambda: history_findings(folder, config, unigram_entropy=entropy()))
    found.run(lambda: links_out(folder))
    found.run(lambda: with_data(facts, data))
    models = [folder / name for name in network_names() if os.path.isdir(folder / name)]
    inside = [examine_model(model) for model in models]
    stage = (
        examine_run(folder / GENERATOR_STAGE, data=data)
        if os.path.isdir(folder / GENERATOR_STAGE)
        else []
    )
    return [found, *inside, *stage]


def train_tokens(facts: dict[str, Any]) -> int | None:
    """The number of tokens of the corpus, including validation, as recorded by the run."""
    corpus = facts.get("corpus")
    counts = corpus.get("counts") if isinstance(corpus, dict) else None
    tokens = counts.get("tokens") if isinstance(counts, dict) else None
    return int(tokens) if isinstance(tokens, int | float) and 0 < tokens < math.inf else None


# ------------------------------------------------------------------ the files at its head


def config_findings(folder: Path, kept: dict[str, Any]) -> Iterator[Finding]:
    config = load_file(folder / CONFIG, within=folder)
    check(config)
    kept["config"] = config
    if (folder / CONFIG).is_symlink():
        yield error(
            "link", f"{CONFIG} is a link", "`pretrain` refuses it: put the file itself there."
        )


def facts_findings(folder: Path, kept: dict[str, Any]) -> Iterator[Finding]:
    facts = read_json(folder / FACTS)
    try:
        ids = special_ids(facts)
        numbers = [facts["vocab_size"], *(getattr(ids, role) for role in ROLES if role != "unk")]
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise DamageError(
            "facts",
            f"{FACTS} does not give special_ids or vocab_size ({type(e).__name__}: {e})",
            f"{NEEDED} {AGAIN}",
        ) from e
    if not all(map(is_count, numbers)) or not isinstance(ids.unk, int):
        raise DamageError(
            "facts",
            f"{FACTS} has special_ids and a vocab_size that are not valid numbers: "
            f"{str(numbers)[:80]}",
            f"{NEEDED} {AGAIN}",
        )
    beyond = {role: i for role in ROLES if (i := getattr(ids, role)) >= facts["vocab_size"]}
    if beyond:
        yield error(
            "facts",
            f"{FACTS}: special ids {beyond} are beyond its vocabulary of {facts['vocab_size']:,}",
            AGAIN,
        )
    kept["facts"] = facts
    kept["special"] = ids
    kind = architecture_named(facts["architecture"]).shape_type
    kept["shapes"] = {name: kind(**numbers) for name, numbers in facts["shapes"].items()}


def tokenizer_findings(folder: Path, kept: dict[str, Any]) -> Iterator[Finding]:
    facts = kept.get("facts")
    if facts is None:
        return
    path = folder / TOKENIZER / TOKENIZER_FILE
    read_bytes(path)
    wanted = dict(written) if isinstance(written := facts.get("tokenizer_files"), dict) else {}
    if "tokenizer_sha256" in facts:
        wanted[TOKENIZER_FILE] = facts["tokenizer_sha256"]
    odd = [name for name, digest in wanted.items() if sha256(path.with_name(name)) != digest]
    if odd:
        yield error(
            "hash",
            f"tokenizer/{named(odd)} {'do' if len(odd) > 1 else 'does'} not have the hash in "
            f"{FACTS}: changed or lost",
            "Copy the folder `tokenizer` of the prepared corpus there (continuing the run does): "
            "with another one the ids mean other words.",
        )
    yield from guarded(lambda: leading_out(folder / TOKENIZER))
    yield from check_tokenizer(
        folder / TOKENIZER, vocab_size=facts["vocab_size"], special=kept["special"]
    )


# ------------------------------------------------------------------ how far it came


def progress_findings(
    folder: Path, config: PretrainConfig, kept: dict[str, Any]
) -> Iterator[Finding]:
    newest = kept.get("newest")
    steps = config.train.max_steps
    if is_held(folder):
        yield note(
            "in-use",
            "another process is at work in this folder",
            "What is read here may be half written; look again when it has ended.",
        )
        return
    exported = is_regular(folder / KEPT / "config.json")
    if newest is None:
        yield without_checkpoint(folder, config, exported=exported)
    elif (step := int(newest.name.rpartition("-")[2])) < steps:
        yield note(
            "unfinished",
            f"the run stands at step {step:,} of {steps:,} ({step / steps:.0%})",
            f"The same `electrify {verb_of(folder)}` command continues it.",
        )
    elif not exported:
        yield warning(
            "not-exported",
            f"the run has done its {steps:,} steps and has no exported model",
            f"`electrify export {quote(str(folder))} --output-dir MODEL` writes it.",
        )
    else:
        yield ok("finished", f"the run has done its {steps:,} steps and is exported")


def verb_of(run: Path) -> str:
    """The verb that continues a run, or the run of its first stage: the runs of a study are in
    STUDY/cells/CELL."""
    place = Path(os.path.abspath(run))
    place = place.parent if place.name == GENERATOR_STAGE else place
    return "compare" if (place.parent.parent.parent / STUDY).is_file() else "pretrain"


def without_checkpoint(folder: Path, config: PretrainConfig, *, exported: bool) -> Finding:
    """The finding for a run without a complete checkpoint."""
    there = checkpoint.steps(folder)
    if there:
        return error(
            "no-checkpoint",
            f"none of {len(there)} checkpoint{'s' * (len(there) > 1)} is whole",
            "A run is never begun anew over another one: restore one from a copy, or remove them "
            "all.",
        )
    if exported:
        return note(
            "no-checkpoint",
            "the run is exported and its checkpoints are gone",
            "It cannot be continued; its models are complete in themselves.",
        )
    last = 0
    if is_regular(folder / METRICS):
        last = max((r["step"] for r in log.read(folder / METRICS)), default=0)
    return warning(
        "no-checkpoint",
        f"nothing has been saved yet (the log ends at step {last:,}, --save-steps is "
        f"{config.train.save_steps:,})",
        "The same command begins anew; with a smaller --save-steps less would be lost.",
    )
