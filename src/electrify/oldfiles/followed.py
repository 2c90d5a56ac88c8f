"""What the libraries open in a folder besides the files that are asked for, and what they follow in
its settings: neither may lead elsewhere or fill the memory."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..console import brief
from .reading import MAX_JSON_BYTES, MB, FileError, must_be_regular, read_object

CONFIG = "config.json"
MAX_CONFIG_BYTES = 16 * MB  # the longest published ones list their labels, some ten thousand
MAX_TEMPLATE_BYTES = MB  # a template is a page
MAX_LAYERS = 1000  # each is a Python object, so a wrong number costs time before it costs memory
# A configuration makes a name for each label before it is asked what weights there are; the largest
# published sets have thousands.
MAX_LABELS = 1 << 20
SIZES = (  # the names that the library's configurations use for these, whatever the model
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
)
_WRONG_NAMES = 'write "architectures": ["NAME OF THE CLASS"], or restore the file from a copy'
_WRONG = "the number is wrong: restore the file from a copy"
# Endings of files that the libraries look for.
_READ = (".json", ".jinja", ".safetensors", ".model", ".tiktoken", ".bpe", ".codes")
_LAYERS = re.compile(r"(n|num|encoder|decoder)(_\w+)?_layers?")
# Keys that send the library to other files.
_ELSEWHERE = ("configuration_files", "transformers_weights", "fast_tokenizer_files")
_USUAL = "model.safetensors"


def must_not_lead_out(folder: Path, *, within: Path, limits: Mapping[str, int]) -> None:
    """Raises FileError for a file that the libraries would open and that is not regular, leads out
    of `within`, or is too large; and for a config.json that sends them elsewhere.

    limits: name -> bytes at most, if not those of its ending.
    """
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.suffix in _READ and not path.name.startswith("."):
            must_be_regular(path, within=within, limit=_limit(path, limits))
    templates = folder / "additional_chat_templates"
    if os.path.lexists(templates):
        raise FileError(
            templates, "holds chat templates, which an encoder does not have", "remove it"
        )
    if os.path.lexists(folder / CONFIG):
        config = read_object(folder / CONFIG, limit=MAX_CONFIG_BYTES, within=within)
        _must_be_modest(folder / CONFIG, config)
        must_stay(folder / CONFIG, config)


def _limit(path: Path, limits: Mapping[str, int]) -> int | None:
    if path.suffix == ".safetensors":
        return None
    usual = MAX_TEMPLATE_BYTES if path.suffix == ".jinja" else MAX_JSON_BYTES
    return MAX_CONFIG_BYTES if path.name == CONFIG else limits.get(path.name, usual)


def must_stay(path: Path, settings: Mapping[str, Any]) -> None:
    """Raises FileError if a file of settings sends the library to other files."""
    for key in _ELSEWHERE:
        if settings.get(key) not in (None, _USUAL):
            raise FileError(
                path,
                f"names other files to read instead ({key})",
                "remove that key, and name them as usual",
            )


def _must_be_modest(path: Path, settings: dict[str, Any]) -> None:
    """Raises FileError for architectures that are not names; for numbers that the library turns
    into a list while it reads them: those of labels, and in some architectures of layers; and for
    sizes that no model has."""
    named = settings.get("architectures")
    if named is not None and not (
        isinstance(named, list) and all(isinstance(name, str) for name in named)
    ):
        raise FileError(path, "says architectures that are not a list of names", _WRONG_NAMES)
    odd = [text for text in impossible_sizes(settings) if not text.endswith(" None")]
    if odd:
        raise FileError(path, f"has numbers that no model has: {', '.join(odd)}", _WRONG)
    waiting: list[Any] = [settings]
    while waiting:
        found = waiting.pop()
        for key, value in found.items() if isinstance(found, dict) else ():
            if isinstance(value, dict | list):
                waiting += [value] if isinstance(value, dict) else value
            elif isinstance(value, int) and _LAYERS.fullmatch(key) and value > MAX_LAYERS:
                raise FileError(
                    path,
                    f"asks for {_shown(value)} layers; at most {MAX_LAYERS:,} are built",
                    _WRONG,
                )
            elif isinstance(value, int) and key == "num_labels" and value > MAX_LABELS:
                raise FileError(
                    path,
                    f"says num_labels {_shown(value)}, and no model has so many labels",
                    _WRONG,
                )


def impossible_sizes(settings: Mapping[str, Any]) -> list[str]:
    """Sizes in a config.json that are not numbers from 1. Some models of the library have lists."""
    found = ((name, settings[name]) for name in SIZES if name in settings)
    return [
        f"{name} {brief(value)}"
        for name, value in found
        if not isinstance(value, list)
        and (isinstance(value, bool) or not isinstance(value, int) or value < 1)
    ]


def _shown(n: int) -> str:
    return f"{n:,}" if abs(n) < 1 << 64 else brief(n)
