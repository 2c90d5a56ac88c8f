"""`electrify rerank`: chooses from n-best lists of a recogniser or translator by the score of a
pre-trained encoder, as Electric's authors did for speech (2012.08561 section 4.3).

A hypothesis gets score + weight * (score of the model) + length_bonus * (number of words), and the
highest wins. Weight and bonus are those with the lowest word error rate on another file of lists
with references.

Shape suffixes: H hypotheses of all lists, U lists, R resamples.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UserError, must_have, need
from ..files import written
from ..finetuning.new_texts import must_be_ready
from ..progress import Progress, aligned
from ..text.tables import rows
from .options import RerankConfig

if TYPE_CHECKING:
    from .pll import Scorer

Array = np.ndarray[Any, Any]
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


@dataclass(frozen=True)
class NBest:
    """The hypotheses for one utterance, and how well each fits.

    reference: what was said, None if that is not known. errors: word edits (substitutions,
    insertions and deletions) between it and each hypothesis.
    """

    row: Mapping[str, Any] = field(repr=False)
    texts: tuple[str, ...]
    first_pass: tuple[float, ...]
    reference: str | None = None
    errors: tuple[int, ...] = ()


@dataclass(frozen=True)
class Rate:
    """A word error rate in percent, with its 95 % interval over resampled utterances."""

    percent: float
    low: float
    high: float


@dataclass(frozen=True)
class Reranked:
    """What was chosen from each list."""

    texts: tuple[str, ...] = field(repr=False)
    chosen: tuple[int, ...] = field(repr=False)
    """The number of the hypothesis in its list, from 0."""
    weight: float
    length_bonus: float
    rates: Mapping[str, Rate]
    """Word error rates: before, after, oracle (the best hypothesis of each list), and change (after
    minus before); empty without references."""

    def table(self) -> str:
        """The rates as a table of text; empty without references."""
        if not self.rates:
            return ""
        cells = [["", "WER %", "95 % interval"]]
        for name, rate in self.rates.items():
            numbers = (rate.percent, rate.low, rate.high)
            mean, low, high = (f"{x:+.2f}" if name == "change" else f"{x:.2f}" for x in numbers)
            cells.append([name, mean, f"{low} to {high}"])
        return "\n".join(aligned(cells, names=1))


# ------------------------------------------------------------------ lists


def read_lists(path: str, *, referenced: bool = False) -> list[NBest]:
    """The lists of a file of JSON lines. referenced: each needs a reference. Raises UserError that
    names file and line."""
    found = [nbest_of(row.cells, row.where) for row in rows(path)]
    need(bool(found), f"{path}: no n-best lists")
    known = sum(one.reference is not None for one in found)
    need(
        known == len(found) or (known == 0 and not referenced),
        f"{path}: {len(found) - known:,} of {len(found):,} lists have no reference",
        f"give it as {REFERENCES[0]!r}",
    )
    return with_errors(found) if known else found


def nbest_of(row: Mapping[str, Any], where: str) -> NBest:
    """One list: strings with `scores` beside them, or objects with `text` and `score`. Without
    scores, the order of the hypotheses is all that the first pass says. Raises UserError."""
    given = first(row, HYPOTHESES)
    if not isinstance(given, list) or not given:
        raise UserError(f"{where}: no list of hypotheses under {' or '.join(HYPOTHESES)}")
    objects = all(isinstance(one, dict) for one in given)
    texts = [first(one, TEXTS) for one in given] if objects else given
    scores = [first(one, SCORES) for one in given] if objects else first(row, SCORES)
    if objects and all(score is None for score in scores):
        scores = None
    if not all(isinstance(text, str) for text in texts):
        raise UserError(f"{where}: a hypothesis must be a text, or an object with {TEXTS[0]!r}")
    if scores is None:
        scores = [0.0] * len(texts)
    right = isinstance(scores, list) and len(scores) == len(texts)
    if not right or not all(isinstance(s, int | float) and np.isfinite(s) for s in scores):
        raise UserError(f"{where}: there must be one score, a number, for each hypothesis")
    reference = first(row, REFERENCES)
    if reference is not None and not isinstance(reference, str):
        raise UserError(f"{where}: the reference must be a text")
    return NBest(row, tuple(texts), tuple(map(float, scores)), reference)


def first(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The value under the first of these names that the row has."""
    return next((row[name] for name in names if name in row), None)


def with_errors(lists: Sequence[NBest]) -> list[NBest]:
    """The lists with the word edits of each hypothesis, as jiwer counts them. Raises UserError
    without jiwer."""
    must_have("a word error rate", "rerank", "jiwer")
    import jiwer

    found = []
    for one in lists:
        reference = [str(one.reference)] * len(one.texts)
        aligned_words = jiwer.process_words(reference, list(one.texts)).alignments
        errors = tuple(
            sum(
                max(c.ref_end_idx - c.ref_start_idx, c.hyp_end_idx - c.hyp_start_idx)
                for c in chunks
                if c.type != "equal"
            )
            for chunks in aligned_words
        )
        found.append(NBest(one.row, one.texts, one.first_pass, one.reference, errors))
    return found


# ------------------------------------------------------------------ choosing


