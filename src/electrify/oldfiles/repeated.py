"""Tensors that a model folder holds twice. The library takes one of the two, whichever it reads
last, and says nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .reading import FileError, open_regular

Headers = Mapping[Path, Mapping[str, Any]]
"""File -> the header of its tensors: name -> dtype, shape, data_offsets."""
ADVICE = "remove the copy that is not the model's"
_OLD_NORM = re.compile(r"(layer_?norm\.)(gamma|beta)$", re.IGNORECASE)
_NEW = {"gamma": "weight", "beta": "bias"}


def must_be_in_their_place(headers: Headers, places: Mapping[str, str]) -> None:
    """Raises FileError for a tensor in a file other than the one that the index names, or in two
    files. places: name -> name of the file."""
    seen = dict(places)
    for path, header in headers.items():
        for name in header:
            if seen.setdefault(name, path.name) != path.name:
                raise FileError(
                    path, f"holds {name[:80]}, which by the index is in {seen[name]}", ADVICE
                )


def must_not_collide(headers: Headers, *, within: Path) -> None:
    """Raises FileError for two names that become one in loading, if their values differ: with and
    without the name of the encoder in front, and the old and the new name of a LayerNorm's
    parameters."""
    found: dict[str, tuple[Path, str]] = {}
    for path, header in headers.items():
        for name in header:
            place = (path, name)
            other = found.setdefault(_renamed(name), place)
            if other != place:
                _must_be_equal(other, place, headers, within)
    for renamed, place in found.items():
        _, _, bare = renamed.partition(".")
        if bare in found:
            _must_be_equal(place, found[bare], headers, within)


def _renamed(name: str) -> str:
    return _OLD_NORM.sub(lambda old: old[1] + _NEW[old[2].lower()], name)


def _must_be_equal(
    one: tuple[Path, str], other: tuple[Path, str], headers: Headers, within: Path
) -> None:
    a, b = (headers[path][name] for path, name in (one, other))
    if a.get("shape") != b.get("shape"):
        return
    if a.get("dtype") != b.get("dtype") or _bytes(one[0], a, within) != _bytes(other[0], b, within):
        raise FileError(
            one[0],
            f"{one[1][:80]} and {other[1][:80]} are two names of one weight, with different values",
            ADVICE,
        )


def _bytes(path: Path, tensor: Mapping[str, Any], within: Path) -> bytes:
    """The bytes of a tensor; none if the header is damaged, which the library itself reports."""
    match tensor.get("data_offsets"):
        case [int(begin), int(end)] if 0 <= begin <= end <= path.stat().st_size:
            with open_regular(path, within=within) as f:
                f.seek(8 + int.from_bytes(f.read(8), "little") + begin)
                return f.read(end - begin)
    return b""
