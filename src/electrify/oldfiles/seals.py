"""Seals: a JSON object that carries the hash of its other fields, so that any change in it is
noticed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from .reading import FileError

# The key that holds the hash of all other fields. Files whose content cannot be compared with
# another file (sources, counts, scores) are sealed.
SEAL = "seal"


def text_of(fields: dict[str, Any]) -> str:
    """The exact text that is hashed for a seal, and written for a manifest."""
    return json.dumps(fields, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def seal_of(fields: dict[str, Any]) -> str:
    """The hash of an object's fields without the seal."""
    text = text_of({k: v for k, v in fields.items() if k != SEAL})
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def sealed(fields: dict[str, Any]) -> dict[str, Any]:
    """The object with its seal."""
    return fields | {SEAL: seal_of(fields)}


def unsealed(fields: dict[str, Any], path: Path, *, must: bool, advice: str) -> dict[str, Any]:
    """The object without its seal. must: whether it needs one (what earlier versions wrote has
    none). Raises FileError for a wrong seal."""
    if (SEAL in fields or must) and fields.get(SEAL) != seal_of(fields):
        raise FileError(
            path, "was changed after it was written: it does not have its own hash", advice
        )
    return {k: v for k, v in fields.items() if k != SEAL}
