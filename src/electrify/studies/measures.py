"""How an encoder is measured: the names after `--tasks` -> scores.

stsb          fine-tuned
stsb:frozen   a linear head on the last layer of the encoder as it is; stsb:frozen-last4 and
              stsb:frozen-all: on its last four layers, or all of them, side by side
stsb:cosine   cosines of mean states, without any training
blimp         minimal pairs of grammar
supplement    those of its folder supplement/: questions, turns of a dialogue
planted       minimal pairs made of the corpus's own held-out text
blimp:mlm     the same pairs, by the masked language model that a run leaves of its encoder
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import UserError, nearest
from ..finetuning.known import folder_of, read_task
from ..finetuning.options import FinetuneConfig, FinetuneSettings
from ..finetuning.tasks import KnownTask, TaskData, tasks_named
from ..recipe import Recipe
from ..scoring.options import EvaluateConfig
from ..tables import KEPT, beside
from .options import CompareConfig

if TYPE_CHECKING:
    from ..scoring.blimp import Paradigm

BLIMP = "blimp"
SUPPLEMENT = "supplement"
PLANTED = "planted"
# Measured with the head that an encoder was trained with: there is nothing to train.
PAIRS = (BLIMP, SUPPLEMENT, PLANTED)
# The way -> the layers that a head reads of an encoder that is left as it is.
LAYERS: dict[str, Literal["last", "last4", "all"]] = {
    "frozen": "last",
    "frozen-last4": "last4",
    "frozen-all": "all",
}
WAYS = ("", *LAYERS, "cosine")
# Pairs are judged by the head of the kept network, or by the one that says which token was there.
LM = "mlm"
# More updates than any fine-tuning takes: evaluated after its last one alone, which is the score.
# With evaluations on the way, MNLI takes half as long again.
LAST_ONLY = 10**9


@dataclass(frozen=True)
class Measuring:
    """What all measurements of a study share."""

    data: str
    """The prepared corpus."""
    data_dir: str | None
    seeds: int
    max_train_samples: int | None = None
    max_eval_samples: int | None = None
    device: str = "auto"
    task_data: dict[str, str] = field(default_factory=dict)
    """Task -> hash of its examples when the study was planned; tasks without one are measured on
    whatever is there."""

    @classmethod
    def of(cls, config: CompareConfig, task_data: dict[str, str]) -> Measuring:
        """As the study says."""
        return cls(
            config.data,
            config.data_dir,
            config.task_seeds,
            config.max_train_samples,
            config.max_eval_samples,
            config.device,
            task_data,
        )


@dataclass(frozen=True)
class Found:
    """Scores of one encoder: higher is better."""

    metric: str
    scores: list[float]
    """One for each seed of the task; a single one where nothing is drawn."""

    @property
    def median(self) -> float:
        return statistics.median(self.scores)


def is_of_pairs(name: str) -> bool:
    """Whether a task is made of minimal pairs."""
    return name.partition(":")[0].lower() in PAIRS


def is_of_the_corpus(name: str) -> bool:
    """Whether a task is made of the corpus, and so needs no files."""
    return name.partition(":")[0].lower() == PLANTED


def is_trained(name: str) -> bool:
    """Whether a task is measured by training, of the encoder or of a head."""
    return not is_of_pairs(name) and name.partition(":")[2] != "cosine"


def meant_by(name: str, data_dir: str | None) -> tuple[str, str, str]:
    """The task, the way it is measured, and the folder of its data, if it has files. Raises
    UserError for a name that is not one, or without the folder of its files."""
    task, _, way = name.partition(":")
    task = task.lower() if task.lower() in PAIRS else task
    ways = ("", LM) if task in PAIRS else WAYS
    if way not in (*WAYS, LM):
        raise UserError(
            f"tasks: {name}: no way of measuring is called {way!r}{nearest(way, (*WAYS[1:], LM))}"
        )
    if way not in ways:
        why = "is measured without training" if task in PAIRS else "is not made of minimal pairs"
        raise UserError(f"tasks: {name}: {task} {why}; leave :{way} out")
    row = None if task in PAIRS else _row_of(name, task, way)
    if task == PLANTED:
        return task, way, ""
    if data_dir is None:
        raise UserError(f"--data-dir is missing: {name} is measured on files; give their folder")
    return (task, way, data_dir) if row is None else (row.name, way, folder_of(row, data_dir))


def network_of(name: str, config: Recipe) -> str:
    """The network of a run (its folder) by which a task is measured. Raises UserError if the run
    leaves none that could."""
    if name.partition(":")[2] != LM:
        return KEPT
    if config.objective.row.logits == "token":
        return KEPT
    found = [part for part, its in beside(config).items() if its.same and its.logits == "token"]
    if not found:
        raise UserError(
            f"tasks: {name}: a run of objective {config.objective.objective} leaves no masked "
            "language model of its encoder; leave that task or that recipe out"
        )
    return found[0]


def _row_of(name: str, task: str, way: str) -> KnownTask:
    """Raises UserError for a task that cannot be measured in this way."""
    rows = tasks_named([task])
    if len(rows) > 1:
        raise UserError(f"tasks: {name} stands for several tasks; name each of them")
    if way and rows[0].kind == "answering":
        raise UserError(f"tasks: {name}: questions are answered only by a fine-tuned encoder")
    if way == "cosine" and rows[0].kind != "regression":
        raise UserError(f"tasks: {name}: cosines are for stsb")
    return rows[0]


Read = Callable[..., "list[Paradigm]"]
"""As `read_blimp`."""


def digest_of(name: str, data_dir: str | None, *, data: str, read: Read | None = None) -> str:
    """A hash of the examples of a task and of what is done with them. Raises UserError if they
    cannot be read. data: the prepared corpus. read: for tasks that share BLiMP's files."""
    task, _, folder = meant_by(name, data_dir)
    if task in PAIRS:
        return _digest_of_pairs(task, _pairs_of(task, folder, data, limit=None, read=read))
    return _digest_of_data(read_task(tasks_named([task])[0], folder))


