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
            train="boolq.train.jsonl",
            validation="boolq.valid.jsonl",
            text="{question}",
            pair="{passage}",
            labels=_SAID,
            metrics=("accuracy", "f1"),
        ),
        LinesTask(
            name="babylm_multirc",
            train="multirc.train.jsonl",
            validation="multirc.valid.jsonl",
            text="Question: {question} Answer: {answer}",
            pair="{paragraph}",
            labels=_SAID,
            metrics=("accuracy", "f1"),
        ),
        LinesTask(
            name="babylm_rte",
            train="rte.train.jsonl",
            validation="rte.valid.jsonl",
            text="{sentence1}",
            pair="{sentence2}",
            labels=_ENTAILS,
            metrics=("accuracy",),
        ),
        LinesTask(
            name="babylm_wsc",
            train="wsc.train.jsonl",
            validation="wsc.valid.jsonl",
            text='Does "{span2_text}" refer to "{span1_text}" in this passage?',
            pair="{text}",
            labels=_SAID,
            metrics=("accuracy", "f1"),
            epochs=30,
        ),
        LinesTask(
            name="babylm_mrpc",
            train="mrpc.train.jsonl",
            validation="mrpc.valid.jsonl",
            text="{sentence1}",
            pair="{sentence2}",
            labels=("0", "1"),
            metrics=("f1", "accuracy"),
        ),
        LinesTask(
            name="babylm_qqp",
            train="qqp.train.jsonl",
            validation="qqp.valid.jsonl",
            text="{question1}",
            pair="{question2}",
            labels=("0", "1"),
            metrics=("f1", "accuracy"),
        ),
        LinesTask(
            name="babylm_mnli",
            train="mnli.train.jsonl",
            validation="mnli.valid.jsonl",
            text="{premise}",
            pair="{hypothesis}",
            labels=("entailment", "neutral", "contradiction"),
            metrics=("accuracy",),
        ),
    )
}
