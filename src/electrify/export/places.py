"""Checks whether a name can be a model or a run, before anything heavy is loaded, so that a typo is
reported at once."""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import UserError
from ..hub import must_be_reachable
from ..oldfiles.model_folder import must_be_whole
from ..oldfiles.models import look_over
from ..oldfiles.reading import is_there
from ..oldfiles.run_folder import HEADER, must_not_be_in_first_stage

RANDOM = "random:"  # before the name of a model: its shape with random weights


def may_be_on_hub(name: str) -> bool:
    """Whether a name that is not a folder may be an id of the Hub: not if its parent is a folder
    here, as with a mistyped folder."""
    beside_a_folder = "/" in name and Path(name).parent.is_dir()
    return not beside_a_folder and re.fullmatch(r"\w[\w.-]*(/[\w.-]+)?", name) is not None


def check_place(path: str) -> None:
    """Raises UserError for a name that is meant as a folder and is not one, and for one that the
    Hub, asked once, does not know."""
    if Path(path).is_dir():
        must_be_whole(Path(path))
        if not (Path(path) / "config.json").is_file():
            inner = next(
                (
                    f"; did you mean {path.rstrip('/')}/{sub}?"
                    for sub in ("discriminator", "encoder")
                    if (Path(path) / sub / "config.json").is_file()
                ),
                "",
            )
            raise UserError(
                f"{path}: the folder holds no config.json, so it is not a Hugging Face model{inner}"
            )
        look_over(Path(path))
        return
    if Path(path).is_file():
        raise UserError(f"{path}: a file, not a folder")
    if not may_be_on_hub(path):
        raise UserError(f"{path}: no such folder")
    must_be_reachable(path, "model")


def must_be_run(run: Path) -> None:
    """Raises UserError for a folder that is not that of a run."""
    must_not_be_in_first_stage(run)
    for name in HEADER:
        if not is_there(run / name):
            raise UserError(
                f"{run} is not a run folder: it has no {name}; give the --output-dir of electrify "
                "pretrain"
            )
