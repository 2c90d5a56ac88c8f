"""The files of a tokenizer: a fixed list. Nothing else in its folder is opened, copied or
published."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import UserError
from .followed import MAX_TEMPLATE_BYTES, must_not_lead_out, must_stay
from .reading import MB, FileError, must_be_regular, open_regular, read_object, sha256_of
from .schema import check

TOKENIZER_FILE = "tokenizer.json"
SETTINGS_FILE = "tokenizer_config.json"
# The largest published ones (a quarter of a million pieces) stay below 40 MB; a file beyond this is
# a mistake or an attack on memory.
MAX_FILE_BYTES = 256 * MB
# Name -> bytes at most. Pieces and merges are read into memory as a whole; settings are short, and
# a template is a page.
TOKENIZER_FILES = {
    TOKENIZER_FILE: MAX_FILE_BYTES,
    SETTINGS_FILE: 64 * MB,  # it repeats added tokens, of which byte-level ones have thousands
    "special_tokens_map.json": 16 * MB,
    "added_tokens.json": 16 * MB,
    "vocab.txt": MAX_FILE_BYTES,
    "vocab.json": MAX_FILE_BYTES,
    "merges.txt": MAX_FILE_BYTES,
    "spiece.model": MAX_FILE_BYTES,
    "sentencepiece.bpe.model": MAX_FILE_BYTES,
    "spm.model": MAX_FILE_BYTES,
    "tokenizer.model": MAX_FILE_BYTES,
    "chat_template.jinja": MAX_TEMPLATE_BYTES,
}
# Those that hold a vocabulary: a tokenizer is one of them, with or without settings.
VOCABULARY_FILES = (
    TOKENIZER_FILE,
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "spm.model",
    "tokenizer.model",
)
SENTENCEPIECE = ("spiece.model", "sentencepiece.bpe.model", "spm.model")
# An encoder has no chat.
COPIED = tuple(name for name in TOKENIZER_FILES if name != "chat_template.jinja")
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
CHUNK = 1 << 20


def must_be_readable(folder: Path) -> None:
    """Raises UserError for a tokenizer that is a SentencePiece model alone, as DeBERTaV3's
    published ones are, if the library that reads it is not installed."""
    there = [name for name in SENTENCEPIECE if (folder / name).is_file()]
    if there and not (folder / TOKENIZER_FILE).is_file() and find_spec("sentencepiece") is None:
        raise UserError(f"{folder / there[0]} is read with a library: pip install sentencepiece")


def tokenizer_content(folder: Path) -> str:
    """A hash of the files of a tokenizer, which tells two folders of one name apart. Raises
    FileError for a file that may not be read."""
    digest = hashlib.sha256()
    for name in TOKENIZER_FILES:
        if os.path.lexists(folder / name):
            digest.update(f"{name} {sha256_of(folder / name, within=folder)}\n".encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Settings:
    """The fields of tokenizer_config.json that we read ourselves; the rest is the library's."""

    model_max_length: float | None = None
    tokenizer_class: str | None = None
    model_input_names: list[str] | None = None
    padding_side: str | None = None
    truncation_side: str | None = None


def tokenizer_files(folder: Path) -> list[Path]:
    """The files of the list that are in the folder, whatever they are."""
    return [folder / name for name in TOKENIZER_FILES if os.path.lexists(folder / name)]


def must_be_plain(folder: Path, *, within: Path | None = None) -> None:
    """Raises UserError if a tokenizer's file in `folder` is not regular, leads out of `within` (by
    default the folder), is larger than any of its kind, sends the library elsewhere, or has
    settings that the code that follows cannot work with."""
    top = within or folder
    must_not_lead_out(folder, within=top, limits=TOKENIZER_FILES)
    for path in tokenizer_files(folder):
        must_be_regular(path, within=top, limit=TOKENIZER_FILES[path.name])
    must_stay(folder / SETTINGS_FILE, read_settings(folder, within=top))


def read_settings(folder: Path, *, within: Path | None = None) -> dict[str, Any]:
    """tokenizer_config.json, {} if there is none. Raises UserError if a field that we read has the
    wrong type."""
    path = folder / SETTINGS_FILE
    if not os.path.lexists(path):
        return {}
    raw = read_object(path, limit=TOKENIZER_FILES[SETTINGS_FILE], within=within or folder)
    check(Settings, raw, str(path), more=True)
    return raw


def without_origin(settings: Mapping[str, Any]) -> dict[str, Any]:
    """tokenizer_config.json as it is published. What begins with `_` is the library's own."""
    return {
        key: value
        for key, value in settings.items()
        if key not in _ORIGIN and not key.startswith("_")
    }


def write_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """tokenizer_config.json as the library writes it."""
    (folder / SETTINGS_FILE).write_text(
        json.dumps(settings, indent=2, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8"
    )


def forget_origin(folder: Path) -> None:
    """Writes tokenizer_config.json, which the library has written there, as it is published."""
    write_settings(folder, without_origin(read_settings(folder)))


def read_tokenizer(folder: Path, *, within: Path | None = None) -> dict[str, Any]:
    """tokenizer.json with a `model` that has a type and a vocabulary. Raises UserError."""
    path = folder / TOKENIZER_FILE
    raw = read_object(path, limit=MAX_FILE_BYTES, within=within or folder, repeats=True)
    model = raw.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict | list):
        raise FileError(
            path, "is not a tokenizer: it has no model with a vocabulary", "restore it from a copy"
        )
    vocab = model["vocab"]
    if isinstance(vocab, dict) and not all(isinstance(i, int) for i in vocab.values()):
        raise FileError(
            path,
            "is not a tokenizer: an id of its vocabulary is not an integer",
            "restore it from a copy",
        )
    return raw


def copy_tokenizer(
    source: Path, target: Path, *, within: Path, hashes: Mapping[str, str] | None = None
) -> list[str]:
    """Copies the files of the list from `source` to the folder `target`, each whole or not at all,
    and returns their names.

    within: the folder that they must lie in. hashes: name -> SHA-256; where given, only these are
    copied and each must have its hash. Raises UserError before anything is written.
    """
    names = [path.name for path in tokenizer_files(source)] if hashes is None else hashes
    wanted = [name for name in names if name in COPIED]
    must_be_plain(source, within=within)
    for name in wanted if hashes is not None else ():
        if sha256_of(source / name, within=within) != (hashes or {})[name]:
            raise FileError(
                source / name,
                "does not have the hash that was recorded for it",
                "restore it from a copy",
            )
    if target.is_symlink():
        raise FileError(target, "is a link, and files would be written through it", "remove it")
    target.mkdir(parents=True, exist_ok=True)
    for name in wanted:
        _copy(source / name, target / name, within=within)
    return wanted


def _copy(source: Path, target: Path, *, within: Path) -> None:
    part = target.with_name(f".{target.name}.part")
    part.unlink(missing_ok=True)  # never written through: it may be a link
    limit = left = TOKENIZER_FILES[source.name]
    with open_regular(source, within=within, limit=limit) as f, part.open("xb") as to:
        while data := f.read(min(CHUNK, left + 1)):
            left -= len(data)
            if left < 0:
                raise FileError(source, "grows while it is copied", "try again when it is complete")
            to.write(data)
        to.flush()
        os.fsync(to.fileno())
    part.replace(target)
