"""How an encoder is measured: the names after `--tasks` -> scores. And the score of a study, which
is declared before the first run: that of score.yaml, a mean over families of tasks, or the mean
rank where the study has other tasks.

stsb          fine-tuned
stsb:frozen   a linear head on the last layer of the encoder as it is; stsb:frozen-last4 and
              stsb:frozen-all: on its last four layers, or all of them, side by side
stsb:cosine   cosines of mean states, without any training; stsb:cosine-best: of the layer
              whose cosines are best on the training part
blimp         minimal pairs of grammar
supplement    those of its folder supplement/: questions, turns of a dialogue
substitution  minimal pairs by word substitution in the corpus's own validation text
blimp:mlm     the same pairs, by the masked language model that a run leaves of its encoder;
              blimp:best: by that one where there is one, by the detecting head otherwise
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import MinLen

from ..errors import UserError, need
from ..files import text_hash
from ..finetuning import baselines
from ..finetuning.frozen import cosine_score
from ..finetuning.known import folder_of, read_task
from ..finetuning.options import FinetuneConfig, FinetuneSettings
from ..finetuning.run import finetune
from ..finetuning.tasks import TaskData, tasks_named
from ..methods import DISCRIMINATOR, other_exports
from ..names import nearest
from ..recipe import Recipe
from ..scoring.blimp import judge, read_blimp
from ..scoring.pll import load_scorer
from ..scoring.word_substitution import COUNT, substitution_pairs
from ..text.streams import read_text
from ..values import kinds, plain_yaml
from .options import CompareConfig

SUBSTITUTION = "substitution"
PAIRS = ("blimp", "supplement", SUBSTITUTION)
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
MEAN_RANK = "mean rank over the tasks"


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
    if task.lower() in PAIRS:
        row, task, ways = None, task.lower(), ["", LM, BEST]
    else:
        row, *others = tasks_named([task])
        need(not others, f"tasks: {name} stands for several tasks. Name each of them")
        task, ways = row.name, [""] if row.kind == "answering" else list(LAYERS)
        ways += [COSINE, BEST_LAYER] if row.kind == "regression" else []
    hint = nearest(way, filter(None, ways))
    need(way in ways, f"tasks: {task} is not measured as {way!r}{hint}")
    if task == SUBSTITUTION:
        return Measure(task, way, "")
    if data_dir is None or not Path(data_dir).is_dir():
        raise UserError(
            f"data_dir {data_dir or 'is missing'}: no folder with the files of {task}",
            f"choose other tasks if you have none of it ({SUBSTITUTION} needs no files)",
        )
    return Measure(task, way, data_dir if row is None else folder_of(row, data_dir))


def chosen(config: CompareConfig) -> tuple[list[Measure], Score | None]:
    """The tasks of a study, and the score that decides it; None: the mean rank. Raises
    UserError."""
    score = read_score(config.score_file)
    # Of the tasks only word substitution needs no files.
    usual = score.tasks if config.data_dir else [SUBSTITUTION]
    measures = [measure_named(name, config.data_dir) for name in config.tasks or usual]
    missing = sorted(set(score.tasks) - {measure.name for measure in measures})
    if config.baselines and not missing:
        return measures, score
    what = f"--tasks {','.join(missing)}" if missing else "--baselines, which are its floors"
    need(config.score_file is None, f"--score-file: the score needs {what}")
    return measures, None


def network_of(measure: Measure, recipe: Recipe) -> str:
    """The network of a run (its folder) by which a task is measured, which its recipe alone
    decides. Raises UserError if the run leaves none that could."""
    if measure.way not in (LM, BEST) or recipe.objective.row.logits == "token":
        return DISCRIMINATOR
    for part, its in other_exports(recipe).items():
        if its.same and its.logits == "token":
            return part
    need(
        measure.way == BEST,
        f"tasks: {measure.name}: a run of objective {recipe.objective.objective} leaves no masked "
        "language model of its encoder. Leave that task or that recipe out",
    )
    return DISCRIMINATOR


def examples_of(measure: Measure, corpus: Path, *, limit: int | None = None) -> Any:
    """The pairs of a task (of each paradigm at most `limit`), or its training and validation
    examples. Raises UserError if they cannot be read."""
    if measure.task == SUBSTITUTION:
        return [substitution_pairs(corpus, count=min(limit or COUNT, COUNT))]
    if measure.task not in PAIRS:
        # One score decides, so further sets need not be answered.
        return replace(read_task(tasks_named([measure.task])[0], measure.folder), also=(), test=())
    found = [p for p in read_blimp(measure.folder, limit=limit) if p.part == measure.task]
    need(bool(found), f"tasks: {measure.task}: no .jsonl file of it in {measure.folder}")
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
        scorer = load_scorer(str(model), device=config.device)
        rows = judge([scorer], examples, batch_tokens=BATCH_TOKENS, title=model.name)
        share = statistics.fmean(row.accuracy for row in rows)  # paradigms count alike
        return {"metric": "accuracy", "scores": [share]}
    if measure.way in (COSINE, BEST_LAYER):
        layers = "last" if measure.way == COSINE else "all"
        chosen_on = examples.train[: config.max_train_samples]
        score = cosine_score(examples, str(model), chosen_on, layers=layers, device=config.device)
        return {"metric": "spearman", "scores": [score]}
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
        save_model=False,
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
    task = examples_of(measure, Path(config.data))
    known = (baselines.OVERLAP, baselines.TFIDF, baselines.MAJORITY)
    model = next((model for model in known if baselines.applies(model, task)), None)
    if model is None:
        return None
    metric = task.score_names[0]
    scores = baselines.answer(model, task, task.train[: config.max_train_samples])
    return {"metric": metric, "scores": [scores[metric]]}


# ------------------------------------------------------------------ the score that decides


@dataclass(frozen=True)
class Score:
    """Scores are fractions."""

    families: dict[str, Annotated[dict[str, float], MinLen(1)]]
    """Family -> task -> ceiling: the score of a task that counts as 1."""
    floors: dict[str, float] = field(default_factory=dict)
    """Task -> the least floor. Others have the score of random weights."""

    @property
    def tasks(self) -> list[str]:
        return [task for ceilings in self.families.values() for task in ceilings]

    def of(self, scores: Mapping[str, float], random: Mapping[str, float]) -> float:
        """The mean over the families of (score - floor) / (ceiling - floor), at least 0 for each
        task: how far below its floor an encoder is says nothing of what it learnt. 0 where random
        weights reach the ceiling.

        Args:
            scores: of an encoder, by task.
            random: those of random weights.
        """

        def share(task: str, ceiling: float) -> float:
            floor = max(random[task], self.floors.get(task, random[task]))
            return max(0.0, (scores[task] - floor) / (ceiling - floor)) if floor < ceiling else 0.0

        families = (ceilings.items() for ceilings in self.families.values())
        return statistics.fmean(statistics.fmean(share(*each) for each in of) for of in families)


def read_score(file: str | None = None) -> Score:
    """The score in a YAML file like score.yaml, which is the default. Raises UserError."""
    from pydantic import TypeAdapter, ValidationError

    path = Path(file) if file else Path(__file__).with_name("score.yaml")
    values = plain_yaml(read_text(path), str(path))
    for name in set(values) - set(kinds(Score)):
        raise UserError(f"{path}: no key {name!r}{nearest(name, kinds(Score))}")
    try:
        score = TypeAdapter(Score).validate_python(values)
    except ValidationError as e:
        raise UserError(f"{path} is not a score. Write families: {{NAME: {{TASK: 0.9}}}}") from e
    for name in score.floors.keys() - set(score.tasks):
        raise UserError(f"{path}: {name} has a floor and no family")
    for ceilings in score.families.values():
        for name in ceilings.keys() & score.floors.keys():
            low = score.floors[name] < ceilings[name]
            need(low, f"{path}: the floor of {name} must be below its ceiling, {ceilings[name]:g}")
    return score
