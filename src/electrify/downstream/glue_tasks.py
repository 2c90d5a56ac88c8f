"""The nine tasks of GLUE, one row each."""

from __future__ import annotations

from .tasks import TextTask

_ENTAILS = ("entailment", "not_entailment")


def _published(*scores: float) -> dict[str, float]:
    return dict(
        zip(
            ("ELECTRA-Small++", "ELECTRA-Base++", "ELECTRA-Large", "BERT-Base"), scores, strict=True
        )
    )


GLUE: dict[str, TextTask] = {
    task.name: task
    for task in (
        TextTask(
            name="cola",
            kind="classification",
            folder="CoLA",
            train="train.tsv",
            validation="dev.tsv",
            text=3,
            pair=None,
            label=1,
            labels=("0", "1"),
            metrics=("matthews", "accuracy"),
            epochs=3,
            published=_published(57.0, 67.7, 69.1, 58.4),
        ),
        TextTask(
            name="sst2",
            kind="classification",
            folder="SST-2",
            train="train.tsv",
            validation="dev.tsv",
            text="sentence",
            pair=None,
            label="label",
            labels=("0", "1"),
            metrics=("accuracy",),
            epochs=3,
            published=_published(91.2, 95.1, 96.9, 92.8),
        ),
        TextTask(
            name="mrpc",
            kind="classification",
            folder="MRPC",
            train="train.tsv",
            validation="dev.tsv",
            text="#1 String",
            pair="#2 String",
            label="Quality",
            labels=("0", "1"),
            metrics=("accuracy", "f1"),
            epochs=3,
            symmetric=True,
            published=_published(88.0, 89.5, 90.8, 86.0),
        ),
        TextTask(
            name="stsb",
            kind="regression",
            folder="STS-B",
            train="train.tsv",
            validation="dev.tsv",
            text="sentence1",
            pair="sentence2",
            label="score",
            labels=(),
            metrics=("spearman", "pearson"),
            epochs=10,
            symmetric=True,
            value_range=(0.0, 5.0),
            published=_published(87.5, 91.2, 92.6, 87.8),
        ),
        TextTask(
            name="qqp",
            kind="classification",
            folder="QQP",
            train="train.tsv",
            validation="dev.tsv",
            text="question1",
            pair="question2",
            label="is_duplicate",
            labels=("0", "1"),
            metrics=("accuracy", "f1"),
            epochs=3,
            published=_published(89.0, 91.5, 92.4, 90.8),
        ),
        TextTask(
            name="mnli",
            kind="classification",
            folder="MNLI",
            train="train.tsv",
            validation="dev_matched.tsv",
            text="sentence1",
            pair="sentence2",
            label="gold_label",
            labels=("entailment", "neutral", "contradiction"),
            metrics=("accuracy",),
            epochs=3,
            also={"mismatched": "dev_mismatched.tsv"},
            test={
                "MNLI-m": "test_matched.tsv",
                "MNLI-mm": "test_mismatched.tsv",
                "AX": "../diagnostic/diagnostic.tsv",
            },
            published=_published(81.3, 88.8, 90.9, 84.5),
        ),
        TextTask(
            name="qnli",
            kind="classification",
            folder="QNLI",
            train="train.tsv",
            validation="dev.tsv",
            text="question",
            pair="sentence",
            label="label",
            labels=_ENTAILS,
            metrics=("accuracy",),
            epochs=3,
            published=_published(88.4, 93.2, 95.0, 88.6),
        ),
        TextTask(
            name="rte",
            kind="classification",
            folder="RTE",
            train="train.tsv",
            validation="dev.tsv",
            text="sentence1",
            pair="sentence2",
            label="label",
            labels=_ENTAILS,
            metrics=("accuracy",),
            epochs=10,
            published=_published(66.7, 82.7, 88.0, 68.5),
        ),
        TextTask(
            name="wnli",
            kind="classification",
            folder="WNLI",
            train="train.tsv",
            validation="dev.tsv",
            text="sentence1",
            pair="sentence2",
            label="label",
            labels=("0", "1"),
            metrics=("accuracy",),
            epochs=3,
        ),
    )
}
