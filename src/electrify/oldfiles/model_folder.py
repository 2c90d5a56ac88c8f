"""A Hugging Face folder of ours, made or replaced file by file.

Everything is written into a hidden folder inside the target first, and checked there by whoever
writes. Only then does the mark say `unfinished`; config.json (without which nobody loads a model)
is removed, each file takes its place, config.json last, and the mark says what is there now. So a
kill leaves the old model, or the new one, or a folder that nobody takes for a model and that the
same command makes whole. What the mark does not list is the user's: it stays, and if it is in the
way, nothing is written. A file that the mark lists and that no longer has its hash was changed by
the user: then nothing is written either.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import OutputError
from . import seals
from .folders import (
    KEY,
    MARK,
    foreign,
    own_bytes,
    own_object,
    remove_temporaries,
    sha256,
)
from .inside import must_be_utf8, must_not_be_in_a_checkpoint, must_stay_inside
from .lock import lock
from .tokenizers import TOKENIZER_FILES
from .whole import sync, temporary, write_atomically

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
MODEL_FILES = (CONFIG, WEIGHTS, *TOKENIZER_FILES)
KIND = "model"
UNFINISHED = "unfinished"
# In an unfinished mark: the hashes of what was there before, because each file is the old one or
# the new one.
EARLIER = "earlier"
FORMAT = 1
# The first versions wrote none of these keys.
_SINCE_SEALS = {KEY, "files", EARLIER, UNFINISHED, seals.SEAL}


def model_mark(folder: Path) -> dict[str, Any] | None:
    """What electrify.json says about the model in the folder; None if the folder is not an export
    of ours."""
    found = own_object(folder / MARK)
    if found is None or found.get("format") != FORMAT or not isinstance(found.get("part"), str):
        return None
    files = found.get("files", {})
    if (
        found.get(KEY, KIND) != KIND
        or not isinstance(files, dict)
        or not files.keys() <= set(MODEL_FILES)
    ):
        return None
    # What a mark lists may be deleted: nobody else may have written it.
    first = not found.keys() & _SINCE_SEALS
    return found if first or found.get(seals.SEAL) == seals.seal_of(found) else None


def is_whole(folder: Path) -> bool:
    """Whether a model of ours is complete to the last byte. Exports of the first versions do not
    list files; they must at least have weights."""
    mark = model_mark(folder)
    if mark is None or mark.get(UNFINISHED):
        return False
    files = mark.get("files") or {CONFIG: None, WEIGHTS: mark.get("weights_sha256")}
    found = {name: sha256(folder / name) for name in files}
    return all(found[name] == digest if digest else found[name] for name, digest in files.items())


def may_write(target: Path, identity: dict[str, Any], *, top: Path | None = None) -> None:
    """Raises UserError unless `target` is new, empty, or an earlier export of this very model that
    is as it was written. identity: what tells models apart ("part", "run", ...). If the earlier
    mark has another value for one of these, it is another model. top: the folder that the user
    named, if `target` is in it: then no folder on the way may be a link.
    """
    must_be_utf8(target)
    must_not_be_in_a_checkpoint(target)
    if top is not None:
        must_stay_inside(target, top)
    if not os.path.lexists(target):
        return
    if target.is_symlink() and not target.exists():
        raise OutputError(f"{target} is a link that leads nowhere", "choose another --output-dir")
    mark = model_mark(target)
    if mark is None:
        if target.is_dir() and not foreign(target):
            return
        why = f"it has no {MARK}, or one that was changed"
        raise OutputError(
            f"{target} exists and is not an export of electrify ({why})",
            "choose a new or empty folder as --output-dir",
        )
    odd = [name for name in identity if name in mark and mark[name] != identity[name]]
    if "part" in odd:
        raise OutputError(
            f"{target} holds a model of another kind ({mark['part']}, not {identity['part']})",
            "choose another --output-dir",
        )
    if odd:
        raise OutputError(
            f"{target} holds the {mark['part']} of another run (its {odd[0]} differs)",
            "choose another --output-dir or remove it",
        )
    must_be_as_written(target)


def must_be_as_written(folder: Path) -> None:
    """Raises UserError if a file that the mark lists was changed since."""
    mark = model_mark(folder) or {}
    known = [mark.get("files", {}), mark.get(EARLIER, {})]
    if WEIGHTS not in known[0] and isinstance(mark.get("weights_sha256"), str):
        known.append({WEIGHTS: mark["weights_sha256"]})
    for name in sorted({name for files in known for name in files}):
        path = folder / name
        digests = {files[name] for files in known if name in files}
        if not os.path.lexists(path) or None in digests:
            continue
        found = sha256(path)
        if found is None:
            raise OutputError(
                f"{path} is not a file that electrify wrote",
                "move it away, or choose another --output-dir",
            )
        if found not in digests:
            raise OutputError(
                f"{path} was changed after electrify wrote it",
                "move it away or remove it, or choose another --output-dir",
            )


@contextmanager
def replaced(target: Path, identity: dict[str, Any], *, top: Path | None = None) -> Iterator[Path]:
    """A hidden folder to write a whole model into; when the block ends, its files take their places
    in `target`.

    A linked target is written through: the folder that it points to is filled. If the block raises,
    nothing has changed. Raises UserError as `may_write` does, and if a file in `target` that is not
    ours has the name of one of the new files.
    """
    may_write(target, identity, top=top)
    with lock(target):
        may_write(target, identity, top=top)
        remove_temporaries(target)
        staged = temporary(target)
        staged.mkdir()
        try:
            yield staged
            must_be_as_written(target)  # checked again, because the block may have taken long
            _publish(staged, target, identity)
        finally:
            shutil.rmtree(staged, ignore_errors=True)


def _publish(staged: Path, target: Path, identity: dict[str, Any]) -> None:
    mark = model_mark(target) or {}
    new = {name: digest for name in MODEL_FILES if (digest := sha256(staged / name))}
    had: dict[str, Any] = mark.get("files") or (dict.fromkeys(MODEL_FILES) if mark else {})
    _must_be_ours(target, new, had)
    changed = [name for name in new if sha256(target / name) != new[name]]
    gone = [
        name
        for name, digest in had.items()
        if name not in new and digest and sha256(target / name) == digest
    ]
    (staged / MARK).touch()
    mode = stat.S_IMODE((staged / MARK).stat().st_mode)
    last = _mark({"format": FORMAT, **identity, "weights_sha256": new.get(WEIGHTS), "files": new})
    for name in changed:
        # Libraries make files that only their owner may read.
        (staged / name).chmod(mode)
        sync(staged / name)
    if changed or gone:
        there = {name: sha256(target / name) for name in had if os.path.lexists(target / name)}
        begun = {"format": FORMAT, **identity, "files": had | new, EARLIER: there}
        write_atomically(target / MARK, _mark(begun | {UNFINISHED: True}))
        _replace(staged, target, changed, gone)
    if own_bytes(target / MARK) != last.encode():
        write_atomically(target / MARK, last)
        sync(target)


def _must_be_ours(target: Path, new: Iterable[str], had: Container[str]) -> None:
    """Raises UserError if a file that we did not write has the name of a new one."""
    for name in new:
        if os.path.lexists(target / name) and (
            name not in had or not (target / name).is_file() or (target / name).is_symlink()
        ):
            raise OutputError(
                f"{target / name} is not a file that electrify wrote",
                "move it away, or choose another --output-dir",
            )


def _replace(staged: Path, target: Path, changed: list[str], gone: list[str]) -> None:
    """Moves the changed files into the folder and removes those that are gone. While it works the
    folder has no configuration, so nobody loads a half of each."""
    if (staged / CONFIG).exists():
        (target / CONFIG).unlink(missing_ok=True)
        changed = [name for name in changed if name != CONFIG] + [CONFIG]
    for name in changed:
        os.replace(staged / name, target / name)
    for name in gone:
        (target / name).unlink(missing_ok=True)
    sync(target)


def _mark(facts: dict[str, Any]) -> str:
    return json.dumps(seals.sealed({KEY: KIND, **facts}), indent=1, sort_keys=True) + "\n"
