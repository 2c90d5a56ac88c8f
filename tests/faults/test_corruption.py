"""Random corruptions of checkpoints and prepared data: none is believed."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from electrify.errors import UserError
from electrify.text.corpus import verify
from electrify.train import checkpoint
from small import listing

ROUNDS = 100


def cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def flip(data: bytes, chance: random.Random) -> bytes:
    k = chance.randrange(len(data))
    return data[:k] + bytes([data[k] ^ 1 << chance.randrange(8)]) + data[k + 1 :]


def zeros(data: bytes, chance: random.Random) -> bytes:
    """A lost block, as file systems leave them."""
    k = chance.randrange(len(data))
    n = min(512, len(data) - k)
    return data[:k] + bytes(n) + data[k + n :]


def longer(data: bytes, chance: random.Random) -> bytes:
    return data + chance.randbytes(chance.randint(1, 9))


def swapped(data: bytes, chance: random.Random) -> bytes:
    k = chance.randrange(len(data))
    return data[k:] + data[:k]


def nothing(data: bytes, chance: random.Random) -> bytes:
    return b""


KINDS: tuple[Callable[[bytes, random.Random], bytes], ...]
KINDS = (cut, flip, flip, zeros, longer, swapped, nothing)


def open_checkpoint(folder: Path) -> None:
    checkpoint.load(folder)


def open_data(folder: Path) -> None:
    """As a run does at its start: this corpus is smaller than what is verified then."""
    verify(folder, max_bytes=1 << 30, key=0)


def is_same_json(spoilt: bytes, whole: bytes) -> bool:
    """Whether two texts hold the same values: 1E-05 is 1e-05, and the last of 17 digits may not
    matter."""
    try:
        return json.loads(spoilt) == json.loads(whole)
    except ValueError:
        return False


def believed(
    folder: Path, names: list[str], opens: Callable[[Path], None], chance: random.Random
) -> list[str]:
    """The corruptions that were not noticed. Each is undone before the next."""
    silent = []
    for _ in range(ROUNDS):
        name, kind = chance.choice(names), chance.choice(KINDS)
        path = folder / name
        whole = path.read_bytes()
        spoilt = kind(whole, chance)
        if spoilt == whole or (name.endswith(".json") and is_same_json(spoilt, whole)):
            continue
        path.write_bytes(spoilt)
        try:
            opens(folder)
            silent.append(f"{kind.__name__} {name}")
        except UserError:
            pass
        finally:
            path.write_bytes(whole)
    return silent


def test_of_checkpoints(unbroken: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(unbroken / "checkpoint-24", tmp_path / "checkpoint-24"))
    names = sorted(listing(folder))
    assert names == ["model.safetensors", "optimizer.safetensors", "state.json"]
    assert believed(folder, names, open_checkpoint, random.Random(0)) == []


def test_of_prepared_data(small_data: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(small_data, tmp_path / "data"))
    names = [
        n
        for n in sorted(listing(folder))
        if n.endswith((".bin", ".npy")) or n in ("manifest.json", "tokenizer/tokenizer.json")
    ]
    assert len(names) == 7
    assert believed(folder, names, open_data, random.Random(1)) == []
