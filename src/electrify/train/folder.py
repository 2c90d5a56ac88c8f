"""The run folder: who owns it, and whether this run may continue there.

If a folder is refused, that happens before anything is written into it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import torch

from ..config.networks import KEPT, network_names
from ..config.own_source import own_source
from ..config.pretrain import RUN_MARK, PretrainConfig, dump, load_file, parse, values_of
from ..errors import OutputError, UserError
from ..oldfiles.folders import fingerprint as model_fingerprint
from ..oldfiles.folders import foreign, own_bytes, own_object
from ..oldfiles.inside import must_be_utf8, must_not_be_in_a_checkpoint, must_stay_inside
from ..oldfiles.model_folder import model_mark, must_be_as_written
from ..oldfiles.run_folder import (
    BOARD,
    CONFIG,
    FACTS,
    GENERATOR_STAGE,
    TOKENIZER,
    has_checkpoints,
    numbered,
)
from ..text.manifest import Manifest
from . import checkpoint, dist
from .decisive import FREE_FIELDS, ORDERED, SPLIT_FIELDS, STARTS, differing, is_folder

Resume = Literal["auto", "never", "must"]
MOST_LISTED = 3


def refuse(folder: Path, resume: Resume) -> None:
    """Raises UserError if the names in the folder already show that the run cannot go there. This
    happens before anything is written, the lock included."""
    must_be_utf8(folder)
    must_not_be_in_a_checkpoint(folder)
    saved = has_checkpoints(folder)
    begun = os.path.lexists(folder / CONFIG)
    if (folder / CONFIG).is_symlink():
        raise OutputError(
            f"{folder / CONFIG} is a link, and a run has its recipe in its own folder",
            "put the file itself there, or choose another --output-dir",
        )
    if begun and not is_run(folder):
        raise OutputError(
            f"{folder / CONFIG} is not the recipe of a run that electrify began",
            "choose another --output-dir",
        )
    holds = saved or begun
    if resume == "never" and holds:
        raise OutputError(
            f"{folder} holds another run",
            "choose another --output-dir, or continue it with --resume auto",
        )
    if resume == "must" and not saved:
        raise UserError(
            f"--resume must: {folder} has no checkpoint; start the run with --resume auto"
        )
    if not holds and folder.is_dir() and any(_stands_in_the_way(p) for p in folder.iterdir()):
        raise OutputError(f"{folder} is not empty and holds no run", "choose another --output-dir")
    if not saved and (folder / KEPT).exists():
        raise OutputError(
            f"{folder} holds a finished run whose checkpoints are gone",
            "choose another --output-dir",
        )
    _models_must_be_ours(folder)
    for name in (*network_names(), TOKENIZER, BOARD, GENERATOR_STAGE):
        must_stay_inside(folder / name, folder)


def refuse_stages(folder: Path, resume: Resume) -> None:
    """As `refuse`, of a run of two stages: there may be something to continue in the first only."""
    waiting = resume == "must" and has_checkpoints(folder / GENERATOR_STAGE)
    refuse(folder, "auto" if waiting else resume)


def _models_must_be_ours(folder: Path) -> None:
    """Raises UserError if the run's models could not be written at its end, so that this is found
    now and not after training."""
    for name in network_names():
        mark = model_mark(folder / name)
        if mark is not None and mark["part"] != name:
            raise OutputError(
                f"{folder / name} holds a model of another kind ({mark['part']})",
                "move it away, or choose another --output-dir",
            )
        if mark is None and (
            os.path.lexists(folder / name)
            and (not (folder / name).is_dir() or foreign(folder / name))
        ):
            raise OutputError(
                f"{folder / name} is not a model that electrify wrote",
                "move it away, or choose another --output-dir",
            )
        must_be_as_written(folder / name)


def _stands_in_the_way(path: Path) -> bool:
    """Names next to which a new run does not start: anything but hidden files and its own first
    stage."""
    return not path.name.startswith(".") and not (
        path.name == GENERATOR_STAGE and path.is_dir() and (is_run(path) or not foreign(path))
    )


def find_checkpoint(folder: Path) -> checkpoint.Found | None:
    """The checkpoint to continue from, or None in a new folder. Raises UserError if there are only
    damaged ones, because a new run must never begin over an old one."""
    found = checkpoint.newest(folder)
    if found is None and has_checkpoints(folder):
        raise OutputError(
            f"{folder} has checkpoints and none of them is complete",
            "choose another --output-dir, or remove them to begin anew",
        )
    return found


def is_run(folder: Path) -> bool:
    """Whether we wrote the config.yaml in the folder; its first line tells.

    In earlier versions it had no such line. Those files are recognised by what lies beside them: a
    run.json or a checkpoint's manifest of ours. If the run was killed before it wrote either, the
    file is recognised because it equals, byte for byte, what we would write for its recipe.
    """
    try:
        text = (own_bytes(folder / CONFIG) or b"").decode("utf-8")
    except UnicodeDecodeError:
        return False
    if text.startswith(RUN_MARK):
        return True
    if not text.strip():
        return False
    if {"data", "special_ids", "vocab_size"} <= (own_object(folder / FACTS) or {}).keys():
        return True
    if any(
        (own_object(found.path / checkpoint.MANIFEST) or {}).get("step") == found.step
        for found in numbered(folder)
    ):
        return True
    try:
        return dump(parse(text, CONFIG)) == text
    except UserError:
        return False


def has_begun(folder: Path) -> bool:
    """Whether a run of ours would go on in the folder, and not begin anew."""
    return is_run(folder) and bool(numbered(folder))


def _listed(differ: list[str], flat: list[dict[str, Any]]) -> str:
    """What differs between our values and theirs (flat): the objective first, the options that only
    one of the two has last; MOST_LISTED of them."""
    odd = sorted(differ, key=lambda k: (k != "objective", any(k not in values for values in flat)))
    shown = [f"{k} {flat[1].get(k)} there, {flat[0].get(k)} here" for k in odd[:MOST_LISTED]]
    more = len(odd) - len(shown)
    return "; ".join(shown) + f"; and {more} more" * bool(more)


def same_run(
    folder: Path, config: PretrainConfig, manifest: Manifest, saved: dict[str, Any]
) -> None:
    """Raises UserError if the folder's run has another recipe or other data, listing what differs.
    saved: the state of its checkpoint."""
    path = folder / CONFIG
    if not os.path.lexists(path):
        raise OutputError(
            f"{folder} has checkpoints but no {CONFIG}, without which their recipe is unknown",
            "restore it from a copy, or choose another --output-dir",
        )
    theirs = load_file(path, within=folder)
    flat = [values_of(c) for c in (config, theirs)]
    known = dict.fromkeys((*flat[0], *flat[1]))
    differ = [k for k in known if not _agree(k, *flat) and k not in FREE_FIELDS | SPLIT_FIELDS]
    differ = [
        k for k in differ if k not in STARTS or not is_same_start(folder, k, flat[1][k], flat[0][k])
    ]
    odd = _listed(differ, flat)
    recipe = saved.get("recipe")
    if not set(differ) <= set(STARTS) and recipe and not differing(recipe, config):
        raise UserError(f"{path} was changed after the run began ({odd}); put it back as it was")
    if odd:
        raise OutputError(
            f"{folder} holds another run ({odd})",
            "choose another --output-dir, or repeat its options to continue it",
        )
    for key, what in (("tokenizer", "tokenizer"), ("data", "corpus")):
        if saved["fingerprint"][key] != fingerprint(manifest, None)[key]:
            raise OutputError(
                f"{folder} was trained with another {what} than DATA",
                "give the run its own data, or start a new --output-dir",
            )


def _agree(name: str, one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two recipes say the same of a field, in the same order if that means something."""
    values = one.get(name), other.get(name)
    return values[0] == values[1] and (
        name not in ORDERED or list(values[0] or ()) == list(values[1] or ())
    )


