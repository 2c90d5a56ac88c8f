"""A source: one input from which documents are read: a file, the corpus `pydocs`, or a data set."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError
from . import walk
from .endings import Format


@dataclass(frozen=True)
class Source:
    """One input. `name` goes into the manifest: relative, never an absolute path."""

    name: str
    format: Format
    path: Path = Path()
    hub: str = ""
    """data set name or a local folder, followed by `:CONFIG` if one was given"""
    in_folder: bool = False
    """found in a folder or by a glob, not named by the user"""
    column: str = ""
    """the column that holds the texts, if it is not the one that the options name"""

    @property
    def size(self) -> int:
        """Bytes of the file; 0 if unknown."""
        try:
            return self.path.stat().st_size if self.path.name else 0
        except OSError as e:
            raise UserError(f"{self.path} cannot be read: {e.strerror or e}") from e

    def identity(self) -> dict[str, Any]:
        """name, bytes and sha256: whether this is the same input as before. A data set is known by
        its name only, unless it is a folder here."""
        if self.format == "hub":
            return {"name": self.name} | walk.identity_of(Path(self.hub.partition(":")[0]))
        if self.format == "pydocs":
            from .pydocs import identity

            return {"name": self.name, "bytes": 0, "sha256": identity()}
        try:
            with self.path.open("rb") as f:
                return {
                    "name": self.name,
                    "bytes": self.size,
                    "sha256": hashlib.file_digest(f, "sha256").hexdigest(),
                }
        except OSError as e:
            raise UserError(f"{self.path} cannot be read: {e.strerror or e}") from e


def legible(name: str) -> str:
    """A file name as text. Bytes that are not UTF-8 are escaped, because the manifest is UTF-8."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
