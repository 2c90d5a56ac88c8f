"""BLiMP: minimal pairs of English grammar, without training (1912.00582). A pair counts as right if
the good sentence gets the higher score, and as one half where both get the same: a model that
cannot tell them apart is at chance, and not at 0 or 100 %.

The data is a folder of JSON lines (`sentence_good`, `sentence_bad`), a file for each paradigm;
those in `supplement/` are reported separately. The BabyLM challenge's evaluation data has both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..console import harmless
from ..errors import UserError
from ..progress import Progress, aligned, say
from ..text.streams import must_be_characters
from ..text.tables import rows

if TYPE_CHECKING:
    from .pll import Scorer

# The files name thirteen terms, the paper has twelve phenomena: its table counts the two paradigms
# of selection among argument structure.
PHENOMENON = {"s-selection": "argument_structure"}
# Where BLiMP and its supplement lie in a folder, and in one that holds BabyLM's evaluation data.
PLACES = (
    {"blimp": "blimp", "supplement": "blimp/supplement"},
    {"blimp": "", "supplement": "supplement"},
)
SELECTED = tuple(
    {part: f"{data}{part}_filtered" for part in ("blimp", "supplement")}
    for data in ("", "full_eval/", "babylm/", "babylm/full_eval/")
)


@dataclass(frozen=True)
class Pair:
    """Two sentences that differ in one point of grammar."""

    good: str
    bad: str


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
    """The paradigms of a folder and of its `supplement/`, in the order of their names, each with
    its first `limit` pairs: those of the first of `PLACES` and `SELECTED` that has any. (A blimp/
    without pairs may be the --output-dir of an earlier call.) BLiMP without a supplement has that
    of the first of `SELECTED` that has one.

    Raises UserError naming file and line.
    """
    root = Path(data_dir)
    found = next((files for place in (*PLACES, *SELECTED) if (files := _files(root, place))), [])
    if not found:
        raise UserError(
            f"{data_dir}: no .jsonl file there, nor in blimp/ or blimp_filtered/; --data-dir must "
            "hold the files of BLiMP, one a paradigm"
        )
    if all(part == "blimp" for part, _ in found):
        alone = ({"supplement": place["supplement"]} for place in SELECTED)
        found += next((files for place in alone if (files := _files(root, place))), [])
    if found[0][1].parent.name == "blimp_filtered":
        say(f"{found[0][1].parent}: BabyLM's selection of BLiMP's pairs, with scores of its own")
    return [_paradigm(path, part, limit) for part, path in found]


def _files(root: Path, place: Mapping[str, str]) -> list[tuple[str, Path]]:
    """The files of pairs in the folders of some parts, each with its part."""
    return [
        (part, path)
        for part, where in place.items()
        for path in sorted((root / where).glob("*.jsonl"))
    ]


def _paradigm(path: Path, part: str, limit: int | None) -> Paradigm:
    pairs: list[Pair] = []
    terms: dict[str, Any] = {}
    for where, _, row in rows(path):
        if limit is not None and len(pairs) >= limit:
            break
        for key in ("sentence_good", "sentence_bad"):
            if not isinstance(row.get(key), str) or not row[key].strip():
                raise UserError(f"{where}: no text under {key!r}")
            must_be_characters(row[key], f"{where}: {key!r}")
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
                (right + ties / 2) / len(p.pairs),
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
            *([f"{ties} pairs have equal scores and count as one half"] if ties else []),
        ]
    )
