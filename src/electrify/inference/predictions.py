"""What a model says about one text: a value for each kind of model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Labelled:
    """The most probable class of a text, and the probability of each."""

    label: str
    probability: float
    probabilities: dict[str, float]

    def columns(self) -> dict[str, Any]:
        return {"predicted_label": self.label, "probability": rounded(self.probability)}


@dataclass(frozen=True)
class Several:
    """The labels of a text that are more probable than the threshold, and the probability of
    each."""

    labels: tuple[str, ...]
    probabilities: dict[str, float]

    def columns(self) -> dict[str, Any]:
        return {
            "predicted_labels": list(self.labels),
            "probability": [rounded(self.probabilities[label]) for label in self.labels],
        }


@dataclass(frozen=True)
class Value:
    """A regression's value for a text."""

    value: float

    def columns(self) -> dict[str, Any]:
        return {"predicted_value": rounded(self.value)}


@dataclass(frozen=True)
class Tagged:
    """The words of a sentence with a tag each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]

    def columns(self) -> dict[str, Any]:
        return {"words": list(self.words), "predicted_tags": list(self.tags)}


@dataclass(frozen=True)
class Answered:
    """The answer to a question, "" for none. score: the sum of its logits, None if the context has
    no words; no_answer_score: how much speaks against an answer, the higher the more."""

    answer: str
    score: float | None
    no_answer_score: float

    def columns(self) -> dict[str, Any]:
        return {
            "predicted_answer": self.answer,
            "answer_score": None if self.score is None else rounded(self.score),
            "no_answer_score": rounded(self.no_answer_score),
        }


Prediction = Labelled | Several | Value | Tagged | Answered


def rounded(number: float) -> float:
    """To seven digits, which is what a number of 32 bits holds."""
    return float(f"{number:.7g}")
