"""`electrify evaluate`: scores models on BLiMP and writes their accuracies into a folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..oldfiles.folders import (
    SCORES,
    SCORES_PAGE,
    fingerprint,
    mark_of,
    marked,
    own_bytes,
    relative,
)
from ..oldfiles.lock import lock
from ..oldfiles.results import write_results
from ..oldfiles.whole import json_text
from ..progress import Progress, say
from .blimp import Accuracy, Paradigm, judge, read_blimp, table
from .options import EvaluateConfig

if TYPE_CHECKING:
    import torch

    from .pll import Scorer

FILES = (SCORES, SCORES_PAGE)
KIND = "blimp"
SEAL = "<!-- electrify blimp"


def evaluate(options: EvaluateConfig) -> list[Accuracy]:
    """Scores every model on every paradigm, and writes blimp.json and blimp.md if an output folder
    is given. Raises UserError before anything is scored.

    That folder may hold other files. It is refused if one of the two files belongs to somebody
    else, or to other models, pairs or options.
    """
    return evaluate_pairs(options, read_blimp(options.data_dir, limit=options.max_eval_samples))


def evaluate_pairs(options: EvaluateConfig, paradigms: list[Paradigm]) -> list[Accuracy]:
    """The same, for pairs that have been read."""
    from ..train.machine import pick_device  # heavy, so loaded once the data is known to be good
    from .pll import load_scorer

    device = pick_device(options.device)
    scorers = [load_scorer(model, device=device) for model in _distinct(options.models)]
    out = Path(options.output_dir) if options.output_dir else None
    if out is None:
        return _accuracies(scorers, paradigms, options, device)
    labels = {scorer.name: relative(scorer.name, out) for scorer in scorers}
    identity = _identity(labels, paradigms, options)
    _must_be_ours(out, identity)
    with lock(out):  # a folder that cannot be made is found now, and not after the scoring
        _must_be_ours(out, identity)
        rows = _accuracies(scorers, paradigms, options, device)
        labelled = [replace(row, model=labels[row.model]) for row in rows]
        _write(out, labelled, identity, {labels[s.name]: s.kind for s in scorers})
    return rows


def _distinct(models: Sequence[str]) -> list[str]:
    """Each model once, in the order given: `m ./m m/` is one model."""
    places: dict[str, str] = {}
    for model in models:
        places.setdefault(os.path.realpath(model) if os.path.isdir(model) else model, model)
    return list(places.values())


def _accuracies(
    scorers: Sequence[Scorer],
    paradigms: Sequence[Paradigm],
    options: EvaluateConfig,
    device: torch.device,
) -> list[Accuracy]:
    """Every model on every paradigm."""
    from ..train.machine import choose, computing_with

    width = max(scorer.model.config.hidden_size for scorer in scorers)
    size = options.batch_tokens
    threads = choose(options.threads, device=device, width=width, tokens=size, bf16=False)
    if threads.text():
        say(threads.text())
    total = len(scorers) * sum(2 * len(p.pairs) for p in paradigms)
    with (
        computing_with(threads),
        Progress(total, title="blimp", unit="sentences") as progress,
    ):
        return [
            row
            for scorer in scorers
            for row in judge(scorer, paradigms, batch_tokens=size, progress=progress)
        ]


def _identity(
    labels: dict[str, str], paradigms: Sequence[Paradigm], options: EvaluateConfig
) -> dict[str, Any]:
    """What the results belong to: the models (by the hash of their files), the pairs and the
    options."""
    pairs = hashlib.sha256(repr(paradigms).encode()).hexdigest()[:16]
    return {
        "models": {label: fingerprint(name) for name, label in labels.items()},
        "pairs": pairs,
        "max_eval_samples": options.max_eval_samples,
    }


def _must_be_ours(out: Path, identity: dict[str, Any]) -> None:
    """Raises UserError if one of the two files is not what this very command writes. The last line
    of the table says what it belongs to. Files of earlier versions do not say what they belong to,
    and are refused.
    """
    for name in FILES:
        path = out / name
        if not os.path.lexists(path):
            continue
        text = (own_bytes(path) or b"").decode("utf-8", "replace")
        sealed = {"seal": text} if SEAL in text else None
        had = mark_of(path, KIND) if name == SCORES else sealed
        if had is None:
            raise UserError(
                f"{path} is not a file that this version of electrify evaluate wrote; move it "
                "away, or choose another --output-dir"
            )
        if any(had[k] != v for k, v in identity.items() if k in had) or (
            "seal" in had and not text.endswith(_seal(identity))
        ):
            raise UserError(
                f"{path} holds the scores of other models, pairs or options; choose another "
                "--output-dir"
            )


def _seal(identity: dict[str, Any]) -> str:
    return f"{SEAL} {hashlib.sha256(json_text(identity).encode()).hexdigest()} -->\n"


def _write(
    out: Path, rows: Sequence[Accuracy], identity: dict[str, Any], kinds: dict[str, str]
) -> None:
    page = (
        "# BLiMP\n\nAccuracy in percent; paradigms count alike.\n\n"
        f"```\n{table(rows)}\n```\n\n{_seal(identity)}"
    )
    record = marked(
        KIND, identity | {"scored_as": kinds, "paradigms": [asdict(row) for row in rows]}
    )
    write_results(out, {SCORES: record, SCORES_PAGE: page})
