"""The files of a tokenizer: a fixed list. Nothing else in its folder is copied or published."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import read_json

TOKENIZER_FILE = "tokenizer.json"
SETTINGS_FILE = "tokenizer_config.json"
SENTENCEPIECE = ("spiece.model", "sentencepiece.bpe.model", "spm.model")
# Those that hold a vocabulary: a tokenizer is one of them, with or without settings.
VOCABULARY_FILES = (TOKENIZER_FILE, "vocab.txt", "vocab.json", *SENTENCEPIECE, "tokenizer.model")
TOKENIZER_FILES = (
    *VOCABULARY_FILES,
    SETTINGS_FILE,
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
)
# Where a tokenizer came from and how it was loaded there, which is of no use to whoever gets it;
# and code and templates, which an encoder's tokenizer does not have.
_ORIGIN = (
    "auto_map",
    "cache_dir",
    "chat_template",
    "code_revision",
    "custom_pipelines",
    "fast_tokenizer_files",
    "is_local",
    "local_files_only",
    "name_or_path",
    "proxies",
    "revision",
    "special_tokens_map_file",
    "subfolder",
    "token",
    "tokenizer_file",
    "trust_remote_code",
    "use_auth_token",
)


def tokenizer_files(folder: Path) -> list[Path]:
    """The files of the list that are in the folder."""
    return [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]


def must_be_readable(folder: Path) -> None:
    """Raises UserError for a tokenizer that is a SentencePiece model alone, as DeBERTaV3's
    published ones are, if the library that reads it is not installed."""
    there = [name for name in SENTENCEPIECE if (folder / name).is_file()]
    if there and not (folder / TOKENIZER_FILE).is_file() and find_spec("sentencepiece") is None:
        raise UserError(f"{folder / there[0]} is read with a library: pip install sentencepiece")


def read_settings(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json, {} if there is none."""
    path = folder / SETTINGS_FILE
    return read_json(path) if path.is_file() else {}


def write_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """tokenizer_config.json as the library writes it."""
    text = json.dumps(settings, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
    (folder / SETTINGS_FILE).write_text(text, encoding="utf-8")


def without_origin(settings: Mapping[str, Any]) -> dict[str, Any]:
    """tokenizer_config.json as it is published. What begins with `_` is the library's own."""
    return {k: v for k, v in settings.items() if k not in _ORIGIN and not k.startswith("_")}


def read_tokenizer(folder: Path) -> dict[str, Any]:
    """tokenizer.json with a `model` that has a vocabulary. Raises UserError."""
    path = folder / TOKENIZER_FILE
    found = read_json(path)
    model = found.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict | list):
        raise UserError(f"{path} is not a tokenizer: it has no model with a vocabulary")
    return found


def copy_tokenizer(source: Path, target: Path) -> list[str]:
    """Copies the files of the list into the folder `target` and returns their names."""
    target.mkdir(parents=True, exist_ok=True)
    found = tokenizer_files(source)
    for path in found:
        shutil.copyfile(path, target / path.name)
    return [path.name for path in found]
