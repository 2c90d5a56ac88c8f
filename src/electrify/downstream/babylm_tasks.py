"""The seven tasks of the BabyLM challenge's fine-tuning, one row each (evaluation of 2025 and 2026:
BoolQ, MultiRC and WSC of SuperGLUE, RTE, MRPC, QQP and MNLI of GLUE, in the challenge's selection
of their examples). How texts and metrics are made is what its pipeline does."""

from __future__ import annotations

from .tasks import LinesTask

_SAID = ("false", "true")
_ENTAILS = ("entailment", "not_entailment")

BABYLM: dict[str, LinesTask] = {
    task.name: task
    for task in (
        LinesTask(
            name="babylm_boolq",
            file="boolq",
            text="{question}",
            pair="{passage}",
            labels=_SAID,
            metrics=("accuracy", "f1"),
        ),
        LinesTask(
            name="babylm_multirc",
            file="multirc",
            text="Question: {question} Answer: {answer}",
            pair="{paragraph}",
            labels=_SAID,
            metrics=("accuracy", "f1"),
        ),
        LinesTask(
            name="babylm_rte",
            file="rte",
            text="{sentence1}",
            pair="{sentence2}",
            labels=_ENTAILS,
            metrics=("accuracy",),
        ),
        LinesTask(
            name="babylm_wsc",
            file="wsc",
            text='Does "{span2_text}" refer to "{span1_text}" in this passage?',
            pair="{text}",
            labels=_SAID,
            metrics=("accuracy", "f1"),
            epochs=30,
        ),
        LinesTask(
            name="babylm_mrpc",
            file="mrpc",
            text="{sentence1}",
            pair="{sentence2}",
            labels=("0", "1"),
            metrics=("f1", "accuracy"),
            symmetric=True,
        ),
        LinesTask(
            name="babylm_qqp",
            file="qqp",
            text="{question1}",
            pair="{question2}",
            labels=("0", "1"),
            metrics=("f1", "accuracy"),
        ),
        LinesTask(
            name="babylm_mnli",
            file="mnli",
            text="{premise}",
            pair="{hypothesis}",
            labels=("entailment", "neutral", "contradiction"),
            metrics=("accuracy",),
        ),
    )
}
