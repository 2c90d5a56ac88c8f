"""Checks the checkpoints of a run: every one to the last byte, and the newest good one against the
run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..config.pretrain import PretrainConfig
from ..errors import UserError
from ..oldfiles.lock import holder
from ..oldfiles.reading import UnreadableError
from ..oldfiles.run_folder import CONFIG, FACTS, numbered
from ..train import checkpoint
from ..train.contents import damage
from ..train.decisive import must_be_of_recipe
from ..train.saved import must_be_state
from .files import AGAIN, Bar, files_below, is_regular, named, read_bytes, read_json, size_of
from .findings import Finding, as_sentence, error, note, ok
from .weights import Header, open_header


def checkpoints_findings(folder: Path, kept: dict[str, Any]) -> Iterator[Finding]:
    """Every checkpoint; the newest good one goes into `kept`."""
    there = numbered(folder)
    files = [f for c in there for f in files_below(c.path)]
    with Bar(files, title=f"reading {folder.name}") as bar:
        whys: dict[int, str | None] = {}
        unread: dict[int, UnreadableError] = {}
        for c in there:
            try:
                whys[c.step] = why_bad(c.path)
            except UnreadableError as e:
                unread[c.step] = e
            bar.read(sum(map(size_of, files_below(c.path))))
    there = [c for c in there if c.path.exists() and c.step in whys]  # a run removes the oldest
    kept["unread"] = bool(unread)
    for e in unread.values():
        said = f"{e.path.parent.name}: {e.path.name} {e.why}"
        yield error("unreadable", said, as_sentence(e.advice))
    good = [c for c in there if whys[c.step] is None]
    newest = good[0] if good else None
    kept["newest"] = newest
    instead = f"continuing takes {newest.path.name}" if newest else "there is none to continue from"
    for c in there:
        if whys[c.step] is not None:
            yield error(
                "checkpoint",
                f"{c.path.name}: {whys[c.step]}",
                f"It is damaged; {instead}. Remove it, or restore it from a copy.",
            )
    if newest:
        size = sum(map(size_of, files_below(newest.path))) / 1e6
        which = named((c.path.name for c in good), at_most=5)
        yield ok(
            "checkpoints",
            f"whole to the last byte: {which}; {newest.path.name} would be continued "
            f"({size:,.0f} MB)",
        )
        yield from model_findings(newest.path, kept)
    if holder(folder) is None:  # otherwise they are being written
        yield from left_over(folder)


def left_over(folder: Path) -> Iterator[Finding]:
    """Temporary folders of checkpoints that a kill has left."""
    left = checkpoint.temporaries(folder)
    if left:
        size = sum(size_of(f) for t in left for f in files_below(t)) / 1e6
        fact = (
            f"temporary folders are left over ({len(left)}, {size:,.0f} MB): "
            f"{named(p.name for p in left)}"
        )
        yield note(
            "left-over",
            fact,
            "A kill while saving leaves such; the next checkpoint of the run removes them, "
            "or do it yourself.",
        )


def why_bad(path: Path) -> str | None:
    """What is wrong with a checkpoint: what resuming would find, and also changed bytes of the
    manifest that do not affect its content. Raises UnreadableError."""
    odd = (
        [name for name in os.listdir(path) if not is_regular(path / name)] if path.is_dir() else []
    )
    if odd:
        return f"{odd[0]} is not a file"
    why = damage(path)
    if why is None and checkpoint.manifest_text(
        read_json(path / checkpoint.MANIFEST)
    ).encode() != read_bytes(path / checkpoint.MANIFEST):
        return f"{checkpoint.MANIFEST} is not byte for byte as it was written"
    return why


def model_findings(path: Path, kept: dict[str, Any]) -> Iterator[Finding]:
    """Compares the word tables of a checkpoint with recipe and facts. Only the headers of the
    tensor files are read, not the tensors."""
    config: PretrainConfig | None = kept.get("config")
    if config is None or "facts" not in kept or not (path / "model.safetensors").exists():
        return
    state = read_json(path / checkpoint.STATE)
    try:
        must_be_state(path, state)
        must_be_of_recipe(path, state, config)
    except UserError as e:
        yield error("recipe", str(e), "The run can be neither continued nor exported with it.")
    header: Header = open_header(path / "model.safetensors")
    words = {
        name: shape
        for name, (shape, _) in header.items()
        if name.endswith("encoder.embeddings.words.weight") and len(shape) == 2
    }
    rows = {shape[0] for shape in words.values()}
    if rows and rows != {kept["facts"]["vocab_size"]}:
        fact = (
            f"{path.name} has {named(f'{r:,}' for r in rows)} word embeddings and {FACTS} says "
            f"{kept['facts']['vocab_size']:,}"
        )
        yield error("vocabulary", fact, AGAIN)
    shared = config.model.tie in ("embeddings", "tokens", "all", "lower")
    if (
        config.corruption.row.has_generator
        and words
        and (len(words) == 1) != shared
        and config.model.tie != "gdes"
    ):
        fact = (
            f"{path.name} has {len(words)} word table{'s' * (len(words) > 1)} and the recipe says "
            f"tie {config.model.tie}"
        )
        yield error("tie", fact, f"Checkpoint and {CONFIG} are not of one run. {AGAIN}")