def _digest_of_pairs(task: str, pairs: list[Paradigm]) -> str:
    return _hash([p for p in pairs if p.part == task])


def _digest_of_data(found: TaskData) -> str:
    content: Any = (found.kind, found.labels, found.train, found.validation)
    if found.max_seq_length is not None:  # BabyLM's, whose files do not say the rest
        content = (*content, found.metrics[0], found.epochs, found.max_seq_length)
    return _hash(content)


def _hash(content: Any) -> str:
    return hashlib.sha256(repr(content).encode("utf-8", "replace")).hexdigest()[:16]


def _must_be_as_planned(name: str, digest: str, how: Measuring) -> None:
    """Raises UserError if the score would be taken for that on other examples."""
    if how.task_data.get(name, digest) != digest:
        raise UserError(
            f"the examples of {name} were changed since the study began",
            "put them back and run the same command again",
        )


def measure(name: str, model: Path, how: Measuring, out: Path) -> Found:
    """Measures the encoder `model`; the folder `out` takes what this writes. Raises UserError for
    other examples than the study was planned with."""
    task, way, folder = meant_by(name, how.data_dir)
    if task in PAIRS:
        pairs = _pairs_of(task, folder, how.data, limit=how.max_eval_samples)
        if name in how.task_data:
            whole = how.max_eval_samples is None
            planned = pairs if whole else _pairs_of(task, folder, how.data, limit=None)
            _must_be_as_planned(name, _digest_of_pairs(task, planned), how)
        return _judged([p for p in pairs if p.part == task], model, folder, how)
    data = read_task(tasks_named([task])[0], folder)
    _must_be_as_planned(name, _digest_of_data(data), how)
    if way == "cosine":
        from ..finetuning.frozen import cosine_score

        return Found("spearman", [cosine_score(data, str(model), device=how.device)])
    return _finetuned(data, model, folder, how, out, way)


def _pairs_of(
    task: str, folder: str, data: str, *, limit: int | None, read: Read | None = None
) -> list[Paradigm]:
    """folder: that of BLiMP's files; data: the corpus of planted words. Raises UserError if there
    are no pairs."""
    if task != PLANTED:
        from ..scoring.blimp import read_blimp

        found = (read or read_blimp)(folder, limit=limit)
        if all(p.part != task for p in found):
            names = f"{SUPPLEMENT}/ or {SUPPLEMENT}_filtered/ of {folder}"
            where = names if task == SUPPLEMENT else folder
            raise UserError(f"tasks: {task}: no .jsonl file in {where}")
        return found
    from ..scoring.planted_pairs import COUNT, planted_pairs

    return [planted_pairs(Path(data), count=min(limit or COUNT, COUNT))]


def _judged(pairs: list[Paradigm], model: Path, folder: str, how: Measuring) -> Found:
    from ..scoring.evaluate import evaluate_pairs

    limit = how.max_eval_samples
    options = EvaluateConfig(
        models=(str(model),),
        data_dir=folder or "none",  # the pairs are given, and those of the corpus have no folder
        max_eval_samples=limit,
        device=how.device,
    )
    rows = evaluate_pairs(options, pairs)
    return Found("accuracy", [statistics.fmean(r.accuracy for r in rows)])


def _finetuned(
    data: TaskData, model: Path, folder: str, how: Measuring, out: Path, way: str
) -> Found:
    from ..finetuning.run import finetune

    # One score decides, so further sets need not be answered.
    data = replace(data, also=(), test=())
    settings = FinetuneSettings(
        eval_steps=LAST_ONLY,
        max_train_samples=how.max_train_samples,
        frozen_encoder=LAYERS.get(way, "none"),
        device=how.device,
    )
    report = finetune(
        FinetuneConfig(
            models=(str(model),),
            output_dir=str(out),
            task=(data.name,),
            data_dir=folder,
            seeds=how.seeds,
            settings=settings,
        ),
        [data],
    )
    metric = data.score_names[0]
    by_seed = {r["seed"]: float(r["scores"][metric]) for r in report.records}
    return Found(metric, [by_seed[seed] for seed in sorted(by_seed)])
