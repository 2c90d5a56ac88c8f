"""The statistics of a prepared corpus, as a table in plain text."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from ..files import read_json
from .counts import UNK_DOCUMENTS
from .documents import EMPTY_ROWS
from .encode import WITHOUT_TOKENS
from .judged import trained_here
from .manifest import Manifest
from .unknown import share_of

LOG = "prepare.log.json"


def _log(folder: Path) -> tuple[dict[str, float], int, int]:
    """What the run that made the folder wrote down: the seconds of each phase, the number of
    parts, and how many of them an earlier attempt had made; {} and zeros if it wrote nothing."""
    if not (folder / LOG).is_file():
        return {}, 0, 0
    log = read_json(folder / LOG)
    return log["seconds"], log["parts"], log["parts_reused"]


def _unknown(manifest: Manifest) -> list[tuple[str, str]]:
    """The rows about what the tokenizer does not know."""
    found, lost = share_of(manifest.counts), manifest.counts[UNK_DOCUMENTS]
    return [("  of the characters", f"{found:.4%}"), ("  documents, half or more", f"{lost:,.0f}")]


def _case(manifest: Manifest) -> list[tuple[str, str]]:
    """The row about what a tokenizer that was trained here makes of letters; none for a given one,
    which decides by itself."""
    options = manifest.options
    if not trained_here(manifest):
        return []
    case = "lower" if options["lowercase"] else "kept"
    return [("case", f"{case}, accents {'removed' if options['strip_accents'] else 'kept'}")]


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
        *_case(manifest),
        ("text", f"{c['bytes'] / 1e6:,.1f} MB"),
    ]
    for name, shown in (
        (EMPTY_ROWS, "rows without text"),
        ("encoding_errors", "not UTF-8 (documents)"),
        ("nul_characters", "NUL characters removed"),
        ("cuts", "cuts in very long documents"),
        (WITHOUT_TOKENS, "documents without a token"),
    ):
        if c.get(name):
            rows.append((shown, f"{c[name]:,.0f}"))
    seconds, parts, reused = _log(folder) if folder is not None else ({}, 0, 0)
    if {"total", "encode"} <= seconds.keys():
        steps = ", ".join(
            f"{name} {value:.1f}" for name, value in seconds.items() if name != "total"
        )
        rate = {name: c["bytes"] / 1e6 / max(seconds[name], 1e-9) for name in ("total", "encode")}
        rows += [
            ("seconds", f"{seconds['total']:.1f} ({steps})"),
            ("MB/s", f"{rate['total']:.2f} in all, {rate['encode']:.2f} encoding")
            if not reused
            else ("  not counted", f"{reused} of {parts} parts, which an earlier attempt made"),
        ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)
