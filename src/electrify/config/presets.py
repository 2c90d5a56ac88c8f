"""Options of `prepare` for kinds of text that are not prose. A preset only sets defaults: what is
given wins."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from ..errors import UserError, nearest
from .prepare import PrepareConfig


@dataclass(frozen=True)
class Preset:
    """Options that suit a kind of text, and the length of sequences to pre-train with."""

    options: dict[str, Any]
    max_seq_length: int
    """tokens that hold most of its documents"""
    about: str


# Where case is kept, accents are, too: the default of strip_accents is the value of lowercase.
PRESETS = {
    "prose": Preset(
        {"tokenizer": "wordpiece", "vocab_size": 30522, "lowercase": True},
        128,
        "text with words, as BERT reads it",
    ),
    "code": Preset(
        {
            "tokenizer": "bpe",
            "vocab_size": 16384,
            "lowercase": False,
            "document_boundary": "file",
        },
        512,
        "source code: case and indentation are kept, a file is a document",
    ),
    "smiles": Preset(
        {
            "tokenizer": "character",
            "vocab_size": 512,
            "lowercase": False,
            "document_boundary": "line",
        },
        128,
        "molecules, one a line: Cl is not cl",
    ),
    "protein": Preset(
        {
            "tokenizer": "character",
            "vocab_size": 64,
            "lowercase": False,
            "document_boundary": "line",
        },
        512,
        "sequences of amino acids, one a line",
    ),
    "dna": Preset(
        {
            "tokenizer": "character",
            "vocab_size": 4224,
            "lowercase": True,  # lower case marks repeats, which are the same bases
            "document_boundary": "line",
            "pre_tokenizer": "chunks",
            "chunk_length": 6,
        },
        512,
        "sequences of bases, one a line, as 6-mers; lower case (masked repeats) is the same base",
    ),
    "logs": Preset(
        {
            "tokenizer": "bpe",
            "vocab_size": 8192,
            "lowercase": False,
            "document_boundary": "line",
        },
        128,
        "messages of programs, one a line",
    ),
}


def from_preset(name: str, **given: Any) -> PrepareConfig:
    """The options of a preset; each of `given` wins over the preset's. Raises UserError for another
    name."""
    return PrepareConfig(**defaults_of(name, given), **given)


def defaults_of(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """What a preset sets beside the options that are given. Raises UserError for another name."""
    if name not in PRESETS:
        raise UserError(f"there is no preset {name!r}{nearest(name, PRESETS)}")
    options = {k: v for k, v in PRESETS[name].options.items() if k not in given}
    # A chunk length belongs to its pre-tokenizer, and k-mers to their tokenizer.
    kmers = given.get("tokenizer", "character") == "character"
    if given.get("pre_tokenizer", "chunks") != "chunks" or not kmers:
        options.pop("chunk_length", None)
        options.pop("pre_tokenizer", None)
    return options


def sentence(name: str, given: dict[str, Any]) -> str:
    """What the preset sets, for the user."""
    preset = PRESETS[name]
    flags = " ".join(_flag(k, v) for k, v in defaults_of(name, given).items())
    return (
        f"preset {name} ({preset.about}) sets {flags}; pretrain it with --max-seq-length "
        f"{preset.max_seq_length}"
    )


def differing(name: str, config: PrepareConfig) -> list[str]:
    """The flags of a preset whose values `config` does not already have and does not set itself,
    and that would change something beside what it sets: advice has to differ from what was asked
    for."""
    usual = {f.name: f.default for f in dataclasses.fields(PrepareConfig)}
    given = {k: getattr(config, k) for k in usual if getattr(config, k) != usual[k]}
    wanted = defaults_of(name, given)
    # Whatever the files are: only what the tokenizer does not use.
    idle = dataclasses.replace(config, **wanted).idle({"txt", "hub"})
    return [_flag(k, v) for k, v in wanted.items() if getattr(config, k) != v and k not in idle]


def _flag(name: str, value: Any) -> str:
    flag = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        return flag if value else "--no-" + flag[2:]
    return f"{flag} {value}"
