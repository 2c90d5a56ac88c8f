"""A Hugging Face folder: what its config.json promises, what its files hold, and whether its
tokenizer fits."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..architectures import reading
from ..export.folders import TOKENIZER_FILES
from ..files.models import MARK, read_mark
from ..files.schema import is_count
from ..train.memory import MAX_LAYERS
from .files import (
    AGAIN,
    Bar,
    files_below,
    is_regular,
    links_out,
    named,
    read_bytes,
    read_json,
    sha256,
)
from .findings import DamageError, Diagnosis, Finding, error, note, ok, warning
from .kinds import CONFIG, SAVE_HEAD, architecture, heads, part_of
from .shapes import expected_shapes
from .tokenizers import check_tokenizer, lower_cased, options_of, roles, tokenizer_hash
from .usable import kind_findings, loading_findings, two_vocabularies, type_findings
from .weights import Header, headers, weights_findings

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
MOST = (
    1 << 24
)  # of anything but layers: a table of the size of a damaged number would fill the memory
NO_LIMIT = 1 << 20  # transformers' way of saying that nobody set the longest text is 1e30
KEYS = (
    "vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings",
)  # fmt: skip
LAYER = re.compile(r"\blayers?\.(\d+)\.")


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
    files = [f for f in files_below(folder) if f.suffix == ".safetensors"]
    with Bar(
        files * (2 if is_regular(folder / MARK) else 1), title=f"reading {folder.name}"
    ) as bar:
        found.run(lambda: seal_findings(folder, bar))
        found.run(lambda: headers_into(folder, kept))
        found.run(lambda: type_findings(kept.get("headers", {})))
        if config is not None and "headers" in kept:
            found.run(lambda: against_config(config, kept))
        if "headers" in kept:
            found.run(lambda: weights_findings(kept["headers"], bar, tied=kept.get("tied", {})))
    if config is not None:
        found.run(lambda: tokenizer_findings(folder, config))
        if not found.count("error"):  # else it would say the same once more
            there = any(is_regular(folder / name) for name in TOKENIZER_FILES)
            found.run(lambda: loading_findings(folder, config, tokenizer=there))
        found.traits = {
            "part": part_of(config),
            "vocab_size": config.get("vocab_size", 0),
            "tokenizer": tokenizer_hash(folder),
        }
    return found


# ------------------------------------------------------------------ config.json


def config_findings(folder: Path, kept: dict[str, Any]) -> Iterator[Finding]:
    config = read_json(folder / CONFIG)
    mad = [f"{k} {v!r}" for k, v in config.items() if isinstance(v, int) and abs(v) > limit(k)]
    odd = [
        f"{k} {config[k]!r}"
        for k in KEYS
        if k in config and (not is_count(config[k]) or config[k] == 0)
    ]
    if mad or odd:
        raise DamageError(
            "config",
            (
                f"{CONFIG} has numbers that no model has: "
                f"{named(dict.fromkeys(n[:60] for n in mad + odd))}"
            ),
            AGAIN,
        )
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
            (
                'Programs guess the class: add "architectures" with the name of the class that it '
                "was saved from."
            ),
        )
    known = reading(kind) if isinstance(kind, str) else None
    if known is not None:
        lacking = [
            k
            for k in known.config_keys
            if k not in config and not (k == "embedding_size" and kind != known.model_type)
        ]
        if lacking:
            fact = f"{CONFIG} does not say {named(lacking, at_most=8)}"
            yield warning(
                "config-keys",
                fact,
                (
                    "transformers takes sizes of its own for them, which are those of another "
                    "model: add them."
                ),
            )
    width = config.get("hidden_size")
    heads = config.get("num_attention_heads")
    if isinstance(width, int) and isinstance(heads, int) and width % heads:
        yield error(
            "config",
            f"hidden_size {width} is not a multiple of num_attention_heads {heads}",
            f"The model cannot be built. {AGAIN}",
        )


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
                "Convert them once on a machine that may be lost: from_pretrained, then "
                "save_pretrained."
            )
        )
        yield warning(
            "pickle",
            (
                f"{named(pickles)}: pickles, which run any program that is in them when they are "
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
            "It runs with trust_remote_code only; read it before you say that.",
        )


def seal_findings(folder: Path, bar: Bar) -> Iterator[Finding]:
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
    there = {name: sha256(folder / name, bar) for name in want if is_regular(folder / name)}
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


# ------------------------------------------------------------------ weights against config.json


def headers_into(folder: Path, kept: dict[str, Any]) -> Iterator[Finding]:
    found = headers(folder)
    if found:
        kept["headers"] = found
    elif any(n.name.endswith(PICKLES) for n in folder.iterdir()):
        yield note(
            "not-examined", "its weights are pickles only, so shapes and values were not looked at"
        )
    else:
        yield error(
            "no-weights",
            "the folder holds no weights (model.safetensors)",
            "It cannot be loaded: copy them there, or export again.",
        )


def against_config(config: dict[str, Any], kept: dict[str, Any]) -> Iterator[Finding]:
    have: Header = {}
    for header in kept["headers"].values():
        have |= header
    yield from layers(config, have)
    yield from heads(architecture(config), str(config.get("model_type")), have)
    wanted = expected_shapes(config, architecture(config))
    if wanted is None:
        yield note(
            "not-compared",
            (
                f"the weights were not compared with {CONFIG}: transformers has no class "
                f"{architecture(config) or '(none named)'}"
            ),
        )
        return
    kept["tied"] = wanted.tied
    short = {wanted.bare(name): (name, shape) for name, (shape, _) in have.items()}
    shapes = {wanted.bare(name): shape for name, shape in wanted.shapes.items()}
    odd = [
        f"{short[n][0]} is {short[n][1]}, not {shapes[n]}"
        for n in sorted(shapes)
        if n in short and short[n][1] != shapes[n]
    ]
    if odd:
        fact = (
            f"{len(odd):,} tensors do not have the shape that {CONFIG} says: "
            f"{named(odd, at_most=5)}"
        )
        yield error(
            "shapes",
            fact,
            (
                f"Weights and {CONFIG} are of two models (generator and discriminator have a "
                f"{CONFIG} each): copy the one that belongs to them."
            ),
        )
    tied = {wanted.bare(name) for name in wanted.tied}
    missing = sorted(shapes.keys() - short.keys() - tied)
    extra = sorted(short.keys() - shapes.keys())
    yield from missing_findings(config, missing)
    if extra:
        yield note(
            "extra-weights",
            f"{len(extra):,} weights have no place in {architecture(config)}: {named(extra)}",
            "They are ignored when it is loaded.",
        )
    if not odd and not missing:
        numbers = sum(math.prod(shape) for shape, _ in have.values())
        yield ok(
            "shapes",
            (
                f"{len(have):,} tensors ({numbers / 1e6:.1f} M numbers) are those of "
                f"{architecture(config)} by {CONFIG}"
            ),
        )


def missing_findings(config: dict[str, Any], missing: list[str]) -> Iterator[Finding]:
    if not missing:
        return
    fact = f"{len(missing):,} weights of {architecture(config)} are missing: {named(missing)}"
    if all(name.startswith("pooler.") for name in missing):
        yield note(
            "no-pooler",
            fact,
            "Drawn at random when it is loaded; nothing but a pooled output reads them.",
        )
    elif any(name.startswith("embeddings_project") for name in missing):
        sizes = (
            f"embedding_size {config.get('embedding_size')} and hidden_size "
            f"{config.get('hidden_size')} differ"
        )
        yield error(
            "projection",
            f"{fact}; {sizes}, so embeddings_project must be there",
            f"{CONFIG} is of another model, or the conversion left it out.",
        )
    else:
        yield error("missing-weights", fact, SAVE_HEAD)


def layers(config: dict[str, Any], have: Header) -> Iterator[Finding]:
    """Before anything is built by that number."""
    said = config.get("num_hidden_layers")
    numbers = {found[1] for name in have if (found := LAYER.search(name))}
    if numbers and isinstance(said, int) and said != len(numbers):
        fact = f"{CONFIG} says {said:,} layers and the weights have {len(numbers):,}"
        raise DamageError(
            "layers",
            fact,
            (
                f"Copy the {CONFIG} that belongs to these weights: missing layers would be drawn "
                "at random."
            ),
        )
    yield from ()


# ------------------------------------------------------------------ the tokenizer


def tokenizer_findings(folder: Path, config: dict[str, Any]) -> Iterator[Finding]:
    there = [n for n in TOKENIZER_FILES if is_regular(folder / n)]
    if not there:
        yield warning(
            "no-tokenizer",
            "the folder has no tokenizer",
            "Copy the files of the one that it was trained with into it, or nobody can feed it.",
        )
        return
    vocab_size = config.get("vocab_size", 0)
    options = options_of(folder)
    ids: dict[str, int] = {}
    if "tokenizer.json" in there and vocab_size:
        yield from check_tokenizer(folder, vocab_size=vocab_size)
        ids = tokenizer_ids(folder)
        if "vocab.txt" in there:
            yield from two_vocabularies(folder, ids)
    elif "vocab.txt" in there and vocab_size:
        ids = {
            word: i
            for i, word in enumerate(
                read_bytes(folder / "vocab.txt").decode("utf-8", "replace").splitlines()
            )
        }
        yield from lower_cased(options, ids)
        missing = [
            f"[{role.upper()}]"
            for role in ("pad", "unk", "cls", "sep", "mask")
            if role not in roles(options, ids)
        ]
        if missing:
            yield warning(
                "special-missing",
                f"vocab.txt has no {named(missing, at_most=5)}",
                "Masking and reading sequences need them: take a tokenizer made for BERT.",
            )
        if len(ids) > vocab_size:
            yield error(
                "tokenizer-too-large",
                f"vocab.txt has {len(ids):,} words and there are {vocab_size:,} embeddings",
                "Copy the tokenizer that belongs to these weights.",
            )
    else:
        yield note(
            "not-examined",
            f"the tokenizer ({named(there)}) has no tokenizer.json, so its ids were not looked at",
        )
    pad = ids.get(roles(options, ids).get("pad", ""))
    said = config.get("pad_token_id")
    if pad is not None and isinstance(said, int) and pad != said:
        yield warning(
            "pad",
            f"pad_token_id is {said} in {CONFIG} and {pad} in the tokenizer",
            "One of the two is of another model; the embedding of the wrong one stays untrained.",
        )
    yield from longest(options, config.get("max_position_embeddings"))


def tokenizer_ids(folder: Path) -> dict[str, int]:
    from .tokenizers import load

    return load(folder / "tokenizer.json").get_vocab(with_added_tokens=True)


def longest(options: dict[str, Any], positions: Any) -> Iterator[Finding]:
    said = options.get("model_max_length")
    if not is_count(positions):
        return
    if not isinstance(said, int | float) or said > NO_LIMIT:
        fact = (
            f"tokenizer_config.json sets no model_max_length, and the model has {positions:,} "
            "positions"
        )
        yield note(
            "max-length",
            fact,
            (
                'Longer texts break it unless every caller truncates: set "model_max_length": '
                f"{positions}."
            ),
        )
    elif said > positions:
        fact = (
            f"model_max_length is {said:,} in tokenizer_config.json, and the model has "
            f"{positions:,} positions"
        )
        yield warning(
            "max-length",
            fact,
            f"Texts between the two break it with an index error: set it to {positions}.",
        )
