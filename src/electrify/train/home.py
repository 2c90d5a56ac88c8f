"""A run folder during training: whether it is still there and complete, and what is done if it is
not.

config.yaml, run.json and tokenizer/ are kept in memory from the start, and if the folder loses them
they are written again at the next save. Without them its checkpoints would be refused. Whatever
somebody else has put in their place is moved aside and never overwritten.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from ..errors import UserError
from ..oldfiles.folders import aside
from ..oldfiles.inside import must_stay_inside
from ..oldfiles.lock import lock
from ..oldfiles.run_folder import HEADER, TOKENIZER
from ..oldfiles.whole import free_name, write_atomically

LARGEST = 256 << 20  # limit on the bytes of one file kept in memory; tokenizers have a few MB
AGAIN = "run the same command again to continue"


@dataclass(frozen=True)
class Place:
    """Where a checkpoint goes."""

    folder: Path
    warnings: list[str] = field(default_factory=list)
    ends: str = ""
    """The message with which the run ends after saving; empty if it goes on."""


class Home:
    """The folder of a run as this process knows it. A context manager; only rank 0 has one."""

    def __init__(self, folder: Path) -> None:
        """The folder must already have its header files. Raises OSError if they cannot be read."""
        self.folder = folder
        self._held = ExitStack()
        self._header = header_of(folder)
        self._fd = self._opened()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()

    def _opened(self) -> int:
        """A file descriptor that stays with the folder wherever it is moved."""
        fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        self._held.callback(os.close, fd)
        return fd

    def settle(self) -> Place:
        """Called before a save: puts back what was lost, and returns where the checkpoint goes.
        Raises UserError if nothing can be written."""
        try:
            if same(self.folder, self._fd):
                return Place(self.folder, self._put_back(self.folder))
            moved = (
                Path(os.readlink(f"/proc/self/fd/{self._fd}"))
                if os.path.isdir("/proc/self/fd")
                else None
            )
            if moved is not None and same(moved, self._fd):
                self._put_back(moved)
                return Place(
                    moved,
                    ends=(
                        f"{self.folder} was moved to {moved} while the run trained, which is saved "
                        f"there; move it back and {AGAIN}"
                    ),
                )
            if not os.path.lexists(self.folder) or is_empty(self.folder):
                return self._made_again()
            return self._beside()
        except OSError as e:
            raise UserError(f"{self.folder} cannot be written any more ({e.strerror})") from e

    def _made_again(self) -> Place:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._held.enter_context(lock(self.folder, keep=True, again=True))
        self._fd = self._opened()
        self._put_back(self.folder)
        lost = (
            f"{self.folder} was deleted while the run trained, and its earlier checkpoints with it"
        )
        return Place(
            self.folder,
            [f"{lost}: it is made again with all that belongs to the run, which goes on"],
        )

    def _beside(self) -> Place:
        """Where to save if somebody else's folder has taken the name."""
        beside = free_name(self.folder.with_name(f"{self.folder.name}-saved"))
        beside.mkdir()
        self._put_back(beside)
        lost = f"{self.folder} was replaced by another folder while the run trained"
        return Place(
            beside,
            ends=(
                f"{lost}, which is saved in {beside}; give that the name {self.folder.name} and "
                f"{AGAIN}"
            ),
        )

    def _put_back(self, folder: Path) -> list[str]:
        said = []
        for name, data in self._header.items():
            path = folder / name
            below = path.parent != folder  # which may itself be a link, because the user named it
            if below and (path.parent.is_symlink() or not path.parent.is_dir()):
                aside(path.parent)
            if data == content(path):
                continue
            path.parent.mkdir(exist_ok=True)
            must_stay_inside(path.parent, folder)
            where = aside(path)
            write_atomically(path, data)
            found = (
                f"was changed while the run trained; what stood there is now {where.name}, and"
                if where
                else "was lost while the run trained;"
            )
            said.append(f"{path} {found} it is written again")
        return said


def header_of(folder: Path) -> dict[str, bytes]:
    """The header files of a run folder, by name."""
    tokenizer = (f"{TOKENIZER}/{p.name}" for p in sorted((folder / TOKENIZER).iterdir()))
    found = {name: content(folder / name) for name in (*HEADER, *tokenizer)}
    return {name: data for name, data in found.items() if data is not None}


def content(path: Path) -> bytes | None:
    """The content of a file if it is a regular file, not a link and not too large, else None."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST:
            return None
        return path.read_bytes()
    except OSError:
        return None


def same(path: Path, fd: int) -> bool:
    """Whether the path leads to the open folder."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except OSError:
        return False


def is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())
