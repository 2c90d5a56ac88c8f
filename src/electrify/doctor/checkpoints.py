"""Checks the checkpoints of a run: every one to the last byte, and the newest good one against the
run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..config.pretrain import PretrainConfig
from ..errors import UserError
from ..oldfiles.run_folder import CONFIG, FACTS
from ..train import checkpoint
from .files import AGAIN, Bar, files_below, named, size_of
from .findings import Finding, error, ok
from .weights import Header, open_header


def checkpoints_findings(folder: Path, kept: dict[str, Any]) -> Iterator[Finding]:
    """Every checkpoint; the newest good one goes into `kept`."""
    there = [checkpoint.folder_of(folder, step) for step in reversed(checkpoint.steps(folder))]
    files = [f for path in there for f in files_below(path)]
    bad: dict[Path, UserError] = {}
    with Bar(files, title=f"reading {folder.name}") as bar:
        for path in there:
            try:
                checkpoint.read_state(path)
            except UserError as e:
                bad[path] = e
            bar.read(sum(map(size_of, files_below(path))))
    there = [path for path in there if path.exists()]  # a run removes the oldest
    good = [path for path in there if path not in bad]
    newest = good[0] if good else None
    kept["newest"] = newest
    instead = f"continuing takes {newest.name}" if newest else "there is none to continue from"
    for path in there:
        if path in bad:
            yield error(
                "checkpoint",
                str(bad[path]),
                f"It is passed over; {instead}. Remove it, or restore it from a copy.",
            )
    if newest:
        size = sum(map(size_of, files_below(newest))) / 1e6
        which = named((path.name for path in good), at_most=5)
        yield ok(
            "checkpoints",
            f"whole to the last byte: {which}; {newest.name} would be continued ({size:,.0f} MB)",
        )
        yield from model_findings(newest, kept)


def model_findings(path: Path, kept: dict[str, Any]) -> Iterator[Finding]:
    """Compares the word tables of a checkpoint with recipe and facts. Only the headers of the
    tensor files are read, not the tensors."""
    config: PretrainConfig | None = kept.get("config")
    if config is None or "facts" not in kept or not (path / "model.safetensors").exists():
        return
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
