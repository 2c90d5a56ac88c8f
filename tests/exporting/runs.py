"""Small run folders, written without training: a recipe, a tokenizer, a record, and networks with
random weights far from their initial values."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from batches import shaken
from electrify.build import Built, Vocabulary, build
from electrify.exporting import folder as hf
from electrify.exporting.folder import read_run
from electrify.recipe import Recipe, dump, load, override
from electrify.tokens import SpecialIds
from electrify.train import checkpoint
from electrify.train.job import decisive

_WORDS = "the a chef ate cooked meal cat dog sat on mat . ##s ##ed ran very fast and"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_WORDS.split()]
STATE = {
    "tokens": 100, "seconds": 1.0, "window": {}, "validation": {}, "monitor": [],
    "conditions": {}, "left_out": 0,
}  # fmt: skip
SPECIAL = SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)

_FIELDS: dict[str, Any] = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2}
_FIELDS |= {"intermediate_size": 24, "embedding_size": 8, "max_position_embeddings": 20}
_FIELDS |= {"dropout": 0.1, "attention_dropout": 0.2, "init": "bert", "init_words": "random"}
_FIELDS |= {"max_seq_length": 16, "max_steps": 10, "train_batch_size": 4}
_FIELDS |= {"learning_rate": 1e-3, "warmup_steps": 1}
RTD, MLM = (override(load(name), _FIELDS) for name in ("electra-tiny", "bert-tiny"))

_FULL = {"embedding_size": 16, "generator_size": 1.0}
ENCODERS: dict[str, dict[str, Any]] = {
    "electra": {},
    "modernbert": _FULL | {"architecture": "modernbert", "local_attention": 4},
    "deberta": _FULL | {"architecture": "deberta", "position_buckets": 8},
}
"""Fields of the recipes with each encoder."""


def write_tokenizer(folder: Path, words: list[str] | None = None) -> Path:
    """A Hugging Face folder of a word-piece tokenizer."""
    from tokenizers import BertWordPieceTokenizer

    folder.mkdir(parents=True)
    words = words or WORDS
    (folder / "vocab.txt").write_text("".join(f"{w}\n" for w in words), encoding="utf-8")
    BertWordPieceTokenizer(str(folder / "vocab.txt")).save(str(folder / "tokenizer.json"))
    options = {f"{word.strip('[]').lower()}_token": word for word in WORDS[:5]}
    options |= {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    options |= {"model_max_length": 512}
    (folder / "tokenizer_config.json").write_text(json.dumps(options), encoding="utf-8")
    return folder


def random_built(config: Recipe, *, vocab_size: int = len(WORDS), seed: int = 1) -> Built:
    built = build(config, Vocabulary(vocab_size, SPECIAL))
    shaken(built.objective, seed)
    return built


def write_run(folder: Path, config: Recipe, *, steps: tuple[int, ...] = ()) -> Built:
    """A run folder; the networks after the last of `steps` (or with no checkpoint)."""
    write_tokenizer(folder / "tokenizer")
    (folder / "config.yaml").write_text(dump(config), encoding="utf-8")
    built = random_built(config)
    facts = {
        "recipe": decisive(config),
        "starts": {},
        "shapes": {name: asdict(model.encoder.shape) for name, model in built.exports.items()},
        "machine": {"device_name": "Abacus 3", "torch": torch.__version__, "commit": None},
        "data": "d" * 64,
        "tokenizer_sha256": "e" * 64,
        "vocab_size": len(WORDS),
        "special_ids": asdict(SPECIAL),
        "corpus": {
            "counts": {"documents": 12, "tokens": 3456.0},
            "sources": [
                {"name": "part|1<b>.txt", "bytes": 99, "sha256": "f" * 64},
                {"name": "/home/somebody/secret.txt", "bytes": 1},
            ],
        },
    }
    (folder / "run.json").write_text(json.dumps(facts), encoding="utf-8")
    records = [
        {"kind": "train", "step": 5, "tokens": 5_000, "seconds": 36.0},
        {"kind": "train", "step": 10, "tokens": 10_000, "seconds": 36.0},
        {"kind": "valid", "step": 10, "tokens": 10_000, "rtd": 0.4321, "seconds": 40.0},
    ]
    log = "".join(f"{json.dumps(record)}\n" for record in records)
    (folder / "metrics.jsonl").write_text(log, encoding="utf-8")
    for step in steps:
        built = random_built(config, seed=step)
        model = {n: p.detach().clone() for n, p in built.objective.named_parameters()}
        groups = {"model": model, "optimizer": {}}
        checkpoint.save(folder, step, groups, STATE | {"step": step}, keep=None)
    return built


def export_run(run: Path, built: Built) -> dict[str, Path]:
    """As a run exports at its end."""
    config, facts = read_run(run)
    return hf.export_run(run, built, config=config, facts=facts)


def exports(folder: Path, config: Recipe, **fields: Any) -> dict[str, Path]:
    """The exported networks of a run with random weights."""
    return export_run(folder, write_run(folder, override(config, fields)))
