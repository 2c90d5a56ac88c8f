"""Resolves DATA as the user gives it: a prepared corpus, or text that is prepared first."""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote
from typing import Any

from ..errors import UserError
from ..progress import say
from .corpus import MANIFEST, is_unfinished


def is_prepared(data: str) -> bool:
    """Whether it is a prepared corpus, by its manifest."""
    return (Path(data) / MANIFEST).exists()


def prepared(data: str, run: Path, *, tokenizer: str | None = None) -> Path:
    """The prepared folder: `data` itself, or RUN-data made from the corpus `data` with the defaults
    of `electrify prepare`. tokenizer: the one to use instead of training one: a folder, or a Hub
    id. Raises UserError."""
    from .options import PrepareConfig
    from .prepare import prepare
    from .sources import resolve

    if is_prepared(data):
        return Path(data)
    if is_unfinished(Path(data)):
        raise UserError(
            f"{data} is a prepared corpus that was never finished. Repeat its `electrify prepare`, "
            "which continues"
        )
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError(
            f"{data} is not a prepared corpus. Run `electrify prepare {quote(data)} --output-dir "
            "DATA` before several processes train on it"
        )
    run = run if run.name not in ("", "..") else run.resolve()
    folder = run.with_name(run.name + "-data")
    begun = run.exists() and (folder / MANIFEST).exists()
    if tokenizer and begun and not os.path.isdir(tokenizer):
        return folder  # a run that is continued needs neither that folder nor the Hub any more
    resolve((data,), {})  # a missing file is reported before anything is announced
    words = f" with the tokenizer of {tokenizer}" if tokenizer else ""
    say(f"{data} is not a prepared corpus: preparing it into {folder}{words}")
    how: dict[str, Any] = {"tokenizer": tokenizer} if tokenizer else {}
    prepare(PrepareConfig(inputs=(data,), output_dir=str(folder), **how))
    return folder
