"""Archives: what is whole comes back whole, and what is cut or damaged in any member is an
error, never a shorter text."""

import bz2
import gzip
import lzma
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import zstandard

from electrify.errors import UserError
from electrify.text.streams import read_chunks

PARTS = [
    " ".join(random.Random(seed).choices(["one", "two", "three", "forty"], k=700)).encode()
    + b"\n\n"
    for seed in range(3)
]
TEXT = b"".join(PARTS)
LONG = random.Random(0).randbytes(2_500_000)
PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".bz2": bz2.compress,
    ".xz": partial(lzma.compress, preset=0),
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}
kinds = pytest.mark.parametrize("kind", PACK)


def packed(kind: str) -> list[bytes]:
    return [PACK[kind](part) for part in PARTS]


def unpacked(folder: Path, kind: str, data: bytes) -> bytes:
    path = folder / f"a.txt{kind}"
    path.write_bytes(data)
    return b"".join(read_chunks(path))


@kinds
def test_whole_archives_come_back(tmp_path: Path, kind: str) -> None:
    """Also a hundred small members, as parallel packers write them, and empty ones."""
    path = tmp_path / f"a.txt{kind}"
    path.write_bytes(PACK[kind](LONG))
    read: list[int] = []
    chunks = list(read_chunks(path, advance=read.append))
    assert b"".join(chunks) == LONG
    assert len(chunks) > 1
    assert sum(read) == path.stat().st_size
    small = (PACK[kind](TEXT[i : i + 7]) + PACK[kind](b"") for i in range(0, 700, 7))
    assert unpacked(tmp_path, kind, b"".join(small)) == TEXT[:700]


@kinds
def test_a_cut_in_any_member(tmp_path: Path, kind: str) -> None:
    whole = b"".join(packed(kind))
    last = len(packed(kind)[-1])
    for cut in (0, 1, len(whole) // 6, len(whole) - last + 2, len(whole) - 5, len(whole) - 1):
        with pytest.raises(UserError, match=r"a\.txt\..* truncated"):
            unpacked(tmp_path, kind, whole[:cut])


@pytest.mark.parametrize("more", [b"x", b"garbage of another file" * 10, b"\0"])
@kinds
def test_what_stands_behind_the_last_member_is_damage(tmp_path, kind, more):
    with pytest.raises(UserError, match=rf"a\.txt\{kind} is (damaged|truncated).*part 4"):
        unpacked(tmp_path, kind, b"".join(packed(kind)) + more)


def spoilt(data: bytes, chance: random.Random, how: int) -> bytes:
    """With a flipped bit, a cut, more bytes, or a block of zeros, as file systems leave them."""
    k = chance.randrange(1, len(data))
    if how == 0:
        return data[:k]
    if how == 1:
        return data + chance.randbytes(chance.randint(1, 40))
    if how == 2:
        n = min(chance.choice((16, 512)), len(data) - k)
        return data[:k] + bytes(n) + data[k + n :]
    return data[:k] + bytes([data[k] ^ 1 << chance.randrange(8)]) + data[k + 1 :]


@kinds
def test_random_corruptions_are_refused_or_change_nothing(tmp_path: Path, kind: str) -> None:
    """A flip in a field that says nothing of the text (a time, a name) may pass; then the text is
    the whole one."""
    chance, parts = random.Random(kind), packed(kind)
    whole = b"".join(parts)
    # A file that is cut at a border is a whole archive of fewer parts.
    borders = {sum(map(len, parts[:i])) for i in range(1, len(parts))}
    refused = 0
    for number in range(36):
        data = spoilt(whole, chance, number % 6)
        if data == whole or len(data) in borders:
            continue
        try:
            assert unpacked(tmp_path, kind, data) == TEXT, number
        except UserError:
            refused += 1
    assert refused > 25
