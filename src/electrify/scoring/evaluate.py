"""`electrify evaluate`: scores models on BLiMP and writes their accuracies into a folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..files import claim, json_text, read_json, write
from ..progress import Progress, say
from .blimp import Accuracy, Paradigm, judge, read_blimp, table
from .options import EvaluateConfig

if TYPE_CHECKING:
    import torch

    from .pll import Scorer

SCORES = "blimp.json"
PAGE = "blimp.md"


def evaluate(options: EvaluateConfig) -> list[Accuracy]:
    """Scores every model on every paradigm, and writes blimp.json and blimp.md if an output folder
    is given. Raises UserError before anything is scored, also for a folder that holds the scores of
    other models, pairs or options, or other files and no scores."""
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
    labels = {scorer.name: _relative(scorer.name, out) for scorer in scorers}
    identity = {
        "models": sorted(labels.values()),
        "pairs": hashlib.sha256(repr(paradigms).encode()).hexdigest()[:16],
        "max_eval_samples": options.max_eval_samples,
    }
    with claim(out, SCORES):
        known = read_json(out / SCORES) if (out / SCORES).is_file() else identity
        if any(known.get(key) != value for key, value in identity.items()):
            raise UserError(
                f"{out / SCORES} holds the scores of other models, pairs or options; choose "
                "another --output-dir"
            )
        rows = _accuracies(scorers, paradigms, options, device)
        labelled = [replace(row, model=labels[row.model]) for row in rows]
        _write(out, labelled, identity | {"scored_as": {labels[s.name]: s.kind for s in scorers}})
    return rows


def _relative(name: str, folder: Path) -> str:
    """The path of a model's folder relative to `folder`, so that both can be moved together; an id
    of the Hub stays as it is."""
    return (
        os.path.relpath(os.path.realpath(name), folder.resolve()) if Path(name).is_dir() else name
    )


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


def _write(out: Path, rows: Sequence[Accuracy], about: dict[str, Any]) -> None:
    found = about | {"paradigms": [asdict(row) for row in rows]}
    write(out / SCORES, json_text(found, indent=1) + "\n")
    page = f"# BLiMP\n\nAccuracy in percent; paradigms count alike.\n\n```\n{table(rows)}\n```\n"
    write(out / PAGE, page)
