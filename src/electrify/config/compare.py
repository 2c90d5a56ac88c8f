"""The options of `electrify compare`: which recipes, for which budgets, measured by what."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from ..errors import UserError
from .flops import Convention
from .given import Checked

SCORE = "mean rank over the tasks"
STUDY = "study.yaml"
Equal = Literal["flops", "tokens", "epochs"]
UNITS: dict[Equal, str] = {
    "flops": "FLOPs",
    "tokens": "tokens",
    "epochs": "passes over the corpus",
}
"""What a budget counts, in the words that follow a number."""

STUDY_MARK = "# The plan of a study, written by electrify compare before its first run.\n"

MOST_SEEDS = 1000


def with_unit(budget: float, equal: Equal) -> str:
    """A budget with its unit."""
    unit = "pass over the corpus" if equal == "epochs" and budget == 1 else UNITS[equal]
    return f"{budget:.3g} {unit}"


@dataclass(frozen=True, kw_only=True)
class CompareConfig(Checked):
    """Which recipes are compared, for which budgets, by which tasks, and where the results go."""

    HEADINGS: ClassVar = {
        "data": "what is compared",
        "tasks": "by what",
        "output_dir": "results",
        "processes": "computing",
    }
    data: str
    """The folder made by `electrify prepare` on which every recipe is trained."""
    recipes: tuple[str, ...] = ()
    """Shipped recipes, with changes after a colon: bert-tiny,electra-tiny:mask_rate=.3,tie=gdes.
    Differences are to the first one."""
    recipe_file: str | None = None
    """A YAML file with more of them: a name for each, and under it `recipe` and its changes."""
    budgets: tuple[float, ...]
    """FLOPs of pre-training, for instance 1e14,4e14, or what --equal says. Every recipe runs as
    many updates as cost that much."""
    equal: Equal = "flops"
    """What budgets count, and so what is equal between recipes: flops; tokens of text, first stages
    included; epochs, passes over the corpus, for a corpus that is all there is."""
    seeds: int = 3
    """Runs of pre-training of each recipe and budget; the intervals are over them."""
    seed: int = 0
    """The first seed; the others are the numbers that follow it."""
    lr_scheduler_type: Literal["wsd", "recipe"] = "wsd"
    """wsd: the learning rate is held and decays over the last fifth, so a shorter run starts from
    the longest one's checkpoint and only its end is computed; recipe: as each recipe says, every
    run whole."""
    convention: Convention = "hardware"
    """How FLOPs are counted, see `electrify flops`."""
    baselines: bool = True
    """Also measure the first recipe untrained, and untrained with words from co-occurrence."""
    tasks: tuple[str, ...]
    """Tasks of `electrify finetune` by name, fine-tuned; NAME:frozen for a linear head on the
    last layer of the encoder as it is, NAME:frozen-last4 and NAME:frozen-all on four layers or all;
    stsb:cosine for cosines of mean states without any training; blimp, and supplement for the files
    of BLiMP's folder supplement; planted, for minimal pairs made of the corpus's own held-out text;
    blimp:mlm, supplement:mlm and planted:mlm, by the masked language model that a run leaves of its
    encoder."""
    data_dir: str | None = None
    """The folder that holds the tasks' own folders, or folders glue, tagging, squad, babylm and
    blimp with them. Only planted needs none."""
    task_seeds: int = 3
    """Runs of each task for each encoder; their median counts."""
    max_train_samples: int | None = None
    """Fine-tune on this many examples."""
    max_eval_samples: int | None = None
    """blimp and supplement: use only the first of the pairs of each paradigm, this many; planted:
    make this many, at most the 500 that there are without it."""
    output_dir: str
    """Folder for study.yaml, results.jsonl, the report (report.md, .csv, .json, .png) and the runs.
    The same command continues there; results.jsonl and study.yaml alone can be carried to another
    machine."""
    against: Literal["flops", "tokens", "seconds"] | None = None
    """The horizontal axis of the picture of several budgets; by default what --equal says."""
    processes: int = 1
    """Encoders that are trained side by side, each on one core, or on one GPU if there are any."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute."""
    plan_only: bool = False
    """Show what would run, and how long it would take, and stop."""
    json: bool = False
    """Write plan or results as JSON."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.recipes and self.recipe_file is None:
            raise UserError("recipes is missing: name the recipes to compare, or give recipe_file")
        for name in ("seeds", "task_seeds", "processes", "max_train_samples", "max_eval_samples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name} must be at least 1, not {value}")
        for name in ("seeds", "task_seeds"):
            if getattr(self, name) > MOST_SEEDS:
                raise UserError(f"{name} must be at most {MOST_SEEDS:,}, not {getattr(self, name)}")
        if not 0 <= self.seed < 2**32:
            raise UserError(f"seed must lie between 0 and 2**32 - 1, not {self.seed}")
        if not self.budgets:
            raise UserError("budgets is missing: say how many FLOPs, for instance 1e14,4e14")
        for budget in self.budgets:
            if not 0 < budget < math.inf:
                raise UserError(f"budgets must be above 0 and finite, not {budget}")
        for name, values in (("budgets", self.budgets), ("tasks", self.tasks)):
            if len(set(values)) < len(values):
                raise UserError(f"{name} names one thing twice")
        if not self.tasks:
            raise UserError("tasks is missing: name what the encoders are measured by")
