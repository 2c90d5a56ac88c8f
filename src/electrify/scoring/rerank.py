"""`electrify rerank`: chooses from n-best lists of a recogniser or translator by the score of a
pre-trained encoder, as Electric's authors did for speech (2012.08561 section 4.3).

A hypothesis gets score + weight * (score of the model) + length_bonus * (number of words), and the
highest wins. Weight and bonus are those with the lowest word error rate on another file of lists
with references.

Shape suffixes: U lists, H hypotheses of a list, R resamples.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from itertools import product, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import MinLen

from ..errors import must_have, need
from ..files import write
from ..finetuning.output import must_be_ready
from ..names import Named
from ..onnx_models import Array
from ..progress import Progress, aligned
from ..text.tables import rows
from ..values import checked
from .options import RerankConfig

if TYPE_CHECKING:
    from .pll import Scorer

HYPOTHESES = ("hypotheses", "nbest", "input")
SCORES = ("scores", "score", "first_pass_scores")
REFERENCES = ("reference", "ref", "output", "text")
TEXTS = ("text", "hypothesis", "sentence")
WEIGHTS = (0.0, *np.geomspace(0.01, 10.0, 31).tolist())
"""Tried for the tuning, in units of the ratio of spreads: first-pass scores to scores of the
model, each inside a list."""
BONUSES = tuple(np.linspace(-2.0, 2.0, 17).tolist())
"""The same for the bonus of a word."""
RESAMPLES = 1000
MANY = 1 << 30
"""More word edits than a hypothesis has."""


@dataclass(frozen=True)
class NBest:
    """The hypotheses for one utterance, and how well each fits. reference: what was said, None if
    that is not known."""

    row: Mapping[str, Any] = field(repr=False)
    texts: tuple[str, ...]
    first_pass: tuple[float, ...]
    reference: str | None = None


@dataclass(frozen=True)
class Rate:
    """A word error rate in percent, with its 95 % interval over resampled utterances."""

    percent: float
    low: float
    high: float


@dataclass(frozen=True)
class Ranked(Named):
    """A hypothesis in the order of its list."""

    text: str
    score: float
    """The sum that decides."""
    index: int
    """Its number in the list, from 0."""


@dataclass(frozen=True)
class Reranked(Named):
    """What was chosen from each list."""

    texts: tuple[str, ...]
    rankings: tuple[tuple[Ranked, ...], ...] = field(repr=False)
    """The hypotheses of each list, the best first."""
    weight: float
    length_bonus: float
    rates: Mapping[str, Rate]
    """Word error rates: before, after, oracle (the best hypothesis of each list), and change (after
    minus before); empty without references."""

    @property
    def chosen(self) -> tuple[int, ...]:
        """The number of the hypothesis in its list, from 0."""
        return tuple(ranking[0].index for ranking in self.rankings)

    def table(self) -> str:
        """The rates as a table of text; empty without references."""
        if not self.rates:
            return ""
        cells = [["", "WER %", "95 % interval"]]
        for name, rate in self.rates.items():
            mean, low, high = (f"{x:{'+' * (name == 'change')}.2f}" for x in astuple(rate))
            cells.append([name, mean, f"{low} to {high}"])
        return "\n".join(aligned(cells, names=1))


# ------------------------------------------------------------------ lists


def read_lists(path: str, *, referenced: bool = False) -> list[NBest]:
    """The lists of a file of JSON lines. referenced: each needs a reference. Raises UserError that
    names file and line, and without jiwer if there are references."""
    found = [nbest_of(row.cells, row.where) for row in rows(path)]
    need(bool(found), f"{path}: no n-best lists")
    lacking = sum(one.reference is None for one in found)
    need(
        not lacking or (lacking == len(found) and not referenced),
        f"{path}: {lacking:,} of {len(found):,} lists have no reference",
        f"give it as {REFERENCES[0]!r}",
    )
    if not lacking:
        must_have("a word error rate", "rerank", "jiwer")
    return found


def nbest_of(row: Mapping[str, Any], where: str) -> NBest:
    """One list: strings with `scores` beside them, or objects with `text` and `score`. Without
    scores, the order of the hypotheses is all that the first pass says. Raises UserError."""

    def first(row: Any, names: Sequence[str]) -> Any:
        return next((row[name] for name in names if name in row), None)

    texts, scores = first(row, HYPOTHESES), first(row, SCORES)
    if isinstance(texts, list) and all(isinstance(one, dict) for one in texts):
        scores = [first(one, SCORES) for one in texts]
        scores = scores if any(score is not None for score in scores) else None
        texts = [first(one, TEXTS) for one in texts]
    texts = checked(texts, Annotated[list[str], MinLen(1)], f"{where}: {HYPOTHESES[0]}")
    scores = [0.0] * len(texts) if scores is None else scores
    scores = checked(scores, list[float], f"{where}: {SCORES[0]}")
    need(len(scores) == len(texts), f"{where}: there must be one score for each hypothesis")
    reference = checked(first(row, REFERENCES), str | None, f"{where}: {REFERENCES[0]}")
    return NBest(row, tuple(texts), tuple(scores), reference)


# ------------------------------------------------------------------ choosing


@dataclass(frozen=True)
class Lists:
    """The hypotheses of all lists, each a row that is filled up to the longest one.

    first_UH: scores of the first pass, -inf where a list has no hypothesis more. errors_UH: word
    edits (substitutions, insertions and deletions) between the reference and each hypothesis.
    """

    first_UH: Array
    model_UH: Array
    words_UH: Array
    errors_UH: Array
    words_U: Array
    """Of the references."""

    @classmethod
    def of(cls, lists: Sequence[NBest], scores: Sequence[float]) -> Lists:
        """scores: of the model, for the hypotheses of one list after the other."""
        ends = np.cumsum([len(one.texts) for one in lists])
        known = lists[0].reference is not None
        return cls(
            filled([one.first_pass for one in lists], -np.inf),
            filled(np.split(np.array(scores), ends[:-1]), 0.0),
            filled([[len(text.split()) for text in one.texts] for one in lists], 0),
            filled([word_edits(one) for one in lists if known], MANY),
            np.array([len((one.reference or "").split()) for one in lists]),
        )

    def totals(self, weight: float, length_bonus: float) -> Array:
        """The sums that decide, [U, H]."""
        return self.first_UH + weight * self.model_UH + length_bonus * self.words_UH

    def chosen(self, weight: float, length_bonus: float) -> Array:
        """The number of the best hypothesis in each list, [U]: of equal ones the first."""
        return self.totals(weight, length_bonus).argmax(axis=1)

    def errors(self, chosen_U: Array) -> Array:
        """The word edits of the chosen hypotheses, [U]."""
        return self.errors_UH[np.arange(len(chosen_U)), chosen_U]

    def spread(self, scores_UH: Array) -> float:
        """The mean standard deviation inside a list."""
        pairs = zip(scores_UH, np.isfinite(self.first_UH), strict=True)
        return float(np.mean([scores_H[there_H].std() for scores_H, there_H in pairs]))


def filled(rows: Sequence[Sequence[float] | Array], value: float) -> Array:
    """Rows of several lengths as an array, filled up with `value`."""
    return np.array(list(zip_longest(*rows, fillvalue=value))).T


def word_edits(one: NBest) -> list[int]:
    """Of each hypothesis, as jiwer counts them."""
    import jiwer

    counts = (jiwer.process_words(str(one.reference), text) for text in one.texts)
    return [c.substitutions + c.insertions + c.deletions for c in counts]


def tuned(lists: Lists) -> tuple[float, float]:
    """The weight and the bonus with the fewest word edits: the smallest of equally good ones."""
    # Without scores of a first pass, any unit will do.
    first = lists.spread(lists.first_UH) or 1.0
    per_score, per_word = (
        first / (lists.spread(x) or 1.0) for x in (lists.model_UH, lists.words_UH)
    )
    grid = [(w * per_score, b * per_word) for w, b in product(WEIGHTS, BONUSES)]
    grid.sort(key=lambda point: (abs(point[1]), point[0]))
    return min(grid, key=lambda point: int(lists.errors(lists.chosen(*point)).sum()))


def rates_of(lists: Lists, chosen_U: Array) -> dict[str, Rate]:
    """The word error rates, with intervals from resampled utterances (the same resamples for all,
    so the change is paired)."""
    words_U = lists.words_U
    need(bool(words_U.sum()), "the references hold no words")
    before_U, after_U = lists.errors_UH[:, 0], lists.errors(chosen_U)
    edits = {"before": before_U, "after": after_U, "oracle": lists.errors_UH.min(axis=1)}
    edits["change"] = after_U - before_U
    number = len(words_U)
    draws_RU = np.random.default_rng(0).multinomial(number, [1 / number] * number, size=RESAMPLES)
    words_R = (draws_RU @ words_U).clip(1)
    found = {}
    for name, edits_U in edits.items():
        low, high = np.percentile(100 * (draws_RU @ edits_U) / words_R, (2.5, 97.5))
        found[name] = Rate(100 * edits_U.sum() / words_U.sum(), float(low), float(high))
    return found


def rerank(options: RerankConfig, scorer: Scorer | None = None) -> Reranked:
    """Reranks the lists of a file, and writes the chosen texts if an output file is given. scorer:
    the model of the options, if it is loaded. Raises UserError before it is loaded."""
    must_be_ready(options, options.output_file)
    lists = read_lists(options.file)
    development = read_lists(options.tune_file, referenced=True) if options.tune_file else []

    from .pll import load_scorer

    tokens, architecture = options.batch_tokens, options.architecture
    if scorer is None:
        scorer = load_scorer(options.model, device=options.device, architecture=architecture)

    def scored(lists: Sequence[NBest]) -> Lists:
        texts = [text for one in lists for text in one.texts]
        with Progress(len(texts), title="rerank", unit="hypotheses") as progress:
            scores = scorer.scores(texts, batch_tokens=tokens, after=progress.advance)
        return Lists.of(lists, scores)

    with scorer.computing(options.threads, tokens=tokens):
        weight, bonus = options.weight or 0.0, options.length_bonus
        if development:
            weight, bonus = tuned(scored(development))
        its = scored(lists)
    rankings = tuple(map(ranked, lists, its.totals(weight, bonus)))
    rates = rates_of(its, its.chosen(weight, bonus)) if lists[0].reference is not None else {}
    if options.output_file is not None:
        said = (
            {**one.row, "reranked": best.text, "reranked_index": best.index}
            for one, (best, *_) in zip(lists, rankings, strict=True)
        )
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in said)
        write(Path(options.output_file), "".join(lines))
    return Reranked(tuple(best.text for best, *_ in rankings), rankings, weight, bonus, rates)


def ranked(one: NBest, totals_H: Array) -> tuple[Ranked, ...]:
    """The hypotheses of a list, the best first, of equal ones the first."""
    found = map(Ranked, one.texts, totals_H.tolist(), range(len(one.texts)))
    return tuple(sorted(found, key=lambda it: -it.score))


def as_json(found: Reranked) -> str:
    """Weight, bonus and rates."""
    rates = {name: asdict(rate) for name, rate in found.rates.items()}
    known = {"lists": len(found.texts), "weight": found.weight, "length_bonus": found.length_bonus}
    return json.dumps(known | {"wer": rates})
