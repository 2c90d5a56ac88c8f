"""BLiMP: minimal pairs of English grammar, without training (1912.00582). A pair is right where the
good sentence has the higher score.

The data is a folder of JSON lines (`sentence_good`, `sentence_bad`), a file for each paradigm;
those in `supplement/` are reported apart.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..config.evaluate import EvaluateConfig
from ..console import harmless
from ..errors import UserError
from ..files.folders import fingerprint, mark_of, marked, own_bytes, relative
from ..files.lock import lock
from ..files.results import write_results
from ..files.whole import json_text
from ..progress import Progress, aligned, say
from ..text.whole import json_rows, read_text

if TYPE_CHECKING:
    from .pll import Scorer

FILES = ("blimp.json", "blimp.md")
KIND = "blimp"
SEAL = "<!-- electrify blimp"
# The files name thirteen terms, the paper has twelve phenomena: its table counts the two paradigms
# of selection among argument structure.
PHENOMENON = {"s-selection": "argument_structure"}


@dataclass(frozen=True)
class Pair:
    """Two sentences that differ in one point of grammar."""

    good: str
    bad: str


@dataclass(frozen=True)
class Paradigm:
    """A file of pairs. phenomenon and field are the linguists' terms ("-" where the file names
    none); part: blimp or supplement."""

    name: str
    part: str
    field: str
    phenomenon: str
    pairs: tuple[Pair, ...]


@dataclass(frozen=True)
class Accuracy:
    """What a model got right of a paradigm. A tie is not right."""

    model: str
    paradigm: str
    part: str
    field: str
    phenomenon: str
    pairs: int
    accuracy: float
    ties: int


def read_blimp(data_dir: str | Path, *, limit: int | None = None) -> list[Paradigm]:
    """The paradigms of a folder and of its `supplement/`, in the order of their names, each with
    its first `limit` pairs.

    Raises UserError naming file and line.
    """
    folder = Path(data_dir)
    found = [
        _paradigm(path, part, limit)
        for part, where in (("blimp", folder), ("supplement", folder / "supplement"))
        for path in _files(where)
    ]
    if not found:
        raise UserError(
            f"{folder}: no .jsonl file there; --data-dir must hold the files of BLiMP, one a "
            "paradigm"
        )
    return found


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl"))


def _paradigm(path: Path, part: str, limit: int | None) -> Paradigm:
    pairs: list[Pair] = []
    terms: dict[str, Any] = {}
    for number, row in json_rows(path, read_text(path)):
        if limit is not None and len(pairs) >= limit:
            break
        where = f"{path}, line {number}"
        for key in ("sentence_good", "sentence_bad"):
            if not isinstance(row.get(key), str) or not row[key].strip():
                raise UserError(f"{where}: no text under {key!r}")
        pairs.append(Pair(row["sentence_good"], row["sentence_bad"]))
        terms = terms or row
    if not pairs:
        raise UserError(f"{path}: no pairs")
    term = str(terms.get("linguistics_term", "-"))
    return Paradigm(
        path.stem, part, str(terms.get("field", "-")), PHENOMENON.get(term, term), tuple(pairs)
    )


def judge(
    scorer: Scorer, paradigms: Sequence[Paradigm], *, batch_tokens: int, progress: Progress
) -> list[Accuracy]:
    """The accuracy of a model on each paradigm."""
    found = []
    for p in paradigms:
        texts = [text for pair in p.pairs for text in (pair.good, pair.bad)]
        scores = scorer.scores(texts, batch_tokens=batch_tokens, after=progress.advance)
        good = scores[::2]
        bad = scores[1::2]
        right, ties = (
            sum(test(a, b) for a, b in zip(good, bad, strict=True))
            for test in (float.__gt__, float.__eq__)
        )
        found.append(
            Accuracy(
                scorer.name,
                p.name,
                p.part,
                p.field,
                p.phenomenon,
                len(p.pairs),
                right / len(p.pairs),
                ties,
            )
        )
    return found


def means(rows: Sequence[Accuracy]) -> dict[tuple[str, str], float]:
    """(part, phenomenon) -> mean accuracy over its paradigms; ("blimp", "overall") the mean over
    all of them, which is how BLiMP is reported."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        groups[row.part, row.phenomenon if row.part == "blimp" else row.paradigm].append(
            row.accuracy
        )
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
    ties = sum(row.ties for row in rows)
    return "\n".join(
        [
            *aligned(cells, names=2),
            *([f"{ties} pairs have equal scores and count as wrong"] if ties else []),
        ]
    )


