"""Decompression: what is whole comes back whole, what is cut is an error."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from electrify.errors import UserError
from electrify.text.streams import read_chunks

TEXT = "".join(random.Random(0).choices("abcdefgh \n", k=400_000)).encode()
PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def content(path: Path) -> bytes:
    return b"".join(read_chunks(path))


@pytest.mark.parametrize("kind", PACK)
def test_whole_archives_come_back(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.txt{kind}"
    path.write_bytes(PACK[kind](TEXT))
    heard: list[int] = []
    assert b"".join(read_chunks(path, advance=heard.append)) == TEXT
    assert sum(heard) == path.stat().st_size


@pytest.mark.parametrize("kind", PACK)
def test_several_members_or_frames(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.txt{kind}"
    path.write_bytes(PACK[kind](TEXT[:1000]) + PACK[kind](b"") + PACK[kind](TEXT[1000:]))
    assert content(path) == TEXT


@pytest.mark.parametrize("kind", PACK)
@pytest.mark.parametrize("share", [0.0, 0.0001, 0.3, 0.9, 0.99999])
def test_truncated_archive_is_named(tmp_path: Path, kind: str, share: float) -> None:
    path, data = tmp_path / f"cut.txt{kind}", PACK[kind](TEXT)
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(UserError, match=r"cut\.txt.*truncated"):
        content(path)


def test_zstd_frame_cut_at_a_block_is_truncated(tmp_path: Path) -> None:
    # A frame flushed after each block: its first part unpacks without complaint, only the end of
    # the frame is missing.
    packer = zstandard.ZstdCompressor().compressobj()
    first = packer.compress(TEXT[:200_000]) + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    assert zstandard.ZstdDecompressor().decompressobj().decompress(first) == TEXT[:200_000]
    path = tmp_path / "cut.txt.zst"
    path.write_bytes(first)
    with pytest.raises(UserError, match="truncated"):
        content(path)


@pytest.mark.parametrize("kind", PACK)
def test_damaged_or_foreign_archive(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"bad.txt{kind}"
    path.write_bytes(b"this is not an archive, only text " * 10)
    with pytest.raises(UserError, match=r"bad\.txt.*damaged"):
        content(path)


@pytest.mark.parametrize("kind", [".gz", ".xz"])
def test_flipped_byte_is_found(tmp_path: Path, kind: str) -> None:
    data = bytearray(PACK[kind](TEXT))
    data[len(data) // 2] ^= 0xFF
    path = tmp_path / f"bad.txt{kind}"
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"bad\.txt"):
        content(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(UserError, match="cannot be read"):
            content(path)
