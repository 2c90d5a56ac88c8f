"""Checks a Hugging Face folder before it is loaded: every file that transformers, tokenizers and
safetensors would open is looked at first.

The libraries follow what stands in JSON (`weight_map`, `configuration_files`,
`fast_tokenizer_files`), read pipes until they end, and silently accept integers as weights.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from ..console import brief
from ..errors import UserError
from .folders import MARK
from .reading import (
    MAX_JSON_BYTES,
    MB,
    FileError,
    MissingError,
    json_of,
    must_be_regular,
    open_regular,
    read_object,
    sha256_of,
)
from .schema import Rule, Sha256, check, is_file_name
from .seals import unsealed
from .tokenizers import TOKENIZER_FILES, must_be_plain, read_settings

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_CONFIG_BYTES = 16 * MB  # the longest published ones list their labels, some ten thousand
MAX_HEADER_BYTES = 100_000_000  # the library's own limit
MAX_LAYERS = 1000  # each is a Python object, so a wrong number costs time before it costs memory
# A configuration makes a name for each label before it is asked what weights there are; the largest
# published sets have thousands.
MAX_LABELS = 1 << 20
FLOATS = ("F64", "F32", "F16", "BF16")
# Tables that old versions of transformers stored beside the weights, and that are computed anew:
# never trained.
COUNTED = re.compile(
    r"(^|\.)(position_ids|token_type_ids|num_batches_tracked|masked_bias|relative_position_index)$"
    r"|\.attn(\.attention)?\.bias$"
)
SAVED_AGAIN = "load it where it was made and save it in float32"
WRONG = "the number is wrong: restore the file from a copy"
EXPORT_AGAIN = (
    "remove it and export again; if the change is yours, remove electrify.json, and the folder is "
    "a model like any other"
)
SIZES = (  # what configurations of the library call so, whatever the model
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
)
# Endings of files that the libraries look for.
_READ = (".json", ".jinja", ".safetensors", ".model", ".tiktoken", ".bpe", ".codes")
_LIMITS = {CONFIG: MAX_CONFIG_BYTES} | TOKENIZER_FILES
_LAYERS = re.compile(r"(n|num|encoder|decoder)(_\w+)?_layers?")
_ELSEWHERE = {
    CONFIG: ("configuration_files", "transformers_weights"),
    "tokenizer_config.json": ("fast_tokenizer_files",),
}


@dataclass(frozen=True)
class Mark:
    """electrify.json: what a folder of ours holds."""

    format: int = 1
    part: str | None = None
    objective: str | None = None
    data: str | None = None
    weights_sha256: Sha256 | None = None
    unfinished: bool = False
    """True while files take their places: writing was interrupted where that is found."""
    files: dict[Annotated[str, Rule("a file name", is_file_name)], Sha256 | None] = field(
        default_factory=dict
    )
    """Name -> hash of what a program reads (README.md has none); empty in exports that were made
    before these were written down."""


def read_mark(folder: Path) -> Mark | None:
    """The mark of our export; None if the folder is not one. Raises UserError if the mark is
    damaged."""
    path = folder / MARK
    if not os.path.lexists(path):
        return None
    raw = read_object(path, limit=MB, within=folder)
    raw = unsealed(raw, path, must="files" in raw, advice=EXPORT_AGAIN)
    return check(Mark, raw, str(path), more=True)


def look_over(folder: Path) -> None:
    """Raises UserError, naming the file, where a model folder holds what the libraries must not
    follow, or is not what we exported there."""
    try:
        for path in _read_by_libraries(folder):
            must_be_regular(
                path,
                within=folder,
                limit=None
                if path.suffix == ".safetensors"
                else _LIMITS.get(path.name, MAX_JSON_BYTES),
            )
        must_be_plain(folder)
        settings = {
            CONFIG: read_object(folder / CONFIG, limit=MAX_CONFIG_BYTES, within=folder),
            "tokenizer_config.json": read_settings(folder),
        }
        _must_be_modest(folder / CONFIG, settings[CONFIG])
        for name, keys in _ELSEWHERE.items():
            _must_stay(folder / name, {k: settings[name][k] for k in keys if k in settings[name]})
        if settings[CONFIG].get("quantization_config") is not None:
            raise FileError(
                folder / CONFIG,
                "says that the weights are quantised (quantization_config)",
                SAVED_AGAIN,
            )
        for file in weight_files(folder):
            must_hold_floats(file, within=folder)
        _must_be_as_exported(folder)
    except OSError as e:
        raise UserError(f"{folder}: cannot be read ({e.strerror or e})") from e


def _read_by_libraries(folder: Path) -> Iterator[Path]:
    if os.path.lexists(folder / "adapter_config.json"):
        raise FileError(
            folder / "adapter_config.json",
            "is of an adapter, whose model lies elsewhere",
            "merge the two and save the whole model",
        )
    yield from (
        p for p in sorted(folder.iterdir()) if p.suffix in _READ and not p.name.startswith(".")
    )
    templates = folder / "additional_chat_templates"
    if os.path.lexists(templates):
        raise FileError(
            templates, "holds chat templates, which an encoder does not have", "remove it"
        )


def _must_be_modest(path: Path, settings: dict[str, Any]) -> None:
    """Raises FileError for numbers of which the library makes a list while it reads them: of
    labels, and in some architectures of layers; and for sizes that no model has."""
    odd = [text for text in impossible_sizes(settings) if not text.endswith(" None")]
    if odd:
        raise FileError(path, f"has numbers that no model has: {', '.join(odd)}", WRONG)
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
                    WRONG,
                )
            elif isinstance(value, int) and key == "num_labels" and value > MAX_LABELS:
                raise FileError(
                    path, f"says num_labels {_shown(value)}, and no model has so many labels", WRONG
                )


def impossible_sizes(settings: dict[str, Any]) -> list[str]:
    """Sizes in a config.json that are not numbers from 1. A list of them is the library's."""
    found = ((name, settings[name]) for name in SIZES if name in settings)
    return [
        f"{name} {brief(value)}"
        for name, value in found
        if not isinstance(value, list)
        and (isinstance(value, bool) or not isinstance(value, int) or value < 1)
    ]


