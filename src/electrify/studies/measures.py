"""How an encoder is measured: the names after `--tasks` -> scores.

stsb          fine-tuned
stsb:frozen   a linear head on the last layer of the encoder as it is; stsb:frozen-last4 and
              stsb:frozen-all: on its last four layers, or all of them, side by side
stsb:cosine   cosines of mean states, without any training; stsb:cosine-best: of the layer
              whose cosines are best on the training part
blimp         minimal pairs of grammar
supplement    those of its folder supplement/: questions, turns of a dialogue
planted       minimal pairs by word substitution in the corpus's own validation text
blimp:mlm     the same pairs, by the masked language model that a run leaves of its encoder;
              blimp:best: by that one where there is one, by the detecting head otherwise
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import UserError
from ..files import text_hash
from ..finetuning.known import folder_of, read_task
from ..finetuning.options import FinetuneConfig, FinetuneSettings
from ..finetuning.tasks import TaskData, tasks_named
from ..names import nearest
from ..recipe import Recipe
from ..tables import DISCRIMINATOR, other_exports
from .options import CompareConfig

if TYPE_CHECKING:
    from ..scoring.blimp import Paradigm

PLANTED = "planted"
PAIRS = ("blimp", "supplement", PLANTED)
"""Judged by the head that an encoder was trained with: there is nothing to train."""
LM, BEST = "mlm", "best"
LAYERS: dict[str, Literal["none", "last", "last4", "all"]] = {
    "": "none",
    "frozen": "last",
    "frozen-last4": "last4",
    "frozen-all": "all",
}
"""The way -> the layers that a head reads of an encoder that is left as it is."""
COSINE, BEST_LAYER = "cosine", "cosine-best"
BATCH_TOKENS = 8192
# More updates than any fine-tuning takes: evaluated after its last one alone, which is the score.
# With evaluations on the way, MNLI takes half as long again.
LAST_ONLY = 10**9


@dataclass(frozen=True)
class Measure:
    """A task, and the way in which it is measured."""

    task: str
    way: str
    folder: str
    """The folder of its files; empty for word substitution, which is made of the corpus."""

    @property
    def name(self) -> str:
        return f"{self.task}:{self.way}" if self.way else self.task


def measure_named(name: str, data_dir: str | None) -> Measure:
    """The measure of a name after --tasks. Raises UserError for a name that is not one, or without
    the folder of its files."""
    task, _, way = name.partition(":")
    row = None
    if task.lower() in PAIRS:
        task, ways = task.lower(), ["", LM, BEST]
    else:
        rows = tasks_named([task])
        if len(rows) > 1:
            raise UserError(f"tasks: {name} stands for several tasks. Name each of them")
        row = rows[0]
        task, ways = row.name, [""] if row.kind == "answering" else list(LAYERS)
        ways += [COSINE, BEST_LAYER] if row.kind == "regression" else []
    if way not in ways:
        raise UserError(
            f"tasks: {task} is not measured as {way!r}{nearest(way, filter(None, ways))}"
        )
    if task == PLANTED:
        return Measure(task, way, "")
    if data_dir is None or not Path(data_dir).is_dir():
        raise UserError(
            f"data_dir {data_dir or 'is missing'}: no folder with the files of {task}",
            f"choose other tasks if you have none of it ({PLANTED} needs no files)",
        )
    return Measure(task, way, data_dir if row is None else folder_of(row, data_dir))


def network_of(measure: Measure, recipe: Recipe) -> str:
    """The network of a run (its folder) by which a task is measured, which its recipe alone
    decides. Raises UserError if the run leaves none that could."""
    if measure.way not in (LM, BEST) or recipe.objective.row.logits == "token":
        return DISCRIMINATOR
    for part, its in other_exports(recipe).items():
        if its.same and its.logits == "token":
            return part
    if measure.way == BEST:
        return DISCRIMINATOR
    raise UserError(
        f"tasks: {measure.name}: a run of objective {recipe.objective.objective} leaves no masked "
        "language model of its encoder. Leave that task or that recipe out"
    )


def examples_of(measure: Measure, corpus: Path, *, limit: int | None = None) -> Any:
    """The pairs of a task (of each paradigm at most `limit`), or its training and validation
    examples. Raises UserError if they cannot be read."""
    if measure.task == PLANTED:
        from ..scoring.word_substitution import COUNT, planted_pairs

        return [planted_pairs(corpus, count=min(limit or COUNT, COUNT))]
    if measure.task not in PAIRS:
        # One score decides, so further sets need not be answered.
        return replace(read_task(tasks_named([measure.task])[0], measure.folder), also=(), test=())
    from ..scoring.blimp import read_blimp

    found = [p for p in read_blimp(measure.folder, limit=limit) if p.part == measure.task]
    if not found:
        raise UserError(f"tasks: {measure.task}: no .jsonl file of it in {measure.folder}")
    return found


def digest_of(measure: Measure, corpus: Path) -> str:
    """A hash of the examples of a task and of what is done with them."""
    found = examples_of(measure, corpus)
    if isinstance(found, TaskData):
        own = (found.kind, found.labels, found.metrics, found.epochs, found.max_seq_length)
        found = (*own, found.train, found.validation)
    return text_hash(repr(found))[:16]


def measured(measure: Measure, model: Path, config: CompareConfig, out: Path) -> dict[str, Any]:
    """The metric and the scores of the encoder `model`, higher is better: one for each seed of the
    task, or a single one where nothing is drawn. The folder `out` takes what fine-tuning writes."""
    examples = examples_of(measure, Path(config.data), limit=config.max_eval_samples)
    if measure.task in PAIRS:
        return {"metric": "accuracy", "scores": [_accuracy(examples, model, config.device)]}
    if measure.way in (COSINE, BEST_LAYER):
        from ..finetuning.frozen import cosine_score

        layers = "last" if measure.way == COSINE else "all"
        chosen_on = examples.train[: config.max_train_samples]
        score = cosine_score(examples, str(model), chosen_on, layers=layers, device=config.device)
        return {"metric": "spearman", "scores": [score]}
    from ..finetuning.run import finetune

    settings = FinetuneSettings(
        eval_steps=LAST_ONLY,
        max_train_samples=config.max_train_samples,
        frozen_encoder=LAYERS[measure.way],
        device=config.device,
    )
    asked = FinetuneConfig(
        models=(str(model),),
        output_dir=str(out),
        task=(measure.task,),
        data_dir=measure.folder,
        seeds=config.task_seeds,
        settings=settings,
    )
    metric = examples.score_names[0]
    records = sorted(finetune(asked, [examples]).records, key=lambda record: record["seed"])
    return {"metric": metric, "scores": [float(r["scores"][metric]) for r in records]}


def without_encoder(measure: Measure, config: CompareConfig) -> dict[str, Any] | None:
    """What a task gives without an encoder: by each word's most frequent tag, by the share of words
    that two texts have in common, or by TF-IDF of single texts. None if none of them can do it."""
    if measure.task in PAIRS:
        return None
    from ..finetuning import baselines

    task = examples_of(measure, Path(config.data))
    if task.kind == "answering":
        return None
    of_texts = baselines.OVERLAP if baselines.applies(baselines.OVERLAP, task) else baselines.TFIDF
    model = baselines.MAJORITY if task.kind == "tagging" else of_texts
    metric = task.score_names[0]
    scores = baselines.answer(model, task, task.train[: config.max_train_samples])
    return {"metric": metric, "scores": [scores[metric]]}


def _accuracy(paradigms: Sequence[Paradigm], model: Path, device: str) -> float:
    """The share of pairs of which the right text is preferred; paradigms count alike."""
    from ..scoring.blimp import judge
    from ..scoring.pll import load_scorer
    from ..train.machine import pick_device

    scorer = load_scorer(str(model), device=pick_device(device))
    rows = judge([scorer], paradigms, batch_tokens=BATCH_TOKENS, title=model.name)
    return statistics.fmean(row.accuracy for row in rows)
