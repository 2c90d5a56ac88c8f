"""Checkpoints of a run: RUN/checkpoint-<step>/{model,optimizer}.safetensors and state.json.

A checkpoint is written into a hidden folder and renamed once, so that a kill leaves the old ones or
the new one. state.json holds the hashes of the tensor files and of its own fields, because no
tensor format notices a flipped bit: a damaged checkpoint is named and passed over. The code knows
tensors, JSON and folders, and nothing about models: what a checkpoint holds is in state.py.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..errors import UserError
from ..files import sha256, sync, text_hash, written
from ..progress import say

STATE = "state.json"
Groups = dict[str, dict[str, Tensor]]
State = dict[str, Any]
_NAME = re.compile("checkpoint-(0|[1-9][0-9]*)")


def folder_of(run: Path, step: int) -> Path:
    """RUN/checkpoint-<step>."""
    return run / f"checkpoint-{step}"


def steps(run: Path) -> list[int]:
    """The steps of the run's checkpoints, whole or damaged, ascending."""
    names = [p.name for p in run.iterdir()] if run.is_dir() else []
    return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))


def save(
    run: Path,
    step: int,
    groups: Groups,
    state: State,
    *,
    keep: int | None,
    spared: frozenset[int] = frozenset(),
) -> Path:
    """Writes RUN/checkpoint-<step>, then removes those beyond the `keep` newest (None keeps all),
    except for `spared`. Returns its folder.

    groups: one file of tensors per group; no two tensors of a group may share memory. state: JSON
    with string keys. Raises UserError if the disk fails; the earlier checkpoints are then as
    before.
    """
    final = folder_of(run, step)
    try:
        for left in run.glob(".checkpoint-*"):  # of a process that was killed
            shutil.rmtree(left)
        with written(final) as part:
            part.mkdir()
            hashes = {}
            for group, tensors in groups.items():
                file = part / f"{group}.safetensors"
                save_file({name: t.detach().contiguous() for name, t in tensors.items()}, file)
                sync(file)
                hashes[file.name] = sha256(file)
            fields = {"step": step, **state, "files": hashes}
            text = json.dumps({**fields, "sha256": _hash_of(fields)}, indent=1, sort_keys=True)
            (part / STATE).write_text(text, encoding="utf-8")
            sync(part / STATE)
            for name in hashes:  # the library makes files that only their owner may read
                shutil.copymode(part / STATE, part / name)
    except (OSError, SafetensorError) as e:
        raise UserError(
            f"checkpoint {step} could not be written to {run} ({getattr(e, 'strerror', None) or e})"
            "; the earlier checkpoints are unharmed",
            "make room and run the same command again",
        ) from e
    older = [s for s in steps(run) if s < step and s not in spared][::-1]
    for old in older[keep - 1 :] if keep else []:
        gone = folder_of(run, old).rename(run / f".checkpoint-{old}")
        shutil.rmtree(gone)
    return final


def newest(run: Path) -> tuple[Groups, State] | None:
    """The tensors and the state of the newest checkpoint that is whole; damaged ones are named and
    passed over."""
    for step in reversed(steps(run)):
        try:
            return load(folder_of(run, step))
        except UserError as e:
            say(f"warning: {e}; it is passed over")
    return None


def load(path: Path) -> tuple[Groups, State]:
    """The tensors (on the CPU, by group) and the state of a checkpoint. Raises UserError if it is
    damaged."""
    state = read_state(path)
    return {Path(name).stem: load_file(path / name) for name in state["files"]}, state


def read_state(path: Path) -> State:
    """The state of a checkpoint whose every file has its hash. Raises UserError if one has not."""
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        if state.pop("sha256") != _hash_of(state):
            raise ValueError(f"{STATE} does not have the hash in it")
        for name, digest in state["files"].items():
            if sha256(path / name) != digest:
                raise ValueError(f"{name} does not have the hash in {STATE}")
    except (OSError, ValueError, LookupError, AttributeError, TypeError) as e:
        what = f"{Path(e.filename or STATE).name} {e.strerror}" if isinstance(e, OSError) else e
        raise UserError(f"{path} is damaged: {what}") from e
    return state


def _hash_of(fields: State) -> str:
    """Of what JSON says, whatever its white space."""
    return text_hash(json.dumps(fields, sort_keys=True))
