"""The tasks that are known by name, one row each. To add a task, add a row here, and a reader only
if its files look different."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import UserError, nearest
from .babylm_tasks import BABYLM
from .glue_tasks import GLUE
from .tasks import AnswerTask, Average, KnownTask, TagTask

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
AVERAGES: dict[str, Average] = {
    # Without WNLI, where the majority class wins (2003.10555 section 3.1; the figures: table 1).
    "GLUE": Average(
        ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte"),
        said="WNLI left out",
        published={
            "ELECTRA-Small": 79.9,
            "ELECTRA-Base": 85.1,
            "BERT-Small": 75.1,
            "BERT-Base": 82.2,
        },
    ),
    "BabyLM": Average(tuple(BABYLM), said="F1 of MRPC and QQP, accuracy of the others"),
}
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
TASKS: dict[str, KnownTask] = {**GLUE, **TAGGING, **ANSWERING, **BABYLM}
GROUPS: dict[str, tuple[str, ...]] = {
    "glue": tuple(GLUE),
    "tagging": tuple(TAGGING),
    "squad": tuple(ANSWERING),
    "babylm": tuple(BABYLM),
}


def task_named(name: str) -> KnownTask:
    """The row of a task. Raises UserError with the nearest name."""
    found = {_key(known): row for known, row in TASKS.items()}.get(_key(name))
    if found is None:
        raise UserError(f"no task {name!r}{nearest(name.lower(), (*TASKS, *GROUPS))}")
    return found


def _key(name: str) -> str:
    """SST-2 is sst2."""
    return name.lower().replace("-", "").replace("_", "")


def tasks_named(names: Iterable[str]) -> list[KnownTask]:
    """The rows of these tasks, each once; the name of a group (glue, tagging, squad, babylm) stands
    for its tasks. Raises UserError with the nearest name."""
    flat = [name for given in names for name in GROUPS.get(given.lower(), (given,))]
    return list({row.name: row for row in map(task_named, flat)}.values())
