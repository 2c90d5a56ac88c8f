"""The door: what is opened, and the sentence about what is not."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from electrify.oldfiles import reading
from electrify.oldfiles.reading import (
    FileError,
    MissingError,
    open_regular,
    read_bytes,
    read_object,
)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.mkdir()


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def circle(path: Path) -> None:
    path.symlink_to(path.name)


def nowhere(path: Path) -> None:
    path.symlink_to("gone")


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))


CASES: list[tuple[Callable[[Path], None], str]] = [
    (pipe, "is a pipe, not a file"), (folder, "is a folder, not a file"),
    (device, "is a device, not a file"), (listening, "is a socket, not a file"),
    (circle, "cannot be read (Too many levels of symbolic links)"),
    (nowhere, "is a link that leads nowhere"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "why"), CASES, ids=[make.__name__ for make, _ in CASES])
def test_what_is_not_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make(Path("x"))
    with pytest.raises(FileError) as e:
        open_regular(Path("x"))
    assert e.value.why == why


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="is missing"):
        read_bytes(tmp_path / "a" / "b")


def test_links(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_text("inside")
    (tmp_path / "out").write_text("outside")
    (tmp_path / "in" / "near").symlink_to("file")
    (tmp_path / "in" / "far").symlink_to(tmp_path / "out")
    (tmp_path / "in" / "sub").symlink_to(tmp_path)
    (tmp_path / "other").symlink_to("in")
    assert read_bytes(tmp_path / "in" / "near", within=tmp_path / "in") == b"inside"
    assert read_bytes(tmp_path / "other" / "near", within=tmp_path / "other") == b"inside"
    for name in ("far", "sub/out"):
        with pytest.raises(FileError, match="leads out of its folder"):
            read_bytes(tmp_path / "in" / name, within=tmp_path / "in")
    assert read_bytes(tmp_path / "in" / "far") == b"outside"


def test_only_a_cache_of_the_hub_has_blobs(tmp_path: Path) -> None:
    for top, says in (("models--a--b", True), ("my-models", False)):
        snapshot = tmp_path / top / "snapshots" / "abc"
        snapshot.mkdir(parents=True)
        (tmp_path / top / "blobs").mkdir()
        (tmp_path / top / "blobs" / "1").write_text("{}")
        (snapshot / "config.json").symlink_to("../../blobs/1")
        assert reading.is_regular(snapshot / "config.json", within=snapshot) is says
        (snapshot / "b.json").symlink_to(tmp_path)
        assert not reading.is_regular(snapshot / "b.json", within=snapshot)


def test_sizes(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as f:
        f.truncate(3 << 30)
    with pytest.raises(FileError, match="has 3,072 MB, and such a file has at most 128 MB"):
        read_object(tmp_path / "sparse")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": NaN}', "NaN is not a JSON number"), ('{"a": -Infinity}', "-Infinity is not"),
        ('{"a": 1e999}', "1e999 is too large"),
        ('{"a": 1, "a": 2}', "the key 'a' occurs twice"), ('{"a": ' * 100_000, "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "is not JSON"),
        ("{", "is not JSON"), ("[]", "holds list, not a JSON object"), ("\x00", "is not JSON"),
    ],
)  # fmt: skip
def test_json(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(FileError, match=r"a\.json") as e:
        read_object(tmp_path / "a.json")
    assert says in str(e.value)
    assert len(str(e.value)) < 400
