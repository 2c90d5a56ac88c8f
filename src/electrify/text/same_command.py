"""Whether a folder was made, or begun, by the same command as the current one."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..config.prepare import PrepareConfig
from ..errors import UserError
from ..oldfiles.folders import foreign, is_temporary, remove_temporaries
from ..oldfiles.lock import lock
from ..oldfiles.tokenizers import tokenizer_content
from .manifest import MANIFEST, Manifest, read_manifest
from .placed import UNFINISHED, clear, unfinished_state
from .shards import Corpus, verify_common
from .source import Source, legible
from .splits import SPLITS

GIVEN = "tokenizer_content"
"""The hash of the tokenizer that was given: many folders are called `tokenizer`."""


def bytes_deciding(options: PrepareConfig) -> dict[str, Any]:
    """The options that affect the bytes of the result, without absolute paths. Those of
    pre-tokenizers are left out if they have no effect, as in folders made before they existed."""
    rest = {
        k: v
        for k, v in asdict(options).items()
        if k not in ("inputs", "output_dir", "workers", "engine", "allow_unk")
    }
    for name, usual in (("pre_tokenizer", "auto"), ("chunk_length", None)):
        if rest[name] == usual:
            del rest[name]
    rest["strip_accents"] = options.accents_stripped
    # A kind of tokenizer that is trained is not the folder that happens to have its name.
    if not options.trains_tokenizer and Path(options.tokenizer).is_dir():
        rest["tokenizer"] = legible(Path(options.tokenizer).resolve().name)
        rest[GIVEN] = tokenizer_content(Path(options.tokenizer))
    return rest


def finished(options: PrepareConfig, sources: list[Source]) -> Manifest | None:
    """The verified manifest of a folder that the same command has finished; None if it is not
    finished. Raises UserError if the folder holds something else."""
    folder = Path(options.output_dir)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; name a folder for the prepared corpus")
    if not os.path.lexists(folder / MANIFEST):
        inside = folder / UNFINISHED
        # A run was killed here before it recorded that the folder is ours.
        begun = inside.is_dir() and not inside.is_symlink() and not foreign(inside)
        others = [
            name
            for name in foreign(folder)
            if not name.startswith(".") and not (name == UNFINISHED and begun)
        ]
        if others and unfinished_state(folder) is None:
            raise UserError(
                f"{folder} holds other files ({', '.join(others[:3])} ...); choose a new or empty "
                "folder"
            )
        return None
    manifest = read_manifest(folder)
    must_be_same(
        folder, manifest.options, manifest.sources, options, [s.identity() for s in sources]
    )
    for split in SPLITS:
        Corpus(folder, split).verify()
    verify_common(folder, manifest)
    # A command that was killed after it wrote the manifest leaves these.
    if unfinished_state(folder) is not None or any(map(is_temporary, folder.iterdir())):
        with lock(folder):
            clear(folder / UNFINISHED)
            remove_temporaries(folder)
    return manifest


def must_be_same(
    folder: Path,
    had: dict[str, Any],
    sources: list[dict[str, Any]],
    options: PrepareConfig,
    identities: list[dict[str, Any]],
) -> None:
    now = bytes_deciding(options)
    # Earlier versions wrote down the name only.
    if GIVEN in now and had.get(GIVEN, now[GIVEN]) != now[GIVEN]:
        raise UserError(
            f"{folder} holds another run: it was made with another tokenizer than "
            f"{options.tokenizer} is now; choose another folder or remove it"
        )
    now.pop(GIVEN, None)
    had = {name: value for name, value in had.items() if name != GIVEN}
    for name in sorted(now.keys() | had.keys()):
        if had.get(name) != now.get(name):
            raise UserError(
                f"{folder} holds another run: its {name} is {had.get(name)!r}, now "
                f"{now.get(name)!r}; choose another folder or remove it"
            )
    if sources != identities:
        what = "other inputs"
        if [row["name"] for row in identities] == [row["name"] for row in sources]:
            what = "other contents of " + next(
                a["name"] for a, b in zip(identities, sources, strict=True) if a != b
            )
        raise UserError(
            f"{folder} holds another run: it was made from {what}; choose another folder or remove "
            "it"
        )


def mended(had: dict[str, Any], options: dict[str, Any], identities: list[dict[str, Any]]) -> str:
    """The first input whose content has changed, if options and names have not: somebody has mended
    the file that stopped the run."""
    if had["options"] != options or [row["name"] for row in had["sources"]] != [
        row["name"] for row in identities
    ]:
        return ""
    return next(
        (now["name"] for then, now in zip(had["sources"], identities, strict=True) if then != now),
        "",
    )
