"""The examples that the readers return and the problems take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """A text, perhaps a second one, and its label: a class number, a value, or the numbers of all
    classes that apply (multi-label)."""

    text: str
    pair: str | None
    label: float | tuple[int, ...]


@dataclass(frozen=True)
class Partly(Example):
    """An example of several classes, where nobody knows whether some of them apply: these are
    neither learnt nor scored. unknown: their numbers."""

    unknown: tuple[int, ...]


@dataclass(frozen=True)
class Sentence:
    """Words with one tag each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]

    def __post_init__(self) -> None:
        assert len(self.words) == len(self.tags) > 0


@dataclass(frozen=True)
class Answer:
    """A piece of a context: context[start : start + len(text)] is text. start counts characters."""

    text: str
    start: int


@dataclass(frozen=True)
class Question:
    """A question about a context. If there are no answers, the context does not contain one (SQuAD
    2.0)."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
