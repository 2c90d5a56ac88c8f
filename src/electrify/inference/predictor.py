"""A fine-tuned model ready to predict: examples -> predictions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from ..downstream import loop
from ..downstream.examples import Example, Question, Sentence
from ..downstream.lengths import Cut
from ..downstream.options import FinetuneSettings
from ..downstream.problems.answering import Answering
from ..downstream.problems.no_answer import silenced
from ..downstream.problems.problem import Answers, HeldOut, Problem
from ..downstream.problems.tagging import Tagging
from ..downstream.problems.texts import Texts
from ..errors import UserError
from .kinds import kept
from .options import PredictConfig
from .predictions import Answered, Labelled, Prediction, Several, Tagged, Value
from .saved import load_saved
from .sentences import Untagged

After = Callable[[float], None]


class Predictor:
    """A model and how it is to read and decide. cut: what was cut so far."""

    def __init__(self, options: PredictConfig) -> None:
        """Loads the model. Raises UserError if that fails, or if an option is not for this
        model."""
        self.device = loop.device_named(options.device)
        self.bf16 = loop.computes_in_bf16(options.bf16, self.device)
        self.saved = load_saved(kept(options.model), device=self.device)
        _must_be_for(options, self.saved.kind)
        self.threshold = options.threshold or 0.5
        noted = self.saved.reading
        self.none_above = options.no_answer_threshold
        if self.none_above is None:
            self.none_above = noted.no_answer_threshold
        self.settings = FinetuneSettings(
            answer_head="plain",
            max_seq_length=options.max_seq_length or noted.max_seq_length,
            doc_stride=noted.doc_stride,
            max_answer_length=noted.max_answer_length,
            word_pooling=noted.word_pooling or "first",
        )
        problem: Any = self._problem()
        self.cut = Cut(self.saved.loaded, length=problem.max_seq_length)
        self.cut_questions: list[int] = []

    @property
    def kind(self) -> str:
        return self.saved.kind

    @property
    def width(self) -> int:
        return self.saved.loaded.width

    def _problem(self) -> Problem:
        return self.saved.problem(self.settings, device=self.device, bf16=self.bf16)

    def predict(
        self, examples: Sequence[Any], *, after: After = lambda share: None
    ) -> list[Prediction]:
        """A prediction for each example: an Example (its label is not looked at), an Untagged or a
        Question. after: called with the share of the work that a pass through the model did.

        Raises UserError if the model's outputs are not numbers.
        """
        if self.kind == "tagging":
            return self._tags(examples, after)
        if self.kind == "answering":  # ids of several files may be alike
            examples = [dataclasses.replace(q, id=str(k)) for k, q in enumerate(examples)]
        problem, held, answers = self._answers(examples, after)
        if isinstance(problem, Answering):
            return self._found(problem, held, answers)
        assert isinstance(problem, Texts)
        self.cut.add(examples, held.data.lengths_N.tolist())
        if self.kind == "regression":
            return [Value(value) for value in problem.values(answers)]
        return self._labels(problem, answers)

    def _answers(self, examples: Sequence[Any], after: After) -> tuple[Problem, HeldOut, Answers]:
        problem = self._problem()
        held = problem.held_out(examples)
        rows = len(held.data.lengths_N)
        answers = loop.predict(
            self.saved.net, held.data, bf16=self.bf16, after=lambda done: after(done / rows)
        )
        if not all(bool(x.isfinite().all()) for x in answers.values()):
            raise UserError(
                f"{self.saved.name}: its outputs are not numbers; the model is damaged or diverged"
            )
        return problem, held, answers

    def _labels(self, problem: Texts, answers: Answers) -> list[Prediction]:
        names = self.saved.labels
        each = [
            dict(zip(names, row, strict=True)) for row in problem.probabilities(answers).tolist()
        ]
        chosen = problem.chosen(answers, threshold=self.threshold).tolist()
        if self.kind == "multilabel":
            return [
                Several(tuple(n for n, holds in zip(names, row, strict=True) if holds), found)
                for row, found in zip(chosen, each, strict=True)
            ]
        return [
            Labelled(names[k], found[names[k]], found)
            for k, found in zip(chosen, each, strict=True)
        ]

    def _tags(self, examples: Sequence[Untagged], after: After) -> list[Prediction]:
        full = [
            Sentence(e.words, self.saved.labels[:1] * len(e.words)) for e in examples if e.words
        ]
        tags: list[tuple[str, ...]] = []
        if full:
            problem, held, answers = self._answers(full, after)
            assert isinstance(problem, Tagging)
            tags = problem.tags(held, answers)
        found = iter(tags)
        return [Tagged(e.words, next(found) if e.words else ()) for e in examples]

    def _found(self, problem: Answering, held: HeldOut, answers: Answers) -> list[Prediction]:
        guesses = problem.guesses(held, answers)
        best, none = problem.predictions(held, answers, guesses)
        if self.none_above is not None:
            best = silenced(best, none, self.none_above)
        self.cut_questions += problem.cut_questions(held)
        return [
            Answered(best[q.id], found[0].score if found else None, none[q.id])
            for q, found in zip(held.examples, guesses, strict=True)
        ]


def _must_be_for(options: PredictConfig, kind: str) -> None:
    """Raises UserError for an option that a model of this kind would not use."""
    uses: dict[str, tuple[bool, tuple[str, ...]]] = {
        "--threshold": (options.threshold is not None, ("multilabel",)),
        "--no-answer-threshold": (options.no_answer_threshold is not None, ("answering",)),
        "--probabilities": (options.probabilities, ("classification", "multilabel")),
    }
    for flag, (given, kinds) in uses.items():
        if given and kind not in kinds:
            shown: dict[str, str] = {
                "multilabel": "several labels",
                "answering": "question answering",
            }
            wanted = " or ".join(shown.get(k, k) for k in kinds)
            raise UserError(f"{flag} is for {wanted}; {options.model} is for {kind}")


def as_example(kind: str, text: Any, pair: str | None) -> Example | Untagged | Question:
    """What a caller in Python gives, as an example for a model of this kind."""
    match kind:
        case "tagging":
            return Untagged(tuple(text), {})
        case "answering":
            return Question("0", text, pair or "", ())
    return Example(text, pair, () if kind == "multilabel" else 0.0)
