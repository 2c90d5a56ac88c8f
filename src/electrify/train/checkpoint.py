"""Checkpoints of a run that survive kills, full disks and flipped bytes. The code is generic: it
deals with tensors, JSON and folders, and knows nothing about models.

    RUN/checkpoint-<step>/<group>.safetensors ...
                          state.json
                          manifest.json    sizes and hashes of the others; written last

A checkpoint is written into `.tmp-<step>-<uuid>`, synced, renamed once; only then are older ones
removed. Readers trust a checkpoint only if it has a manifest and every hash in it is right, because
no tensor format notices a flipped byte by itself. Only files that a checkpoint's own manifest lists
are removed. A folder that has a checkpoint's name but holds anything else is renamed if a
checkpoint must go in its place, and is left alone when old checkpoints are removed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..errors import UserError, is_of_memory
from ..oldfiles.folders import aside
from ..oldfiles.reading import json_of, read_bytes, sha256_of
from ..oldfiles.run_folder import Found, checkpoint_folder, numbered
from ..oldfiles.whole import sync
from ..progress import say
from .contents import FORMAT, MANIFEST, STATE, contents_of, damage, why_bad, written_here

RETRY_S = 1.0
_TEMPORARY = re.compile(r"\.tmp-[0-9]+-[0-9a-f]{32}")


# --- writing


def save(
    run: Path,
    step: int,
    *,
    tensors: Mapping[str, Mapping[str, Tensor]],
    state: dict[str, Any],
    keep: int | None,
    milestones: frozenset[int] = frozenset(),
) -> Path:
    """Writes RUN/checkpoint-<step> and removes older complete ones beyond the `keep` newest (None
    keeps all), except for those of `milestones`. Returns its folder.

    tensors: one file per group, e.g. {"model": {...}, "optimizer": {...}}; no two tensors of a
    group may share memory. state: JSON with string keys. If a complete checkpoint of the step is
    already there, it is not written again. Raises UserError if the disk fails twice; then nothing
    has changed.
    """
    assert keep is None or keep >= 1
    final = checkpoint_folder(run, step)
    if os.path.lexists(final) and not why_bad(final):
        _rotate(run, step, keep, milestones)
        return final
    try:
        _put(run, final, step, tensors, state)
    except UserError as e:  # network disks have their moments: once more
        say(f"warning: {e}; trying once more")
        time.sleep(RETRY_S)
        _put(run, final, step, tensors, state)
    _rotate(run, step, keep, milestones)
    return final


def _put(
    run: Path,
    final: Path,
    step: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    state: dict[str, Any],
) -> None:
    temporary, damaged = (run / f".tmp-{step}-{uuid.uuid4().hex}" for _ in range(2))
    try:
        run.mkdir(parents=True, exist_ok=True)
        _remove_temporaries(run)
        temporary.mkdir()
        _write_all(temporary, step, tensors, state)
        if _nothing_but(final, written_here(final)):  # a damaged one, see `save`
            final.rename(damaged)
        elif (kept := aside(final)) is not None:
            say(
                f"warning: {final} is not, or not only, a checkpoint that electrify wrote: it is "
                f"kept as {kept.name}"
            )
        temporary.rename(final)
        sync(run)
        _remove(damaged)
    except (OSError, SafetensorError) as e:
        reason = e.strerror or e if isinstance(e, OSError) else e
        raise UserError(
            f"checkpoint {step} could not be written to {run} ({reason}); the earlier checkpoints "
            "are unharmed"
        ) from e
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_all(
    folder: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: dict[str, Any]
) -> None:
    files: dict[str, dict[str, Any]] = {}

    def seal(name: str) -> None:
        sync(folder / name)
        files[name] = {"bytes": (folder / name).stat().st_size, "sha256": sha256_of(folder / name)}

    for group, named in tensors.items():
        name = f"{group}.safetensors"
        assert Path(name).name == name, group
        save_file({k: t.detach().contiguous() for k, t in named.items()}, folder / name)
        seal(name)
    (folder / STATE).write_text(
        json.dumps(state, sort_keys=True, indent=1) + "\n", encoding="utf-8"
    )
    mode = stat.S_IMODE((folder / STATE).stat().st_mode)
    for name in files:  # the library makes files that only their owner may read
        (folder / name).chmod(mode)
    seal(STATE)
    manifest = {"format": FORMAT, "step": step, "files": files}
    (folder / MANIFEST).write_text(manifest_text(manifest), encoding="utf-8")
    sync(folder / MANIFEST)
    sync(folder)


def manifest_text(manifest: Any) -> str:
    """The exact text that is written for a manifest."""
    return json.dumps(manifest, sort_keys=True, indent=1) + "\n"


def _rotate(run: Path, step: int, keep: int | None, spared: frozenset[int]) -> None:
    """Leaves checkpoints of steps above `step` alone: they are damaged ones that resuming passed
    over, and the run will write them again."""
    if keep is None:
        return
    older = [
        found
        for found in numbered(run)
        if found.step < step
        and found.step not in spared
        and not found.path.is_symlink()
        and not why_bad(found.path, hashes=False)
    ]
    for found in older[keep - 1 :]:
        with suppress(OSError):  # the run goes on with one checkpoint too many
            _retire(found, run, step)


def _retire(found: Found, run: Path, step: int) -> None:
    """Removes a checkpoint's own files, and the folder if nothing else is in it."""
    ours = written_here(found.path) or frozenset()
    if _nothing_but(found.path, ours):
        gone = run / f".tmp-{found.step}-{uuid.uuid4().hex}"
        found.path.rename(gone)  # hidden at once, so that a kill leaves no half checkpoint
        _remove(gone)
        return
    # The manifest goes first: without it nobody takes the rest for a checkpoint.
    for name in sorted(ours, key=lambda name: name != MANIFEST):
        with suppress(IsADirectoryError):
            (found.path / name).unlink(missing_ok=True)
    others = ", ".join(sorted(path.name for path in found.path.iterdir())[:3])
    say(
        f"{found.path} stays, for it holds other files ({others}); those of the checkpoint are "
        "removed"
    )


