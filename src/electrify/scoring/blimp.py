"""`electrify evaluate`: BLiMP, minimal pairs of English grammar, without training (1912.00582). A
pair counts as right if the good sentence gets the higher score, and as one half where both get the
same: a model that cannot tell them apart is at chance, and not at 0 or 100 %.

The data is a folder of JSON lines (`sentence_good`, `sentence_bad`), a file for each paradigm;
those in `supplement/` are reported separately. The BabyLM challenge's evaluation data has both.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice, product
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from ..errors import need
from ..files import claim, json_text, must_be_ours, read_json, text_hash, write
from ..progress import Progress, aligned, harmless, say
from ..text.tables import rows
from .options import EvaluateConfig

if TYPE_CHECKING:
    from .pll import Scorer

SCORES = "blimp.json"
PAGE = "blimp.md"
GOOD, BAD = "sentence_good", "sentence_bad"
# The files name thirteen terms, the paper has twelve phenomena: its table counts the two paradigms
# of selection among argument structure.
PHENOMENON = {"s-selection": "argument_structure"}
# Where BLiMP and its supplement may lie; the first place that has files counts. A folder may hold
# both, or lie above it, or hold BabyLM's evaluation data.
SELECTED = "blimp_filtered"
ABOVE = ("", "full_eval/", "babylm/", "babylm/full_eval/")
PLACES = {
    "blimp": ["blimp", "", *(f"{above}{SELECTED}" for above in ABOVE)],
    "supplement": [f"{place}/supplement" for place in ("blimp", ".")]
    + [f"{above}supplement_filtered" for above in ABOVE],
}


@dataclass(frozen=True)
class Pair:
    """Two sentences that differ in one point of grammar, or in a word."""

    good: str
    bad: str
    at: int = field(default=0, repr=False)
    """Where this word begins."""


@dataclass(frozen=True)
class Paradigm:
    """A file of pairs. phenomenon and field are the linguists' terms ("-" if the file names none);
    part: blimp or supplement."""

    name: str
    part: str
    field: str
    phenomenon: str
    pairs: tuple[Pair, ...]


@dataclass(frozen=True)
class Accuracy:
    """The share of a paradigm that a model got right. A tie counts as one half."""

    model: str
    paradigm: str
    part: str
    field: str
    phenomenon: str
    pairs: int
    accuracy: float
    ties: int


def read_blimp(data_dir: str | Path, *, limit: int | None = None) -> list[Paradigm]:
    """The paradigms of BLiMP and of its supplement in a folder (`PLACES`), in the order of their
    names, each with its first `limit` pairs; or the one paradigm of a file. (A blimp/ without pairs
    may be the --output-dir of an earlier call.)

    Raises UserError naming file and line.
    """
    root = Path(data_dir)
    if root.is_file():
        return [_paradigm(root, "blimp", limit)]
    found: list[tuple[str, Path]] = []
    for part, places in PLACES.items():
        there = (sorted((root / place).glob("*.jsonl")) for place in places)
        found += [(part, path) for path in next(filter(None, there), [])]
    need(
        bool(found),
        f"{data_dir}: no .jsonl file there, nor in blimp/ or {SELECTED}/; --data-dir must hold "
        "the files of BLiMP, one a paradigm",
    )
    if (folder := found[0][1].parent).name == SELECTED:
        say(f"{folder}: BabyLM's selection of BLiMP's pairs, with scores of its own")
    return [_paradigm(path, part, limit) for part, path in found]


def _paradigm(path: Path, part: str, limit: int | None) -> Paradigm:
    lines = list(islice(rows(path), limit))
    need(bool(lines), f"{path}: no pairs")
    for row, key in product(lines, (GOOD, BAD)):
        need(bool(row.text(key).strip()), f"{row.where}: no text under {key!r}")
    terms = lines[0].cells
    term = str(terms.get("linguistics_term", path.stem))
    about = (path.stem, part, str(terms.get("field", "-")), PHENOMENON.get(term, term))
    return Paradigm(*about, tuple(Pair(row.text(GOOD), row.text(BAD)) for row in lines))


def evaluate(options: EvaluateConfig) -> list[Accuracy]:
    """Scores every model on every paradigm, and writes blimp.json and blimp.md if an output folder
    is given. Raises UserError before anything is scored, also for a folder that holds the scores of
    other models, pairs or options."""
    paradigms = read_blimp(options.data_dir or "", limit=options.max_eval_samples)
    names, out = list(dict.fromkeys(options.models)), Path(options.output_dir or "")
    # Relative, so that both folders can be moved together; an id of the Hub stays as it is.
    labels = {name: os.path.relpath(name, out) if Path(name).is_dir() else name for name in names}
    identity = {
        "models": sorted(labels.values()),
        "pairs": text_hash(repr(paradigms))[:16],
        "max_eval_samples": options.max_eval_samples,
    }
    if options.output_dir is not None:
        must_be_ours(out, SCORES)
        known = read_json(out / SCORES) if (out / SCORES).is_file() else identity
        fact = f"{out} holds the scores of other models, pairs or options"
        need(known.items() >= identity.items(), fact, "choose another output_dir")

    from .pll import load_scorer  # heavy, so loaded once the data is known to be good

    how = {"device": options.device, "architecture": options.architecture}
    scorers, tokens = [load_scorer(name, **how) for name in names], options.batch_tokens
    with max(scorers, key=lambda s: s.width).computing(options.threads, tokens=tokens):
        rows = judge(scorers, paradigms, batch_tokens=tokens, title="blimp")
    if options.output_dir is None:
        return rows
    labelled = [replace(row, model=labels[row.model]) for row in rows]
    kinds = {labels[scorer.name]: scorer.kind for scorer in scorers}
    found = identity | {"scored_as": kinds, "paradigms": [asdict(row) for row in labelled]}
    page = "# BLiMP\n\nAccuracy in percent; paradigms count alike."
    with claim(out, SCORES):
        write(out / SCORES, json_text(found, indent=1) + "\n")
        write(out / PAGE, f"{page}\n\n```\n{table(labelled)}\n```\n")
    return rows


def judge(
    scorers: Sequence[Scorer], paradigms: Sequence[Paradigm], *, batch_tokens: int, title: str
) -> list[Accuracy]:
    """The accuracy of each model on each paradigm. title: of the progress."""
    found, total = [], len(scorers) * sum(2 * len(p.pairs) for p in paradigms)
    with Progress(total, title=title, unit="sentences") as progress:
        for scorer, p in product(scorers, paradigms):
            texts = [text for pair in p.pairs for text in (pair.good, pair.bad)]
            scores = scorer.scores(texts, batch_tokens=batch_tokens, after=progress.advance)
            both = list(zip(scores[::2], scores[1::2], strict=True))
            ties = sum(good == bad for good, bad in both)
            share = (sum(good > bad for good, bad in both) + ties / 2) / len(both)
            about = (p.name, p.part, p.field, p.phenomenon)
            found.append(Accuracy(scorer.name, *about, len(both), share, ties))
    return found


def means(rows: Sequence[Accuracy]) -> dict[tuple[str, str], float]:
    """(part, phenomenon) -> mean accuracy over its paradigms; ("blimp", "overall") the mean over
    all of them, which is how BLiMP is reported."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        name = row.phenomenon if row.part == "blimp" else row.paradigm
        groups[row.part, name].append(row.accuracy)
    for part in dict.fromkeys(row.part for row in rows):
        groups[part, "overall"] = [row.accuracy for row in rows if row.part == part]
    return {key: fmean(values) for key, values in groups.items()}


def table(rows: Sequence[Accuracy]) -> str:
    """Phenomena by models, in percent."""
    models = list(dict.fromkeys(row.model for row in rows))
    by_model = {model: means([row for row in rows if row.model == model]) for model in models}
    keys = list(by_model[models[0]])
    cells = [["part", "phenomenon", *map(harmless, models)]]
    cells += [
        [part, harmless(name), *(f"{100 * by_model[model][part, name]:.1f}" for model in models)]
        for part, name in keys
    ]
    lines = aligned(cells, names=2)
    if ties := sum(row.ties for row in rows):
        lines.append(f"{ties} pairs have equal scores and count as one half")
    return "\n".join(lines)
