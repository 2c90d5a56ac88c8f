"""The tasks that are known by name, one row each. To add a task, add a row here, and a reader only
if its files look different."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import UserError, nearest
from .tasks import AnswerTask, TagTask, TextTask

# The metrics of SQuAD 2.0: the first is the one that the paper reports, with the threshold that
# suits the development set best.
NO_ANSWER_METRICS = (
    "best_exact",
    "best_f1",
    "exact",
    "f1",
    "has_answer_exact",
    "has_answer_f1",
    "no_answer_exact",
)
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
# The tasks in the published average, which is over the first metric of each. WNLI, where the
# majority class wins, is left out (2003.10555 section 3.1).
AVERAGED = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")
_SPANS = ("f1", "precision", "recall", "accuracy")
TAGGING: dict[str, TagTask] = {
    task.name: task
    for task in (
        TagTask(
            name="conll2000",
            folders=("conll2000*",),
            train=("train.txt*",),
            validation=("dev.txt*",),
            test=("test.txt*",),
            word=0,
            tag=2,
            metrics=_SPANS,
            published={"ELECTRA-Small++": 96.5, "ELECTRA-Base++": 97.1, "ELECTRA-Large": 97.2},
        ),
        TagTask(
            name="conll2003",
            folders=("conll2003*", "conll03*"),
            train=("eng.train", "train.txt"),
            validation=("eng.testa", "valid.txt", "dev.txt"),
            test=("eng.testb", "test.txt"),
            word=0,
            tag=3,
            metrics=_SPANS,
        ),
        TagTask(
            name="wnut17",
            folders=("wnut*", "WNUT*"),
            train=("train.conll", "wnut17train.conll"),
            validation=("dev.conll", "emerging.dev.conll"),
            test=("test.conll", "emerging.test.annotated"),
            word=0,
            tag=1,
            metrics=_SPANS,
        ),
        TagTask(
            name="wikiann",
            folders=("wikiann*", "WikiANN*"),
            train=("train*",),
            validation=("dev*", "validation*"),
            test=("test*",),
            word=0,
            tag=1,
            metrics=_SPANS,
            languages=True,
        ),
        TagTask(
            name="ud",
            folders=("ud_*", "UD_*"),
            train=("*-ud-train.conllu*", "train.upos.tsv"),
            validation=("*-ud-dev.conllu*", "dev.upos.tsv"),
            test=("*-ud-test.conllu*", "test.upos.tsv"),
            word=0,
            tag=1,
            metrics=("accuracy",),
        ),
    )
}
ANSWERING: dict[str, AnswerTask] = {
    task.name: task
    for task in (
        AnswerTask(
            name="squad1",
            folders=("", "squad*", "SQuAD*"),
            train=("train-v1.1.json",),
            validation=("dev-v1.1.json",),
            metrics=("exact", "f1"),
            hub="rajpurkar/squad",
            published={
                "ELECTRA-Small++": 75.8,
                "ELECTRA-Base++": 86.8,
                "ELECTRA-Large": 89.7,
                "BERT-Base": 80.8,
            },
        ),
        AnswerTask(
            name="squad2",
            folders=("", "squad*", "SQuAD*"),
            train=("train-v2.0.json",),
            validation=("dev-v2.0.json",),
            metrics=NO_ANSWER_METRICS,
            hub="rajpurkar/squad_v2",
            published={
                "ELECTRA-Small++": 70.1,
                "ELECTRA-Base++": 80.5,
                "ELECTRA-Large": 88.1,
                "BERT-Base": 73.7,
            },
        ),
    )
}
TASKS: dict[str, TextTask | TagTask | AnswerTask] = {**GLUE, **TAGGING, **ANSWERING}
GROUPS: dict[str, tuple[str, ...]] = {
    "glue": tuple(GLUE),
    "tagging": tuple(TAGGING),
    "squad": tuple(ANSWERING),
}


def task_named(name: str) -> TextTask | TagTask | AnswerTask:
    """The row of a task. Raises UserError with the nearest name."""
    key = name.lower().replace("-", "").replace("_", "")
    if key not in TASKS:
        raise UserError(f"no task {name!r}{nearest(key, (*TASKS, *GROUPS))}")
    return TASKS[key]


def tasks_named(names: Iterable[str]) -> list[TextTask | TagTask | AnswerTask]:
    """The rows of these tasks, each once; the name of a group (glue, tagging, squad) stands for its
    tasks. Raises UserError with the nearest name."""
    flat = [name for given in names for name in GROUPS.get(given.lower(), (given,))]
    return list({row.name: row for row in map(task_named, flat)}.values())