OWN_SOURCE = "own_source"
"""The name of the hashes of rows of one's own in a fingerprint."""


def fingerprint(
    manifest: Manifest, world: dist.World | None, config: PretrainConfig | None = None
) -> dict[str, Any]:
    """What must be the same for a bit-identical continuation. Without world and recipe, of the data
    alone."""
    data = {"data": manifest.fingerprint, "tokenizer": manifest.tokenizer_sha256}
    machine = (
        {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "world_size": world.size,
            "device": world.device.type,
        }
        if world
        else {}
    )
    return data | machine | ({OWN_SOURCE: own_source(config)} if config else {})


def earlier_threads(folder: Path, saved: dict[str, Any] | None) -> Any:
    """The number of threads that the run has used so far, from the fingerprint of its checkpoint;
    for a new second stage, the number of the first stage."""
    if saved:
        return saved.get("threads")
    threads = (own_object(folder / GENERATOR_STAGE / FACTS) or {}).get("threads")
    return threads.get("number") if isinstance(threads, dict) else None


def is_same_start(folder: Path, name: str, theirs: str | None, mine: str | None) -> bool:
    """Whether two paths to start from, as they are reached from here, are the same folder, which
    need not exist. Once the run or that folder was moved, it is the folder of the same content."""
    if not theirs or not mine:
        return False
    one, other = (os.path.realpath(os.path.expanduser(path)) for path in (theirs, mine))
    if one == other or is_folder(theirs) or not is_folder(mine):
        return one == other
    known = (own_object(folder / FACTS) or {}).get("starts")
    if isinstance(known, dict):
        return known.get(name) == model_fingerprint(mine)
    # A run that began before the contents were written down: a folder of the same name. A folder
    # that lies elsewhere has `..` in its recipe, a name on the Hub has not.
    return ".." in Path(theirs).parts and os.path.basename(one) == os.path.basename(other)
