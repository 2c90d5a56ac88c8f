"""Resolves DATA as the user gives it: a prepared corpus, or text that is prepared first."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import UserError
from ..progress import say
from .manifest import MANIFEST


def prepared(data: str, run: Path) -> Path:
    """The prepared folder: `data` itself, or RUN-data made from the corpus `data` with the defaults
    of `electrify prepare`."""
    from ..config.prepare import PrepareConfig
    from .placed import unfinished_state
    from .prepare import prepare

    if os.path.lexists(Path(data) / MANIFEST):
        return Path(data)
    if unfinished_state(Path(data)) is not None:
        raise UserError(
            f"{data} is a prepared corpus that was never finished; repeat its `electrify prepare`, "
            "which continues"
        )
    if os.path.isdir(data) and any(Path(data).glob("tokens-train-*.bin")):
        raise UserError(
            f"{data} holds tokens of a prepared corpus and no {MANIFEST}; put that back, or repeat "
            "its `electrify prepare` into another folder"
        )
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError(
            f"{data} is not a prepared corpus; run `electrify prepare {data} --output-dir DATA` "
            "before several processes train on it"
        )
    run = run if run.name not in ("", "..") else run.resolve()
    if not run.name:
        raise UserError(
            f"{run} has no name beside which a corpus could be prepared; choose another "
            "--output-dir"
        )
    folder = run.with_name(run.name + "-data")
    say(f"{data} is not a prepared corpus: preparing it into {folder}")
    prepare(PrepareConfig(inputs=(data,), output_dir=str(folder)))
    return folder
