"""Checks a Hugging Face folder: what its config.json promises, code files in it, and the seal of an
export."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..architectures import reading
from ..oldfiles.folders import MARK
from ..oldfiles.followed import MAX_LAYERS, impossible_sizes
from ..oldfiles.models import read_mark
from ..oldfiles.tokenizers import VOCABULARY_FILES
from .files import AGAIN, Bar, is_regular, links_out, named, read_json, sha256
from .findings import DamageError, Diagnosis, Finding, error, ok, warning
from .kinds import CONFIG, architecture, part_of
from .matching import against_config, headers_into
from .tokenizers import tokenizer_hash
from .usable import kind_findings, loading_findings, type_findings
from .vocabularies import size_of, tokenizer_findings
from .weights import PICKLES, weights_findings

WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
# The largest number that is allowed for anything but layers: a table as large as a damaged number
# would fill the memory.
MOST = 1 << 24


def examine_model(folder: Path) -> Diagnosis:
    found = Diagnosis(folder, "MODEL")
    found.look(lambda: _examine(folder, found))
    return found


def _examine(folder: Path, found: Diagnosis) -> None:
    kept: dict[str, Any] = {}
    found.run(lambda: config_findings(folder, kept))
    found.run(lambda: code_findings(folder, kept.get("config", {})))
    found.run(lambda: links_out(folder))
    config = kept.get("config")
    found.run(lambda: kind_findings(config or {}))
    found.run(lambda: seal_findings(folder))
    found.run(lambda: headers_into(folder, kept))
    found.run(lambda: type_findings(kept.get("headers", {})))
    if config is not None and "headers" in kept:
        found.run(lambda: against_config(config, kept))
    if "headers" in kept:
        found.run(lambda: _values(folder, kept))
    if config is not None:
        found.run(lambda: tokenizer_findings(folder, config))
        if not found.count("error"):  # otherwise it would say the same again
            there = any(is_regular(folder / name) for name in VOCABULARY_FILES)
            found.run(lambda: loading_findings(folder, config, tokenizer=there))
        found.traits = {
            "part": part_of(config),
            "vocab_size": size_of(config),
            "tokenizer": tokenizer_hash(folder),
        }


# ------------------------------------------------------------------ config.json


def config_findings(folder: Path, kept: dict[str, Any]) -> Iterator[Finding]:
    config = read_json(folder / CONFIG)
    must_be_plausible(config)
    kept["config"] = config
    kind = config.get("model_type")
    if not isinstance(kind, str):
        yield error(
            "config",
            f"{CONFIG} has no model_type",
            'AutoModel cannot tell what it is: add "model_type": "electra", or restore the file.',
        )
    if not architecture(config):
        yield warning(
            "architecture",
            f"{CONFIG} has no architectures",
            'Programs guess the class: add "architectures" with the name of the class that it '
            "was saved from.",
        )
    lacking = lacking_keys(config)
    if lacking:
        yield warning(
            "config-keys",
            f"{CONFIG} does not give {named(lacking, at_most=8)}",
            "transformers uses its own defaults for them, which are the sizes of another model: "
            "add them.",
        )
    width = config.get("hidden_size")
    heads = config.get("num_attention_heads")
    if isinstance(width, int) and isinstance(heads, int) and width % heads:
        yield error(
            "config",
            f"hidden_size {width} is not a multiple of num_attention_heads {heads}",
            f"The model cannot be built. {AGAIN}",
        )


def must_be_plausible(config: dict[str, Any]) -> None:
    """Raises DamageError if a number is one with which the model could not be built, or would fill
    the memory."""
    mad = [f"{k} {v!r}" for k, v in config.items() if isinstance(v, int) and abs(v) > limit(k)]
    odd = impossible_sizes(config)
    if mad or odd:
        shown = named(dict.fromkeys(n[:60] for n in mad + odd))
        raise DamageError("config", f"{CONFIG} has numbers that no model has: {shown}", AGAIN)


def lacking_keys(config: dict[str, Any]) -> list[str]:
    """The sizes of its architecture that a configuration does not give."""
    kind = config.get("model_type")
    known = reading(kind) if isinstance(kind, str) else None
    if known is None:
        return []
    # Only our own kind of model says embedding_size.
    return [
        k
        for k in known.config_keys
        if k not in config and not (k == "embedding_size" and kind != known.model_type)
    ]


def limit(key: str) -> int:
    return MAX_LAYERS if "layers" in key else MOST


def code_findings(folder: Path, config: dict[str, Any]) -> Iterator[Finding]:
    """Files that are programs when they are loaded. None is."""
    names = sorted(p.name for p in folder.iterdir())
    pickles = [n for n in names if n.endswith(PICKLES)]
    if pickles:
        weights = any(is_regular(folder / n) for n in WEIGHTS)
        advice = (
            "Remove them: model.safetensors holds the weights."
            if weights
            else (
                "Convert them once on a machine that you can afford to lose: from_pretrained, then "
                "save_pretrained."
            )
        )
        yield warning(
            "pickle",
            (
                f"{named(pickles)}: pickles, which run any code that they hold when they are "
                "loaded; not loaded here"
            ),
            advice,
        )
    code = [n for n in names if n.endswith(".py")]
    if code or "auto_map" in config:
        what = named(code) if code else f"auto_map in {CONFIG}"
        yield warning(
            "code",
            f"{what}: the folder brings code of its own, which was not run here",
            "It runs only with trust_remote_code; read it before you set that.",
        )


def _values(folder: Path, kept: dict[str, Any]) -> Iterator[Finding]:
    with Bar(kept["headers"], title=f"reading {folder.name}") as bar:
        yield from weights_findings(kept["headers"], bar, tied=kept.get("tied", {}))


def seal_findings(folder: Path) -> Iterator[Finding]:
    """An export of ours: whether its files are those that were checked when it was written."""
    if not is_regular(folder / MARK) or (mark := read_mark(folder)) is None:
        return
    if mark.unfinished:
        yield error(
            "unfinished",
            "writing this model was interrupted",
            "Repeat the command that wrote it, which finishes it.",
        )
        return
    listed = mark.files or (
        {"model.safetensors": mark.weights_sha256} if mark.weights_sha256 else {}
    )
    want = {name: digest for name, digest in listed.items() if digest is not None}
    inside = [name for name in want if is_regular(folder / name, within=folder)]
    with Bar((folder / name for name in inside), title=f"hashing {folder.name}") as bar:
        there = {name: sha256(folder / name, bar) for name in inside}
    odd = [name for name, found in there.items() if found != want[name]]
    if odd:
        fact = (
            f"{named(odd)} {'do' if len(odd) > 1 else 'does'} not have the hash in {MARK}: changed "
            "after the export"
        )
        yield error(
            "hash",
            fact,
            (
                "Remove it and export again, or restore it from a copy. If the change is meant, "
                f"remove {MARK}."
            ),
        )
    elif there:
        fact = (
            f"{named(there)} {'are' if len(there) > 1 else 'is'} to the last byte what `electrify "
            "export` wrote and compared with transformers"
        )
        yield ok("whole", fact)
