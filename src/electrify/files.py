"""Files and folders: a file is written whole or not at all, a folder has one writer and is ours.

A folder is ours if it is new, empty, or holds the mark that its command writes first (run.json of a
run, unfinished/state.json of a corpus, study.yaml of a study). Never because of its name.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from .errors import UserError, need

LOCK = ".electrify.lock"


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """A hidden path beside `path`. What the block leaves there, a file or a folder, becomes `path`
    when it ends without an error, in one rename. A folder that stood there is replaced."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        sync(part)
        if path.is_dir():
            shutil.rmtree(path)
        part.replace(path)
        sync(path.parent)
    finally:
        if part.is_dir():
            shutil.rmtree(part)
        part.unlink(missing_ok=True)


def write(path: Path, content: str | bytes) -> None:
    """Writes the whole file or none of it."""
    with written(path) as part:
        part.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


def sync(path: Path) -> None:
    """Returns when the file, or the folder with its names, is on the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sha256(path: Path) -> str:
    """The checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text_hash(text: str) -> str:
    """The checksum of a text, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON with sorted keys. Numbers that are not finite, which JSON cannot express, become
    null."""
    finite = json.loads(json.dumps(value, sort_keys=True), parse_constant=lambda _: None)
    return json.dumps(finite, indent=indent)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises UserError that names the file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist") from None
    except ValueError as e:
        raise UserError(f"{path} is not JSON: {e}") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} holds no JSON object")
    return value


def must_be_ours(folder: Path, *marks: str) -> None:
    """Raises UserError if a command may not write there: to be asked before hours of work. A folder
    is free if it is new, empty but for hidden names (our lock, what a kill has left), or holds one
    of the marks."""
    free = not folder.exists()
    if folder.is_dir():
        marked = any((folder / mark).is_file() for mark in marks)
        free = marked or all(p.name.startswith(".") for p in folder.iterdir())
    fact = f"{folder} exists and holds no {marks[0]}, so it is not ours to write into"
    need(free, fact, "choose another output_dir")


@contextmanager
def claim(folder: Path, *marks: str) -> Iterator[None]:
    """Makes the folder and holds it for this process. A folder in which nothing was written is
    removed. Raises UserError if it is somebody else's or another process writes into it."""
    must_be_ours(folder, *marks)
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / LOCK, timeout=0):
            for part in folder.glob(".*.part"):  # a kill has left it
                shutil.rmtree(part) if part.is_dir() else part.unlink()
            try:
                yield
            finally:
                if new and os.listdir(folder) == [LOCK]:
                    shutil.rmtree(folder)
    except Timeout:
        raise UserError(f"another process writes into {folder}. Wait until it ends") from None
