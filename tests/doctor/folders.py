"""Changing folders so that only one thing is wrong: what was written down about the rest agrees."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from electrify.doctor.findings import Diagnosis, Finding
from electrify.oldfiles.reading import sha256_of
from electrify.oldfiles.seals import SEAL, seal_of
from electrify.oldfiles.seals import text_of as manifest_text
from electrify.text.manifest import MANIFEST

TOKENS, DOCUMENTS = "tokens-train-00000.bin", "documents-train-00000.npy"


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    """Changes the JSON in a file; `change` works in place, or returns what stands there instead."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    new = change(raw)
    path.write_text(json.dumps(raw if new is None else new), encoding="utf-8")


def link_out(path: Path) -> None:
    """Moves a file out of its folder and puts a link in its place."""
    elsewhere = path.parent.with_name(f"elsewhere-{path.name}")
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], Any] = lambda m: None) -> None:
    """Changes the manifest, hashes of what lies there included, and seals it again: as if `prepare`
    had written it so."""
    path = folder / MANIFEST
    m = json.loads(path.read_text(encoding="utf-8"))
    for shards in m["splits"].values():
        for s in shards:
            s["tokens"] = (folder / s["tokens_file"]).stat().st_size // np.dtype(
                m["dtype"]
            ).itemsize
            s["tokens_sha256"], s["documents_sha256"] = (
                sha256_of(folder / s[f"{what}_file"]) for what in ("tokens", "documents")
            )
    m["unigram_sha256"] = sha256_of(folder / "unigram.npy")
    m["tokenizer_sha256"] = sha256_of(folder / "tokenizer/tokenizer.json")
    m["tokenizer_files"] = {p.name: sha256_of(p) for p in (folder / "tokenizer").iterdir()}
    m["counts"]["tokens"] = sum(s["tokens"] for shards in m["splits"].values() for s in shards)
    change(m)
    path.write_text(manifest_text(m | {SEAL: seal_of(m)}), encoding="utf-8")


def edit_tokens(
    folder: Path,
    change: Callable[[np.ndarray], Any],
    manifest: Callable[[dict[str, Any]], Any] = lambda m: None,
) -> None:
    """Changes the ids of the train split in place, and counts and hashes with them."""
    ids = np.fromfile(folder / TOKENS, np.uint16)
    change(ids)
    ids.tofile(folder / TOKENS)
    size = len(np.load(folder / "unigram.npy"))
    np.save(folder / "unigram.npy", np.bincount(ids[ids < size], minlength=size).astype(np.int64))
    edit_manifest(folder, manifest)


def of(diagnosis: Diagnosis | list[Finding], level: str) -> set[str]:
    """The codes of a level."""
    findings = diagnosis.findings if isinstance(diagnosis, Diagnosis) else diagnosis
    return {f.code for f in findings if f.level == level}


def levels(diagnosis: Diagnosis | list[Finding]) -> dict[str, str]:
    """code -> the worst level that it was found at."""
    order = ["ok", "note", "warning", "error"]
    found: dict[str, str] = {}
    for f in diagnosis.findings if isinstance(diagnosis, Diagnosis) else diagnosis:
        found[f.code] = max(found.get(f.code, "ok"), f.level, key=order.index)
    return found


@contextmanager
def damaged(path: Path, data: bytes) -> Any:
    """The file with other bytes, for as long as it takes."""
    whole = path.read_bytes()
    path.write_bytes(data)
    try:
        yield
    finally:
        path.write_bytes(whole)


def flip(data: bytes, at: float, bit: int) -> bytes:
    i = min(int(at * len(data)), len(data) - 1)
    return data[:i] + bytes([data[i] ^ 1 << bit]) + data[i + 1 :]


def cut(data: bytes, at: float) -> bytes:
    return data[: min(int(at * len(data)), len(data) - 1)]


def remove(path: Path) -> None:
    os.remove(path)