def _shown(n: int) -> str:
    return f"{n:,}" if abs(n) < 1 << 64 else brief(n)


def _must_stay(path: Path, names: dict[str, Any]) -> None:
    """Raises FileError if a settings file sends the library to other files."""
    for key, value in names.items():
        if value is not None and value != WEIGHTS:
            raise FileError(
                path,
                f"names other files to read instead ({key})",
                "remove that key, and name them as usual",
            )


def weight_files(folder: Path) -> list[Path]:
    """model.safetensors, or the shards that its index names; none where there is neither. Raises
    FileError where a shard is not a file in there."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    index = folder / INDEX
    if not os.path.lexists(index):
        return []
    names = _shards_of(index)
    for name in names:
        try:
            must_be_regular(folder / name, within=folder)
        except MissingError as e:
            raise FileError(index, f"names {name}, which is missing", "copy it there") from e
    return [folder / name for name in names]


def _shards_of(index: Path) -> list[str]:
    """The files that an index names. Raises FileError where the library would not read it, or would
    read files elsewhere."""
    raw = read_object(index, within=index.parent)
    places = raw.get("weight_map")
    if not isinstance(places, dict) or not places:
        raise FileError(
            index, "does not say which file holds what (weight_map)", "restore it from a copy"
        )
    for name in places.values():
        if not is_file_name(name) or not name.endswith(".safetensors"):
            raise FileError(
                index,
                f"names {str(name)[:80]!r}, which is not a .safetensors file of this folder",
                "restore it from a copy",
            )
    if not isinstance(raw.get("metadata"), dict):
        raise FileError(
            index,
            "has no metadata (an object), without which the library does not read it",
            'add "metadata": {}',
        )
    return sorted(set(places.values()))


def header_of(path: Path, *, within: Path) -> dict[str, Any] | None:
    """The header of a file of safetensors; None where it is damaged, which the library says in its
    own words."""
    with open_regular(path, within=within) as f:
        size = int.from_bytes(f.read(8), "little")
        if size > MAX_HEADER_BYTES:
            return None
        raw = f.read(size)
    try:
        found = json_of(raw, path)
    except FileError:
        return None
    return found if isinstance(found, dict) else None


def must_hold_floats(path: Path, *, within: Path) -> None:
    """Raises FileError if weights are stored as integers or in 8 bits, which loading would use as
    if they were the values themselves."""
    for name, tensor in (header_of(path, within=within) or {}).items():
        dtype = tensor.get("dtype") if isinstance(tensor, dict) else None
        if (
            name != "__metadata__"
            and isinstance(dtype, str)
            and dtype not in FLOATS
            and not COUNTED.search(name)
        ):
            raise FileError(
                path,
                (
                    f"holds {name[:80]} as {dtype[:20]}, and weights are numbers of "
                    f"{', '.join(FLOATS)}"
                ),
                SAVED_AGAIN,
            )


def _must_be_as_exported(folder: Path) -> None:
    """Raises FileError where a file of an export of ours does not have the hash that was written
    down when it was checked."""
    mark = read_mark(folder)
    if mark is None:
        return
    hashes = mark.files or ({WEIGHTS: mark.weights_sha256} if mark.weights_sha256 else {})
    for name, want in hashes.items():
        if want is not None and sha256_of(folder / name, within=folder) != want:
            raise FileError(
                folder / name,
                f"does not have the hash in {MARK}: it was changed after the export",
                EXPORT_AGAIN,
            )
