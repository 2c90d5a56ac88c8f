"""Random corruptions of checkpoints and prepared data: none is believed."""

import json
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from electrify.errors import UserError
from electrify.text.corpus import verify
from electrify.train import checkpoint
from small import listing

ROUNDS = 100


def flip(data: bytes, k: int, chance: random.Random) -> bytes:
    return data[:k] + bytes([data[k] ^ 1 << chance.randrange(8)]) + data[k + 1 :]


Kind = Callable[[bytes, int, random.Random], bytes]
# What becomes of a file's bytes, at a place in it.
KINDS: dict[str, Kind] = {
    "cut": lambda data, k, _: data[:k],
    "flip": flip,
    "another flip": flip,
    # A lost block, as file systems leave them.
    "zeros": lambda data, k, _: data[:k] + bytes(len(data[k : k + 512])) + data[k + 512 :],
    "longer": lambda data, _, chance: data + chance.randbytes(chance.randint(1, 9)),
    "swapped": lambda data, k, _: data[k:] + data[:k],
    "nothing": lambda *_: b"",
}


def is_same_json(spoilt: bytes, whole: bytes) -> bool:
    """Whether two texts hold the same values: 1E-05 is 1e-05, and the last of 17 digits may not
    matter."""
    try:
        return json.loads(spoilt) == json.loads(whole)
    except ValueError:
        return False


def believed(
    folder: Path, names: list[str], opens: Callable[[Path], Any], chance: random.Random
) -> list[str]:
    """The corruptions that were not noticed. Each is undone before the next."""
    silent = []
    for _ in range(ROUNDS):
        name, kind = chance.choice(names), chance.choice([*KINDS])
        path = folder / name
        whole = path.read_bytes()
        spoilt = KINDS[kind](whole, chance.randrange(len(whole)), chance)
        if spoilt == whole or (name.endswith(".json") and is_same_json(spoilt, whole)):
            continue
        path.write_bytes(spoilt)
        try:
            opens(folder)
            silent.append(f"{kind} {name}")
        except UserError:
            pass
        finally:
            path.write_bytes(whole)
    return silent


def test_of_checkpoints(finished: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished / "checkpoint-12", tmp_path / "checkpoint-12"))
    names = sorted(listing(folder))
    assert names == ["model.safetensors", "optimizer.safetensors", "state.json"]
    assert believed(folder, names, checkpoint.load, random.Random(0)) == []


def test_of_prepared_data(small_data: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(small_data, tmp_path / "data"))
    ends = (".bin", ".npy", "manifest.json", "tokenizer.json")
    names = [name for name in sorted(listing(folder)) if name.endswith(ends)]
    assert len(names) == 7
    # As a run does at its start: this corpus is smaller than what is verified then.
    opens = partial(verify, max_bytes=1 << 30, key=0)
    assert believed(folder, names, opens, random.Random(1)) == []
