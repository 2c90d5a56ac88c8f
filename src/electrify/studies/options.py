"""The options of `electrify compare`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le, Lt

from ..errors import need
from ..values import Count, Options, Positional, Positive

Equal = Literal["flops", "tokens", "epochs"]
UNITS: dict[str, str] = {"flops": "FLOPs", "tokens": "tokens", "epochs": "epochs"}
Seeds = Annotated[int, Ge(1), Le(1000)]


def with_unit(budget: float, equal: Equal) -> str:
    """A budget with its unit."""
    return f"{budget:.3g} {'epoch' if equal == 'epochs' and budget == 1 else UNITS[equal]}"


@dataclass(frozen=True, kw_only=True)
class CompareConfig(Options):
    """Which recipes are compared, for which budgets, on which tasks."""

    data: Positional[str]
    """Folder made by `electrify prepare` on which every recipe is trained."""
    recipes: tuple[str, ...] = ()
    """Recipes, with changes after a colon: bert-tiny,electra-tiny:mask_rate=0.3. They, or
    --recipe-file, are needed. The scores of each are compared with those of the first."""
    recipe_file: str | None = None
    """YAML file with more recipes, as `NAME: {recipe: electra-tiny, mask_rate: 0.3}`."""
    budgets: tuple[Positive, ...]
    """Budgets of pre-training, e.g. 1e14,4e14: FLOPs, or the unit of --equal."""
    equal: Equal = "flops"
    """Unit of the budgets: flops, tokens of text (those of --generator-steps, too), or epochs."""
    seeds: Seeds = 3
    """Pre-training runs of each recipe and budget. Confidence intervals are over them."""
    seed: Annotated[int, Ge(0), Lt(2**32)] = 0
    """First seed."""
    lr_scheduler_type: Literal["wsd", "recipe"] = "wsd"
    """wsd: constant learning rate with decay in the last decay_share, so that shorter runs branch
    off the longest. recipe: each recipe's own schedule, every run whole."""
    convention: Literal["paper", "hardware"] = "hardware"
    """How FLOPs are counted, see `electrify flops`."""
    baselines: bool = True
    """Also measure the first recipe untrained, untrained with word embeddings from co-occurrence,
    and baselines without an encoder (TF-IDF, word overlap)."""
    tasks: tuple[str, ...] = ()
    """Tasks [default: with --data-dir those of the summary score, else substitution]:
    - NAME: a task of `electrify finetune`, fine-tuned
    - NAME:frozen, NAME:frozen-last4, NAME:frozen-all: linear probe on the last layer, four, or all
    - stsb:cosine, stsb:cosine-best: cosines of the last layer, or of the best one
    - blimp, supplement: minimal pairs of BLiMP and BabyLM, by the head of discriminator/
    - substitution: held-out sentence against the same with one word replaced, by that head
    - blimp:mlm (and supplement, substitution): by an MLM head on the discriminator's encoder
    - blimp:best (and supplement, substitution): by that one if the run has it, else RTD's"""
    score_file: str | None = None
    """YAML file that defines the summary score [default: the shipped one if all of its tasks are
    measured, otherwise the mean rank]."""
    data_dir: str | None = None
    """Folder that holds the folders of the tasks, or folders glue, tagging, squad, babylm and blimp
    with them."""
    task_seeds: Seeds = 3
    """Runs of each task for each encoder, of which the median counts."""
    max_train_samples: Count | None = None
    """Fine-tune on this many examples."""
    max_eval_samples: Count | None = None
    """Use the first N pairs of each paradigm of blimp and supplement, and N (at most 500) of
    substitution."""
    output_dir: str
    """Folder of study.yaml, results.jsonl, the report and the runs. The same command resumes
    there."""
    processes: Count = 1
    """Encoders trained in parallel, each on one core or GPU."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto, cpu or cuda."""
    plan_only: bool = False
    """Print what would run and how long it would take."""
    json: bool = False
    """Print JSON."""

    def check(self) -> None:
        named = bool(self.recipes or self.recipe_file)
        need(named, "recipes are missing: name them, or give recipe_file")
        need(bool(self.budgets), "budgets are missing", "give FLOPs of pre-training, such as 1e13")
        for name in ("budgets", "tasks"):
            values = getattr(self, name)
            need(len(set(values)) == len(values), f"{name} names one thing twice")
