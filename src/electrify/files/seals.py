"""Seals: a JSON object that carries the hash of its other fields, so that a changed digit in it is
seen."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from .reading import FileError

# The key of the hash of all others: what no other file can be compared with (sources, counts,
# scores) is sealed.
SEAL = "seal"


def text_of(fields: dict[str, Any]) -> str:
    """How a sealed object is hashed, and how a manifest is written, to the byte."""
    return json.dumps(fields, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def seal_of(fields: dict[str, Any]) -> str:
    """The hash of an object's fields without the seal."""
    text = text_of({k: v for k, v in fields.items() if k != SEAL})
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def sealed(fields: dict[str, Any]) -> dict[str, Any]:
    """The object with its seal."""
    return fields | {SEAL: seal_of(fields)}


def unsealed(fields: dict[str, Any], path: Path, *, must: bool, advice: str) -> dict[str, Any]:
    """The object without its seal. must: whether it has one (what earlier versions wrote has none).
    Raises FileError for another seal."""
    if (SEAL in fields or must) and fields.get(SEAL) != seal_of(fields):
        raise FileError(
            path, "was changed after it was written: it does not have its own hash", advice
        )
    return {k: v for k, v in fields.items() if k != SEAL}
