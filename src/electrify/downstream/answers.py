"""Scores of extracted answers, as SQuAD's official script 2.0 computes them, for SQuAD 1.1 too.

The script for 1.1 differs only if an answer normalises to nothing ("the", "..."): it keeps such a
gold answer beside others, and gives an F1 of 0 instead of 1 if both sides are empty. It also scores
a missing prediction as 0, while here that is an error.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from ..errors import UserError
from .examples import Question

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalize(text: str) -> str:
    """Lower case, without ASCII punctuation and the articles a, an, the, one blank between words.
    Other punctuation stays."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact(gold: str, predicted: str) -> float:
    """1 where both normalise to the same text, else 0."""
    return float(normalize(gold) == normalize(predicted))


def f1(gold: str, predicted: str) -> float:
    """F1 of the words in common, repeated ones counted, 0..1. If a side has no words: 1 if neither
    has any, else 0."""
    wanted = normalize(gold).split()
    given = normalize(predicted).split()
    if not wanted or not given:
        return float(wanted == given)
    common = sum((Counter(wanted) & Counter(given)).values())
    if not common:
        return 0.0
    precision = common / len(given)
    recall = common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def score_answers(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    no_answer: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Fractions, 0..1: `exact` and `f1`, the best over a question's gold answers. predictions:
    question id to text, "" for no answer.

    If some questions have no answer, it also gives has_answer_exact, has_answer_f1 (if any question
    has an answer) and no_answer_exact (its F1 is the same). If no_answer is given, too (id to a
    score, which is higher where an answer is less likely), it also gives best_exact,
    best_exact_threshold, best_f1 and best_f1_threshold: the best scores reached by answering only
    the questions whose score is at most a threshold. As in the official script, questions with
    equal scores are taken one by one in the order of no_answer, and a best value between them
    counts; every prediction other than "" is wrong for a question without an answer; and the
    threshold is 0 if it is best to answer none, even if some scores are below 0.

    Ids that belong to no question are ignored. Raises UserError if an id is missing or occurs
    twice, or if a score is not a finite number.
    """
    _require(questions, predictions, no_answer)
    exacts, f1s = (
        {q.id: max(measure(gold, predictions[q.id]) for gold in _golds(q)) for q in questions}
        for measure in (exact, f1)
    )
    scores = {"exact": _mean(exacts.values()), "f1": _mean(f1s.values())}
    has = [q.id for q in questions if q.answers]
    has_not = [q.id for q in questions if not q.answers]
    if not has_not:
        return scores
    if has:
        scores["has_answer_exact"] = _mean([exacts[k] for k in has])
        scores["has_answer_f1"] = _mean([f1s[k] for k in has])
    scores["no_answer_exact"] = _mean([exacts[k] for k in has_not])
    if no_answer is not None:
        wrong = {k: -1.0 if predictions[k] else 0.0 for k in has_not}
        for name, gains in (("best_exact", exacts | wrong), ("best_f1", f1s | wrong)):
            best, threshold = _best(gains, no_answer, len(has_not))
            scores |= {name: best / len(questions), f"{name}_threshold": threshold}
    return scores


def _golds(question: Question) -> list[str]:
    """The gold answers; those that normalise to nothing count only if there are no others."""
    return [a.text for a in question.answers if normalize(a.text)] or [""]


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values)


def _best(
    gains: Mapping[str, float], no_answer: Mapping[str, float], start: float
) -> tuple[float, float]:
    """The highest value of start plus the sum of the first gains, in the order of ascending
    no-answer scores, and the score at which it is reached."""
    total = best = float(start)
    threshold = 0.0
    for k in sorted((k for k in no_answer if k in gains), key=lambda k: no_answer[k]):
        total += gains[k]
        if total > best:
            best = total
            threshold = float(no_answer[k])
    return best, threshold


def _require(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    no_answer: Mapping[str, float] | None,
) -> None:
    ids = Counter(q.id for q in questions)
    if not ids:
        raise UserError("there are no questions to score")
    twice = [k for k, times in ids.items() if times > 1]
    if twice:
        raise UserError(
            f"{len(twice):,} question ids occur more than once, {twice[0]!r} among them; give each "
            "question an id of its own"
        )
    for what, given in (("prediction", predictions), ("no-answer score", no_answer)):
        missing = [] if given is None else [k for k in ids if k not in given]
        if missing:
            raise UserError(
                f"no {what} for {len(missing):,} of {len(ids):,} questions, {missing[0]!r} among "
                "them; give one for each question"
            )
    odd = [k for k in ids if no_answer is not None and not math.isfinite(no_answer[k])]
    if odd:
        raise UserError(
            f"the no-answer score of {len(odd):,} questions is not a finite number, {odd[0]!r} "
            "among "
            "them; the model may have diverged"
        )
