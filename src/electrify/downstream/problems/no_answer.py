"""When a question counts as one that its context does not answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..answers import score_answers
from ..examples import Question


def threshold_of(
    questions: Sequence[Question], best: Mapping[str, str], none: Mapping[str, float]
) -> float:
    """The threshold of the best F1. The official one is 0 where answering nothing is best, whatever
    the scores are; here it is below all of them. If every question has an answer, it is best to
    answer each."""
    if all(q.answers for q in questions):
        return max(none.values())
    found = score_answers(questions, best, none)
    silent = sum(not q.answers for q in questions) / len(questions)
    if silent < found.get("best_f1", 1):
        return found.get("best_f1_threshold", 0.0)
    return -math.inf


def silenced(
    best: Mapping[str, str], none: Mapping[str, float], threshold: float
) -> dict[str, str]:
    """The best answers, or "" where the score for "no answer" is above the threshold."""
    return {key: "" if none[key] > threshold else text for key, text in best.items()}


def scores_of(
    questions: Sequence[Question], best: Mapping[str, str], none: Mapping[str, float]
) -> dict[str, float]:
    """The scores with the official threshold, 0, and the best ones."""
    found = score_answers(questions, silenced(best, none, 0.0), None)
    if not all(q.answers for q in questions):
        return score_answers(questions, best, none) | found
    found |= {f"has_answer_{name}": score for name, score in found.items()}
    at = threshold_of(questions, best, none)
    given = score_answers(questions, silenced(best, none, at), None)
    found |= {f"best_{name}": score for name, score in given.items()}
    return found | {f"best_{name}_threshold": at for name in given}