def _nothing_but(folder: Path, names: frozenset[str] | None) -> bool:
    """Whether the folder holds only these names, all of them regular files. False if it cannot be
    listed."""
    try:
        with os.scandir(folder) as found:
            return names is not None and all(
                entry.name in names and entry.is_file(follow_symlinks=False) for entry in found
            )
    except OSError:
        return False


def temporaries(run: Path) -> list[Path]:
    """The temporary folders that killed writers have left; the next checkpoint of the run removes
    them."""
    return sorted(path for path in run.iterdir() if _TEMPORARY.fullmatch(path.name))


def _remove_temporaries(run: Path) -> None:
    for path in temporaries(run):
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


# --- reading


def newest(run: Path) -> Found | None:
    """The checkpoint with the highest step among those that are complete and whose hashes are all
    right. Damaged ones are passed over, and named with the reason. May raise UnreadableError."""
    for found in numbered(run):
        reason = damage(found.path)
        if reason is None:
            return found
        say(f"warning: passing over {found.path.name}: {reason}")
    return None


def load(path: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """The tensors (on the CPU, by group) and the state of a checkpoint folder, which is verified
    first. Raises UserError if it is damaged."""
    reason = why_bad(path)
    if reason is not None:
        raise UserError(
            f"{path} is not a complete checkpoint: {reason}; resume from an earlier one"
        )
    groups = {
        Path(name).stem: name for name in contents_of(path).files if name.endswith(".safetensors")
    }
    try:
        tensors = {group: load_file(path / name) for group, name in groups.items()}
    # The hashes are right, but these are not tensors; RuntimeError if a file is gone by now.
    except (SafetensorError, RuntimeError, OSError) as e:
        if is_of_memory(e):
            raise
        raise UserError(
            f"{path} is not a complete checkpoint: its tensors cannot be read ({e}); resume from "
            "an earlier one"
        ) from e
    file = path / STATE
    # A validation metric may be NaN.
    state = json_of(read_bytes(file, within=path.parent), file, finite=False)
    if not isinstance(state, dict):
        raise UserError(
            f"{file} holds {type(state).__name__}, not a JSON object; resume from an earlier "
            "checkpoint"
        )
    return tensors, state