@dataclass(frozen=True)
class Lists:
    """The hypotheses of all lists in one array after the other."""

    lists: Sequence[NBest]
    first_H: Array
    model_H: Array
    words_H: Array
    starts_U: Array

    @classmethod
    def scored(cls, lists: Sequence[NBest], scorer: Scorer, *, batch_tokens: int) -> Lists:
        """With the scores of the model."""
        texts = [text for one in lists for text in one.texts]
        with Progress(len(texts), title="rerank", unit="hypotheses") as progress:
            scores = scorer.scores(texts, batch_tokens=batch_tokens, after=progress.advance)
        return cls(
            lists,
            np.array([score for one in lists for score in one.first_pass]),
            np.array(scores),
            np.array([len(text.split()) for text in texts]),
            np.cumsum([0, *(len(one.texts) for one in lists)])[:-1],
        )

    def chosen(self, weight: float, length_bonus: float) -> Array:
        """The number of the best hypothesis in each list, [U]: of equal ones the first."""
        total_H = self.first_H + weight * self.model_H + length_bonus * self.words_H
        best_U = np.maximum.reduceat(total_H, self.starts_U)
        sizes_U = np.diff([*self.starts_U, len(total_H)])
        at_H = np.where(
            total_H == np.repeat(best_U, sizes_U), np.arange(len(total_H)), len(total_H)
        )
        return np.minimum.reduceat(at_H, self.starts_U) - self.starts_U

    def errors(self, chosen_U: Array) -> Array:
        """The word edits of the chosen hypotheses, [U]."""
        pairs = zip(self.lists, chosen_U.tolist(), strict=True)
        return np.array([one.errors[number] for one, number in pairs])

    @property
    def words_U(self) -> Array:
        """The words of the references."""
        return np.array([len(str(one.reference).split()) for one in self.lists])

    def spread(self, scores_H: Array) -> float:
        """The mean standard deviation inside a list."""
        parts = np.split(scores_H, self.starts_U[1:])
        return float(np.mean([part.std() for part in parts]))


def tuned(lists: Lists) -> tuple[float, float]:
    """The weight and the bonus with the fewest word edits: the smallest of equally good ones."""
    errors_H = np.concatenate([one.errors for one in lists.lists])
    first = lists.spread(lists.first_H) or 1.0  # without scores of a first pass, any unit will do
    per_score, per_word = (first / (lists.spread(x) or 1.0) for x in (lists.model_H, lists.words_H))
    grid = [(w * per_score, b * per_word) for w, b in product(WEIGHTS, BONUSES)]
    grid.sort(key=lambda point: (abs(point[1]), point[0]))

    def edits(point: tuple[float, float]) -> int:
        return int(errors_H[lists.starts_U + lists.chosen(*point)].sum())

    return min(grid, key=edits)


def rates_of(lists: Lists, chosen_U: Array) -> dict[str, Rate]:
    """The word error rates, with intervals from resampled utterances (the same resamples for all,
    so the change is paired)."""
    words_U = lists.words_U
    need(bool(words_U.sum()), "the references hold no words")
    before_U = lists.errors(np.zeros_like(chosen_U))
    after_U = lists.errors(chosen_U)
    oracle_U = np.array([min(one.errors) for one in lists.lists])
    edits = {"before": before_U, "after": after_U, "oracle": oracle_U, "change": after_U - before_U}
    draws_RU = np.random.default_rng(0).multinomial(
        len(words_U), np.full(len(words_U), 1 / len(words_U)), size=RESAMPLES
    )
    words_R = (draws_RU @ words_U).clip(1)
    found = {}
    for name, edits_U in edits.items():
        low, high = np.percentile(100 * (draws_RU @ edits_U) / words_R, (2.5, 97.5))
        found[name] = Rate(100 * edits_U.sum() / words_U.sum(), float(low), float(high))
    return found


def rerank(options: RerankConfig) -> Reranked:
    """Reranks the lists of a file, and writes the chosen texts if an output file is given. Raises
    UserError before the model is loaded."""
    must_be_ready(options, options.output_file)
    lists = read_lists(options.file)
    development = read_lists(options.tune_file, referenced=True) if options.tune_file else []

    from ..train.machine import pick_device
    from .pll import load_scorer

    device, tokens = pick_device(options.device), options.batch_tokens
    scorer = load_scorer(options.model, device=device, architecture=options.architecture)
    with scorer.computing(options.threads, tokens=tokens):
        weight, bonus = options.weight, options.length_bonus
        if development:
            weight, bonus = tuned(Lists.scored(development, scorer, batch_tokens=tokens))
        scored = Lists.scored(lists, scorer, batch_tokens=tokens)
    chosen_U = scored.chosen(weight or 0.0, bonus)
    texts = [one.texts[number] for one, number in zip(lists, chosen_U.tolist(), strict=True)]
    rates = rates_of(scored, chosen_U) if lists[0].reference is not None else {}
    found = Reranked(tuple(texts), tuple(chosen_U.tolist()), weight or 0.0, bonus, rates)
    if options.output_file is not None:
        with written(Path(options.output_file)) as part, part.open("w", encoding="utf-8") as stream:
            for one, text, number in zip(lists, texts, found.chosen, strict=True):
                said = {**one.row, "reranked": text, "reranked_index": number}
                stream.write(json.dumps(said, ensure_ascii=False) + "\n")
    return found


def as_json(found: Reranked) -> str:
    """Weight, bonus and rates."""
    rates = {name: asdict(rate) for name, rate in found.rates.items()}
    known = {"lists": len(found.texts), "weight": found.weight, "length_bonus": found.length_bonus}
    return json.dumps(known | {"wer": rates})
