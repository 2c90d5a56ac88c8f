"""Checks a Hugging Face folder before it is loaded: every file that transformers, tokenizers and
safetensors would open is looked at first.

The libraries follow what they find in JSON (`weight_map`, `configuration_files`,
`fast_tokenizer_files`), read pipes until they end, and silently accept integers as weights.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from ..errors import UserError
from ..hub import file_of
from .folders import MARK
from .followed import CONFIG, MAX_CONFIG_BYTES
from .reading import (
    MB,
    FileError,
    MissingError,
    json_of,
    must_be_regular,
    open_regular,
    read_object,
    sha256_of,
)
from .repeated import must_be_in_their_place, must_not_collide
from .schema import Rule, Sha256, check, is_file_name
from .seals import unsealed
from .tokenizers import must_be_plain

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_HEADER_BYTES = 100_000_000  # the library's own limit
FLOATS = ("F64", "F32", "F16", "BF16")
# Tables that old versions of transformers stored beside the weights, and that are computed anew:
# never trained.
COUNTED = re.compile(
    r"(^|\.)(position_ids|token_type_ids|num_batches_tracked|masked_bias|relative_position_index)$"
    r"|\.attn(\.attention)?\.bias$"
)
SAVED_AGAIN = "load it where it was made and save it in float32"
EXPORT_AGAIN = (
    "remove it and export again; if the change is yours, remove electrify.json, and the folder is "
    "a model like any other"
)
COPY_OF_ITS_OWN = (
    "ask its owner for a new upload, or download it, remove electrify.json there and name that "
    "folder"
)


@dataclass(frozen=True)
class Mark:
    """electrify.json: what a folder of ours holds."""

    format: int = 1
    part: str | None = None
    objective: str | None = None
    logits: Literal["token", "replaced", "energy", "choice"] | None = None
    """What its head says (config/rows.py); None in exports that were made before it was written
    down, where the objective tells."""
    data: str | None = None
    weights_sha256: Sha256 | None = None
    unfinished: bool = False
    """True while files take their places: if it is found later, writing was interrupted."""
    files: dict[Annotated[str, Rule("a file name", is_file_name)], Sha256 | None] = field(
        default_factory=dict
    )
    """Name -> hash of each file that a program reads (README.md has none); empty in exports that
    were made before these were recorded."""


def read_mark(folder: Path) -> Mark | None:
    """The mark of our export; None if the folder is not one. Raises UserError if the mark is
    damaged."""
    path = folder / MARK
    if not os.path.lexists(path):
        return None
    raw = read_object(path, limit=MB, within=folder)
    raw = unsealed(raw, path, must="files" in raw, advice=EXPORT_AGAIN)
    return check(Mark, raw, str(path), more=True)


def mark_named(name: str) -> Mark | None:
    """The mark of the export of this name, a folder or an id of the Hub whose config.json was read;
    else as `read_mark`. The libraries do not fetch the mark, and without it energies and choices
    look like other logits."""
    folder = Path(name)
    if folder.is_dir():
        return read_mark(folder)
    there = file_of(name, MARK)
    return read_mark(there.parent) if there else None


def look_over(folder: Path, *, snapshot: bool = False) -> None:
    """Raises UserError, naming the file, if a model folder holds what the libraries must not
    follow, or is not what we exported there. snapshot: whether it is a model of the Hub in its
    cache, where files are missing that no library has asked for."""
    try:
        _must_be_whole(folder)
        must_be_plain(folder)
        config = read_object(folder / CONFIG, limit=MAX_CONFIG_BYTES, within=folder)
        if config.get("quantization_config") is not None:
            raise FileError(
                folder / CONFIG,
                "says that the weights are quantised (quantization_config)",
                SAVED_AGAIN,
            )
        files = weight_files(folder)
        for file in files:
            must_hold_floats(file, within=folder)
        headers = {file: _weights_in(file, within=folder) for file in files}
        if files and folder / WEIGHTS not in files:
            must_be_in_their_place(headers, _places_of(folder / INDEX))
        must_not_collide(headers, within=folder)
        _must_be_as_exported(folder, snapshot=snapshot)
    except OSError as e:
        raise UserError(f"{folder}: cannot be read ({e.strerror or e})") from e


def _must_be_whole(folder: Path) -> None:
    if os.path.lexists(folder / "adapter_config.json"):
        raise FileError(
            folder / "adapter_config.json",
            "is of an adapter, whose model lies elsewhere",
            "merge the two and save the whole model",
        )


def weight_files(folder: Path) -> list[Path]:
    """model.safetensors, or the shards that its index names; none if there is neither. Raises
    FileError if a shard is not a file in that folder."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    index = folder / INDEX
    if not os.path.lexists(index):
        return []
    names = sorted(set(_places_of(index).values()))
    for name in names:
        try:
            must_be_regular(folder / name, within=folder)
        except MissingError as e:
            raise FileError(index, f"names {name}, which is missing", "copy it there") from e
    return [folder / name for name in names]


def _places_of(index: Path) -> dict[str, str]:
    """The file of each tensor that an index names. Raises FileError if the library would not read
    it, or would read files elsewhere."""
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
    return places


def header_of(path: Path, *, within: Path) -> dict[str, Any] | None:
    """The header of a safetensors file; None if it is damaged, which the library reports in its own
    words."""
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


def _weights_in(path: Path, *, within: Path) -> dict[str, Any]:
    """What the header says about each weight; nothing if the header is damaged."""
    return {
        name: tensor
        for name, tensor in (header_of(path, within=within) or {}).items()
        if name != "__metadata__" and isinstance(tensor, dict) and not COUNTED.search(name)
    }


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


def _must_be_as_exported(folder: Path, *, snapshot: bool) -> None:
    """Raises FileError if a file of an export of ours does not have the hash that was recorded when
    it was checked."""
    mark = read_mark(folder)
    if mark is None:
        return
    hashes = mark.files or ({WEIGHTS: mark.weights_sha256} if mark.weights_sha256 else {})
    for name, want in hashes.items():
        if snapshot and not os.path.lexists(folder / name):
            continue
        if want is not None and sha256_of(folder / name, within=folder) != want:
            raise FileError(
                folder / name,
                f"does not have the hash in {MARK}: it was changed after the export",
                COPY_OF_ITS_OWN if snapshot else EXPORT_AGAIN,
            )
