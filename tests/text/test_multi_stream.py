"""Archives of several members, streams or frames: each is verified to the end of the file, so
damage never makes a shorter text."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from electrify.errors import UserError
from electrify.text.streams import has_checksum, read_chunks

PARTS = [
    " ".join(random.Random(seed).choices(["one", "two", "three", "forty"], k=700)).encode()
    + b"\n\n"
    for seed in range(3)
]
TEXT = b"".join(PARTS)
PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}
CORRUPTIONS = 500


def packed(kind: str) -> list[bytes]:
    return [PACK[kind](part) for part in PARTS]


def content(path: Path) -> bytes:
    return b"".join(read_chunks(path))


def unpacked(folder: Path, kind: str, data: bytes) -> bytes:
    path = folder / f"a.txt{kind}"
    path.write_bytes(data)
    return content(path)


# ------------------------------------------------------------------ damage


def flipped(data: bytes, chance: random.Random) -> bytes:
    k = chance.randrange(len(data))
    return data[:k] + bytes([data[k] ^ 1 << chance.randrange(8)]) + data[k + 1 :]


def cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(1, len(data))]


def longer(data: bytes, chance: random.Random) -> bytes:
    return data + chance.randbytes(chance.randint(1, 40))


def lost(data: bytes, chance: random.Random) -> bytes:
    """A block of zeros, as file systems leave them."""
    k = chance.randrange(len(data))
    n = min(chance.choice((16, 512)), len(data) - k)
    return data[:k] + bytes(n) + data[k + n :]


KINDS = (flipped, flipped, flipped, cut, longer, lost)


@pytest.mark.parametrize("kind", PACK)
def test_random_corruptions_are_refused_or_change_nothing(tmp_path: Path, kind: str) -> None:
    """A flip in a field that says nothing of the text (a time, a name) may pass; then the text is
    the whole one."""
    chance, parts = random.Random(kind), packed(kind)
    whole = b"".join(parts)
    borders = {
        sum(map(len, parts[:i])) for i in range(len(parts) + 1)
    }  # a file that is cut there is a whole archive of fewer parts
    believed: list[str] = []
    said: list[str] = []
    for number in range(CORRUPTIONS // len(PACK)):
        spoil = KINDS[number % len(KINDS)]
        spoilt = spoil(whole, chance)
        if spoilt == whole or len(spoilt) in borders - {len(whole)}:
            continue
        try:
            if unpacked(tmp_path, kind, spoilt) != TEXT:
                believed.append(f"{spoil.__name__} {number}")
        except UserError as e:
            said.append(str(e))
    assert believed == []
    assert len(said) > 80
    assert [
        one
        for one in said
        if f"a.txt{kind} is " not in one or not ("damaged" in one or "truncated" in one)
    ] == []


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("kind", PACK)
def test_damage_in_any_part_is_named(tmp_path: Path, kind: str, which: int) -> None:
    parts = packed(kind)
    middle = len(parts[which]) // 2
    parts[which] = (
        parts[which][:middle] + bytes([parts[which][middle] ^ 0x10]) + parts[which][middle + 1 :]
    )
    with pytest.raises(
        UserError, match=rf"a\.txt\{kind} is damaged" + (f".*part {which + 1}" if which else "")
    ):
        unpacked(tmp_path, kind, b"".join(parts))


@pytest.mark.parametrize(
    "more",
    [b"x", b"garbage of another file" * 10, b"\0", b"\0\0\0\0x"],
    ids=["a byte", "more", "a zero", "zeros and a byte"],
)
@pytest.mark.parametrize("kind", PACK)
def test_what_stands_behind_the_last_part_is_damage(tmp_path: Path, kind: str, more: bytes) -> None:
    with pytest.raises(UserError, match=rf"a\.txt\{kind} is (damaged|truncated).*part 4"):
        unpacked(tmp_path, kind, b"".join(packed(kind)) + more)


@pytest.mark.parametrize("kind", PACK)
def test_a_later_part_that_is_cut(tmp_path: Path, kind: str) -> None:
    data = b"".join(packed(kind))
    for missing in (1, 5, len(packed(kind)[-1]) - 2):
        with pytest.raises(UserError, match=rf"a\.txt\{kind} is truncated.*part 3"):
            unpacked(tmp_path, kind, data[:-missing])


@pytest.mark.parametrize("kind", [".gz", ".bz2", ".zst"])
def test_zeros_where_a_part_was(tmp_path: Path, kind: str) -> None:
    parts = packed(kind)
    with pytest.raises(UserError, match=rf"a\.txt\{kind} is damaged.*part 3"):
        unpacked(tmp_path, kind, parts[0] + parts[1] + bytes(len(parts[2])))


# ------------------------------------------------------------------ what is legal


@pytest.mark.parametrize("kind", PACK)
def test_many_parts_and_empty_ones(tmp_path: Path, kind: str) -> None:
    """A thousand small parts, as parallel packers write them, come back whole."""
    small = [TEXT[i : i + 7] for i in range(0, 7000, 7)]
    assert (
        unpacked(tmp_path, kind, b"".join(PACK[kind](part) + PACK[kind](b"") for part in small))
        == TEXT[:7000]
    )


@pytest.mark.parametrize(("between", "behind"), [(4, 0), (0, 4), (8, 1 << 21), (0, 28)])
def test_padding_between_and_behind_streams_of_xz(
    tmp_path: Path, between: int, behind: int
) -> None:
    first, *others = packed(".xz")
    data = first + b"".join(bytes(between) + part for part in others) + bytes(behind)
    assert unpacked(tmp_path, ".xz", data) == TEXT


@pytest.mark.parametrize("zeros", [1, 2, 3, 5, (1 << 16) + 2])
def test_padding_of_xz_is_a_multiple_of_four(tmp_path: Path, zeros: int) -> None:
    first, second, third = packed(".xz")
    for data in (first + bytes(zeros) + second + third, first + second + third + bytes(zeros)):
        with pytest.raises(UserError, match=r"a\.txt\.xz is damaged"):
            unpacked(tmp_path, ".xz", data)


def test_padding_that_could_be_a_lost_stream_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, _ = packed(".xz")
    unpacked(tmp_path, ".xz", first + second + bytes(28))
    assert capsys.readouterr().err == ""
    unpacked(tmp_path, ".xz", first + second + bytes(512))
    assert "a.txt.xz ends with 512 bytes of zeros" in capsys.readouterr().err


def test_skippable_frames_of_zstandard(tmp_path: Path) -> None:
    skipped = (0x184D2A50).to_bytes(4, "little") + (9).to_bytes(4, "little") + b"not text!"
    first, second, third = packed(".zst")
    assert unpacked(tmp_path, ".zst", skipped + first + skipped + second + third + skipped) == TEXT
    with pytest.raises(UserError, match="truncated"):
        unpacked(tmp_path, ".zst", first + second + third + skipped[:-1])


@pytest.mark.parametrize(
    ("program", "kind"), [("gzip", ".gz"), ("bzip2", ".bz2"), ("xz", ".xz"), ("zstd", ".zst")]
)
def test_what_the_programs_write(tmp_path: Path, program: str, kind: str) -> None:
    try:
        done = [
            subprocess.run([program, "-c"], input=part, capture_output=True, check=True).stdout
            for part in PARTS
        ]
    except FileNotFoundError:
        pytest.skip(f"{program} is not installed")
    assert unpacked(tmp_path, kind, b"".join(done)) == TEXT
    assert has_checksum(tmp_path / f"a.txt{kind}")


# ------------------------------------------------------------------ what cannot be seen


def test_archives_without_checksums_are_known(tmp_path: Path) -> None:
    made = {
        "a.txt.gz": (PACK[".gz"](TEXT), True),
        "a.txt.bz2": (PACK[".bz2"](TEXT), True),
        "a.txt.xz": (lzma.compress(TEXT), True),
        "b.txt.xz": (lzma.compress(TEXT, check=lzma.CHECK_NONE), False),
        "a.txt.zst": (PACK[".zst"](TEXT), True),
        "b.txt.zst": (zstandard.ZstdCompressor().compress(TEXT), False),
        "c.txt.zst": (b"foreign", True),
        "a.txt": (TEXT, True),
    }
    for name, (data, has) in made.items():
        (tmp_path / name).write_bytes(data)
        assert has_checksum(tmp_path / name) == has, name