def evaluate(options: EvaluateConfig) -> list[Accuracy]:
    """Every model on every paradigm; with an output folder blimp.json and blimp.md there. Raises
    UserError before anything is scored.

    That folder may hold other files. It is refused where one of the two is somebody else's, or of
    other models, pairs or options.
    """
    paradigms = read_blimp(options.data_dir, limit=options.max_eval_samples)
    from ..train.device import pick_device  # heavy, so loaded once the data is known to be good
    from ..train.threads import choose, computing_with
    from .pll import load_scorer

    device = pick_device(options.device)
    # `m ./m m/` is one model.
    distinct = {
        os.path.realpath(model) if os.path.isdir(model) else model: model
        for model in reversed(options.models)
    }
    scorers = [load_scorer(model, device=device) for model in reversed(distinct.values())]
    with ExitStack() as held:
        out = Path(options.output_dir) if options.output_dir else None
        labels = {
            scorer.name: relative(scorer.name, out) if out else scorer.name for scorer in scorers
        }
        identity = _identity(labels, paradigms, options) if out else {}
        if out:
            _must_be_ours(out, identity)
            # A folder that cannot be made is found now, and not after the scoring.
            held.enter_context(lock(out))
            _must_be_ours(out, identity)
        width = max(scorer.model.config.hidden_size for scorer in scorers)
        threads = choose(
            options.threads, device=device, width=width, tokens=options.batch_tokens, bf16=False
        )
        if threads.text():
            say(threads.text())
        held.enter_context(computing_with(threads))
        total = len(scorers) * sum(2 * len(p.pairs) for p in paradigms)
        with Progress(total, title="blimp", unit="sentences") as progress:
            rows = [
                row
                for scorer in scorers
                for row in judge(
                    scorer, paradigms, batch_tokens=options.batch_tokens, progress=progress
                )
            ]
        if out:
            _write(
                out,
                [replace(row, model=labels[row.model]) for row in rows],
                identity,
                {labels[s.name]: s.kind for s in scorers},
            )
    return rows


def _identity(
    labels: dict[str, str], paradigms: Sequence[Paradigm], options: EvaluateConfig
) -> dict[str, Any]:
    """What results are of: models by the hash of their files, pairs, options."""
    pairs = hashlib.sha256(repr(paradigms).encode()).hexdigest()[:16]
    return {
        "models": {label: fingerprint(name) for name, label in labels.items()},
        "pairs": pairs,
        "max_eval_samples": options.max_eval_samples,
    }


def _must_be_ours(out: Path, identity: dict[str, Any]) -> None:
    """Raises UserError where one of the two files is not what this very command writes. The table
    says by its last line what it is of.

    Files of earlier versions do not say of what they are, and are refused.
    """
    for name in FILES:
        path = out / name
        if not os.path.lexists(path):
            continue
        text = (own_bytes(path) or b"").decode("utf-8", "replace")
        had = (
            mark_of(path, KIND)
            if name == "blimp.json"
            else {"seal": text}
            if SEAL in text
            else None
        )
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
        "# BLiMP\n\nAccuracy in percent; paradigms count "
        f"alike.\n\n```\n{table(rows)}\n```\n\n{_seal(identity)}"
    )
    record = marked(
        KIND, identity | {"scored_as": kinds, "paradigms": [asdict(row) for row in rows]}
    )
    write_results(out, {"blimp.json": record, "blimp.md": page})
