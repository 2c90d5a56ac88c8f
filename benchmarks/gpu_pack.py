"""A prepared corpus in one small file, and a model in parts: what travels to a machine without a
network, and back.

    python benchmarks/gpu_pack.py pack DATA FILE.tar
    python benchmarks/gpu_pack.py unpack FILE.tar DATA
    python benchmarks/gpu_pack.py split MODEL PARTS [--half]
    python benchmarks/gpu_pack.py join PARTS MODEL

`pack` numbers the token ids by frequency and compresses them with xz in 16 parts, because frequent
tokens then differ in one byte only and the parts are packed and unpacked by as many processes.
`unpack` writes the same shards, and compares every file with its hash in the manifest. `split`
writes the files of a folder to PARTS.00, PARTS.01, ... of at most 15 MB. --half stores its weights
in float16, and `join` writes them in float32 again.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import lzma
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

PARTS = 16
PART_BYTES = 15_000_000  # a file that comes back has at most 16 MiB
# Two bytes a token: its low and its high byte have statistics of their own.
XZ = [{"id": lzma.FILTER_LZMA2, "preset": 9, "lc": 3, "lp": 1, "pb": 1}]
MANIFEST, UNIGRAM = "manifest.json", "unigram.npy"
WEIGHTS = "model.safetensors"
HALF = "weights-in-float16"  # a file of this name in the parts says that --half was given


def shards_of(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return [shard for split in manifest["splits"].values() for shard in split]


def compress(content: bytes) -> bytes:
    return lzma.compress(content, filters=XZ)


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def pack(data: Path, file: Path) -> dict[str, float]:
    """Writes a prepared corpus to `file`.

    Returns: tokens, the size in MiB, and bytes for each token.
    """
    manifest = json.loads((data / MANIFEST).read_text(encoding="utf-8"))
    shards, dtype = shards_of(manifest), np.dtype(manifest["dtype"])
    ids_T = np.concatenate([np.fromfile(data / s["tokens_file"], dtype) for s in shards])
    counts_V = np.bincount(ids_T, minlength=manifest["vocab_size"])
    ranked_V = np.argsort(-counts_V, kind="stable").astype(dtype)  # the id of each rank
    rank_V = np.empty_like(ranked_V)
    rank_V[ranked_V] = np.arange(len(ranked_V))
    offsets = [np.load(data / s["documents_file"]) for s in shards]
    lengths_D = np.concatenate([np.diff(one) for one in offsets]).astype("<u4")
    parts = {"ranked.xz": ranked_V, "lengths.xz": lengths_D}
    parts |= {f"{k:02d}.xz": part for k, part in enumerate(np.array_split(rank_V[ids_T], PARTS))}
    with ProcessPoolExecutor() as pool, tarfile.open(file, "w") as tar:
        packed = pool.map(compress, [part.tobytes() for part in parts.values()])
        for name, content in zip(parts, packed, strict=True):
            add(tar, name, content)
        tar.add(data / "tokenizer", "tokenizer")
        tar.add(data / MANIFEST, MANIFEST)
    size = file.stat().st_size
    return {"tokens": len(ids_T), "mib": size / 2**20, "bytes_per_token": size / len(ids_T)}


def unpack(file: Path, data: Path) -> int:
    """Writes the prepared corpus of `file` to the new folder `data` and returns its tokens. Raises
    SystemExit if a file does not have the hash of the manifest."""
    data.mkdir(parents=True)
    with tarfile.open(file) as tar:
        packed = {m.name: tar.extractfile(m).read() for m in tar if m.name.endswith(".xz")}  # type: ignore[union-attr]
        rest = [m for m in tar if not m.name.endswith(".xz")]
        tar.extractall(data, rest, filter="data")
    manifest = json.loads((data / MANIFEST).read_text(encoding="utf-8"))
    shards, dtype = shards_of(manifest), np.dtype(manifest["dtype"])
    with ProcessPoolExecutor() as pool:
        found = dict(zip(packed, pool.map(lzma.decompress, packed.values()), strict=True))
    ranked_V = np.frombuffer(found.pop("ranked.xz"), dtype)
    lengths_D = np.frombuffer(found.pop("lengths.xz"), "<u4").astype(np.int64)
    ids_T = ranked_V[np.frombuffer(b"".join(found[name] for name in sorted(found)), dtype)]
    tokens = documents = 0
    for shard in shards:
        ids_T[tokens : tokens + shard["tokens"]].tofile(data / shard["tokens_file"])
        lengths = lengths_D[documents : documents + shard["documents"]]
        np.save(data / shard["documents_file"], np.concatenate([[0], lengths.cumsum()]))
        tokens, documents = tokens + shard["tokens"], documents + shard["documents"]
    trained = ids_T[: sum(s["tokens"] for s in manifest["splits"]["train"])]
    np.save(data / UNIGRAM, np.bincount(trained, minlength=manifest["vocab_size"]))
    wrong = [name for name, sha256 in hashes_of(manifest) if sha256 != hash_of(data / name)]
    if wrong:
        raise SystemExit(f"error: {file}: {', '.join(wrong)} differs from the manifest")
    return tokens


def hashes_of(manifest: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for shard in shards_of(manifest):
        yield shard["tokens_file"], shard["tokens_sha256"]
        yield shard["documents_file"], shard["documents_sha256"]
    yield UNIGRAM, manifest["unigram_sha256"]
    yield from ((f"tokenizer/{n}", sha256) for n, sha256 in manifest["tokenizer_files"].items())


def hash_of(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def converted(weights: Path, dtype: str) -> bytes:
    from safetensors import numpy, safe_open

    with safe_open(weights, "np") as found:
        metadata = found.metadata()
    tensors = numpy.load_file(weights)
    return numpy.save({name: x.astype(dtype) for name, x in tensors.items()}, metadata)


def split(folder: Path, parts: Path, *, half: bool = False, packed: bool = False) -> list[Path]:
    """Writes the files of a folder to PARTS.00, PARTS.01, ... and returns these paths. packed:
    with xz, which gains nothing on weights."""
    content = io.BytesIO()
    how: dict[str, Any] = {"mode": "w:xz", "preset": 1} if packed else {"mode": "w"}
    with tarfile.open(fileobj=content, **how) as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not (half and path.name == WEIGHTS):
                tar.add(path, str(path.relative_to(folder)))
        if half:
            add(tar, WEIGHTS, converted(folder / WEIGHTS, "float16"))
            add(tar, HALF, b"")
    whole = content.getvalue()
    paths = []
    for k, start in enumerate(range(0, len(whole), PART_BYTES)):
        paths.append(parts.with_name(f"{parts.name}.{k:02d}"))
        paths[-1].write_bytes(whole[start : start + PART_BYTES])
    return paths


def join(parts: Path, folder: Path) -> None:
    """Writes the files that `split` put into parts to `folder`."""
    paths = sorted(parts.parent.glob(f"{parts.name}.[0-9][0-9]"))
    whole = io.BytesIO(b"".join(path.read_bytes() for path in paths))
    with tarfile.open(fileobj=whole) as tar:
        tar.extractall(folder, filter="data")
    if (folder / HALF).exists():
        (folder / WEIGHTS).write_bytes(converted(folder / WEIGHTS, "float32"))
        (folder / HALF).unlink()


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    does: dict[str, Callable[..., Any]] = {f.__name__: f for f in (pack, unpack, split, join)}
    p.add_argument("what", choices=does)
    p.add_argument("source", type=Path)
    p.add_argument("target", type=Path)
    p.add_argument("--half", action="store_true", help="split: store weights in float16")
    a = p.parse_args()
    began = time.monotonic()
    found = does[a.what](a.source, a.target, **({"half": True} if a.half else {}))
    print(f"{a.what}: {found}, {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
