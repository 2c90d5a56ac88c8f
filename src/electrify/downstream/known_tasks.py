"""The tasks that are known by name: one row each. A task to add is a row here, and a reader only
where its files look different."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import UserError, nearest
from .tasks import AnswerTask, TagTask, TextTask

# Of SQuAD 2.0: the first is what the paper reports, with the threshold that suits the development
# set best.
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
            "cola", "classification", "CoLA", "train.tsv", "dev.tsv", 3, None, 1, ("0", "1"), ("matthews", "accuracy"), 3,
            published=_published(57.0, 67.7, 69.1, 58.4),
        ),
        TextTask(
            "sst2", "classification", "SST-2", "train.tsv", "dev.tsv", "sentence", None, "label", ("0", "1"), ("accuracy",), 3,
            published=_published(91.2, 95.1, 96.9, 92.8),
        ),
        TextTask(
            "mrpc", "classification", "MRPC", "train.tsv", "dev.tsv", "#1 String", "#2 String", "Quality", ("0", "1"), ("accuracy", "f1"), 3,
            symmetric=True, published=_published(88.0, 89.5, 90.8, 86.0),
        ),
        TextTask(
            "stsb", "regression", "STS-B", "train.tsv", "dev.tsv", "sentence1", "sentence2", "score", (), ("spearman", "pearson"), 10,
            symmetric=True, value_range=(0.0, 5.0), published=_published(87.5, 91.2, 92.6, 87.8),
        ),
        TextTask(
            "qqp", "classification", "QQP", "train.tsv", "dev.tsv", "question1", "question2", "is_duplicate", ("0", "1"), ("accuracy", "f1"), 3,
            published=_published(89.0, 91.5, 92.4, 90.8),
        ),
        TextTask(
            "mnli", "classification", "MNLI", "train.tsv", "dev_matched.tsv", "sentence1", "sentence2", "gold_label",
            ("entailment", "neutral", "contradiction"), ("accuracy",), 3, also={"mismatched": "dev_mismatched.tsv"},
            test={"MNLI-m": "test_matched.tsv", "MNLI-mm": "test_mismatched.tsv", "AX": "../diagnostic/diagnostic.tsv"},
            published=_published(81.3, 88.8, 90.9, 84.5),
        ),
        TextTask(
            "qnli", "classification", "QNLI", "train.tsv", "dev.tsv", "question", "sentence", "label", _ENTAILS, ("accuracy",), 3,
            published=_published(88.4, 93.2, 95.0, 88.6),
        ),
        TextTask(
            "rte", "classification", "RTE", "train.tsv", "dev.tsv", "sentence1", "sentence2", "label", _ENTAILS, ("accuracy",), 10,
            published=_published(66.7, 82.7, 88.0, 68.5),
        ),
        TextTask("wnli", "classification", "WNLI", "train.tsv", "dev.tsv", "sentence1", "sentence2", "label", ("0", "1"), ("accuracy",), 3),
    )
}  # fmt: skip
# What the published average is over: the first metric of each; WNLI, where the majority class wins,
# is left out (2003.10555 section 3.1).
AVERAGED = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")
_SPANS = ("f1", "precision", "recall", "accuracy")
TAGGING: dict[str, TagTask] = {
    task.name: task
    for task in (
        TagTask(
            "conll2000", ("conll2000*",), ("train.txt*",), ("dev.txt*",), ("test.txt*",), 0, 2, _SPANS,
            published={"ELECTRA-Small++": 96.5, "ELECTRA-Base++": 97.1, "ELECTRA-Large": 97.2},
        ),
        TagTask(
            "conll2003", ("conll2003*", "conll03*"), ("eng.train", "train.txt"), ("eng.testa", "valid.txt", "dev.txt"), ("eng.testb", "test.txt"),
            0, 3, _SPANS,
        ),
        TagTask(
            "wnut17", ("wnut*", "WNUT*"), ("train.conll", "wnut17train.conll"), ("dev.conll", "emerging.dev.conll"),
            ("test.conll", "emerging.test.annotated"), 0, 1, _SPANS,
        ),
        TagTask("wikiann", ("wikiann*", "WikiANN*"), ("train*",), ("dev*", "validation*"), ("test*",), 0, 1, _SPANS, languages=True),
        TagTask(
            "ud", ("ud_*", "UD_*"), ("*-ud-train.conllu*", "train.upos.tsv"), ("*-ud-dev.conllu*", "dev.upos.tsv"),
            ("*-ud-test.conllu*", "test.upos.tsv"), 0, 1, ("accuracy",),
        ),
    )
}  # fmt: skip
ANSWERING: dict[str, AnswerTask] = {
    task.name: task
    for task in (
        AnswerTask(
            "squad1", ("", "squad*", "SQuAD*"), ("train-v1.1.json",), ("dev-v1.1.json",), ("exact", "f1"), "rajpurkar/squad",
            published={"ELECTRA-Small++": 75.8, "ELECTRA-Base++": 86.8, "ELECTRA-Large": 89.7, "BERT-Base": 80.8},
        ),
        AnswerTask(
            "squad2", ("", "squad*", "SQuAD*"), ("train-v2.0.json",), ("dev-v2.0.json",), NO_ANSWER_METRICS, "rajpurkar/squad_v2",
            published={"ELECTRA-Small++": 70.1, "ELECTRA-Base++": 80.5, "ELECTRA-Large": 88.1, "BERT-Base": 73.7},
        ),
    )
}  # fmt: skip
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
    """The rows, each once; the name of a group (glue, tagging, squad) stands for its tasks. Raises
    UserError with the nearest name."""
    flat = [name for given in names for name in GROUPS.get(given.lower(), (given,))]
    return list({row.name: row for row in map(task_named, flat)}.values())
