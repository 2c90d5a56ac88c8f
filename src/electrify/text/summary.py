"""The statistics of a prepared corpus, as a table in plain text."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from ..errors import UserError
from ..files.reading import read_object
from ..files.schema import check
from .counts import UNK_DOCUMENTS
from .encode import WITHOUT_TOKENS
from .manifest import Manifest
from .unknown import share_of

LOG = "prepare.log.json"


def _seconds(folder: Path) -> dict[str, float]:
    """The seconds of each phase of the run that made the folder; {} if the folder does not say."""
    try:
        return check(
            dict[str, float],
            read_object(folder / LOG, within=folder).get("seconds"),
            str(folder / LOG),
        )
    except UserError:
        return {}


def _unknown(manifest: Manifest) -> list[tuple[str, str]]:
    """The rows about what the tokenizer does not know; none for a corpus made before characters
    were counted."""
    found = share_of(manifest.counts)
    if found is None:
        return []
    lost = manifest.counts[UNK_DOCUMENTS]
    return [("  of the characters", f"{found:.4%}"), ("  documents, half or more", f"{lost:,.0f}")]


def report(manifest: Manifest, *, folder: Path | None = None) -> str:
    """The statistics of the corpus, as a table in plain text. With `folder` (that of the manifest),
    it also has the seconds and the rate of the run that made it."""
    c = defaultdict(float, manifest.counts)
    rows = [
        ("documents", f"{c['documents']:,.0f}"),
        ("  of them validation", f"{sum(s.documents for s in manifest.splits.get('valid', ())):,}"),
        ("words", f"{c['words']:,.0f}"),
        ("tokens", f"{c['tokens']:,.0f}"),
        ("tokens per word", f"{c['tokens'] / max(c['words'], 1):.3f}"),
        ("[UNK] rate", f"{c['unk_tokens'] / max(c['tokens'], 1):.4%}"),
        *_unknown(manifest),
        ("duplicates dropped", f"{c['duplicates']:,.0f}"),
        ("vocabulary", f"{manifest.vocab_size:,}"),
        ("text", f"{c['bytes'] / 1e6:,.1f} MB"),
    ]
    for name, shown in (
        ("encoding_errors", "not UTF-8 (documents)"),
        ("nul_characters", "NUL characters removed"),
        ("cuts", "cuts in very long documents"),
        (WITHOUT_TOKENS, "documents without a token"),
    ):
        if c.get(name):
            rows.append((shown, f"{c[name]:,.0f}"))
    seconds = _seconds(folder) if folder is not None else {}
    if {"total", "encode"} <= seconds.keys():
        steps = ", ".join(
            f"{name} {value:.1f}" for name, value in seconds.items() if name != "total"
        )
        rate = {name: c["bytes"] / 1e6 / max(seconds[name], 1e-9) for name in ("total", "encode")}
        rows += [
            ("seconds", f"{seconds['total']:.1f} ({steps})"),
            ("MB/s", f"{rate['total']:.2f} in all, {rate['encode']:.2f} encoding"),
        ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)
