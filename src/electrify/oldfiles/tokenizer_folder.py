"""A tokenizer's folder inside a corpus or a run: files of a fixed list, put there one by one."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from ..errors import OutputError, UserError
from .folders import remove_temporaries, sha256
from .reading import read_bytes
from .tokenizers import COPIED, TOKENIZER_FILES, must_be_plain
from .whole import write_atomically


def tokenizer_hashes(folder: Path) -> dict[str, str]:
    """Each file of the list that exists, with its hash. Raises UserError if one is not a regular
    file: links are not followed."""
    found = {}
    for name in COPIED:
        if os.path.lexists(folder / name):
            digest = sha256(folder / name)
            if digest is None:
                raise UserError(
                    f"{folder / name} is a link or not a file, and a tokenizer is copied from "
                    "files only: put the file itself there"
                )
            found[name] = digest
    return found


def in_the_way(wanted: dict[str, str], target: Path, *, ours: Collection[str]) -> Path | None:
    """The file in `target` that must not be replaced by one of the wanted files, if there is any.
    ours: hashes of files that we put there earlier."""
    if os.path.lexists(target) and (target.is_symlink() or not target.is_dir()):
        return target
    for name, digest in wanted.items():
        if os.path.lexists(target / name) and sha256(target / name) not in {digest, *ours}:
            return target / name
    return None


def publish_tokenizer(source: Path, target: Path, *, ours: Collection[str] = ()) -> dict[str, str]:
    """Copies the files of the list from `source` and returns their hashes; other files in `target`
    stay. Only under the lock of the folder around it.

    ours: hashes of files that we put there earlier, which may be replaced. Raises UserError, before
    anything is written, where a file with other content has one of the names.
    """
    must_be_plain(source)
    wanted = tokenizer_hashes(source)
    odd = in_the_way(wanted, target, ours=ours)
    if odd is not None:
        raise OutputError(
            f"{odd} is neither of this tokenizer nor electrify's",
            "move it away, or choose another --output-dir",
        )
    target.mkdir(exist_ok=True)
    remove_temporaries(target)
    for name, digest in wanted.items():
        if sha256(target / name) != digest:
            write_atomically(
                target / name, read_bytes(source / name, limit=TOKENIZER_FILES[name], within=source)
            )
    return wanted
