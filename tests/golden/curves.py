"""Ten updates of a recipe, two layers of width 32, through the loop's own `Run.update`: on the CPU,
in float32, two micro-batches, no dropout."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from batches import VOCAB, built, text_batch, tiny
from electrify.data.phases import one_phase
from electrify.tokens import Tokens
from electrify.train.dist import World
from electrify.train.loop import Run
from electrify.train.start import discriminator_names
from electrify.train.state import MetricSums, RunContext, TrainingData

HERE = Path(__file__).parent
# The published optimiser and initial values, and ours; then one of every other objective.
RECIPES = (
    *(
        "bert-small",
        "bert-tiny",
        "electra-small",
        "electra-tiny",
        "electra-15-tiny",
        "replace-mlm-tiny",
        "all-tokens-mlm-tiny",
        "corrective-tiny",
        "metro-tiny",
        "coco-lm-rtd-tiny",
        "coco-lm-tiny",
        "gdes-tiny",
        "fast-electra-tiny",
        "teams-tiny",
        "amos-tiny",
        "two-stage-tiny",
    ),
    *("adversarial-tiny", "electric-tiny", "unigram-tiny", "uniform-tiny"),
)
STEPS, ROWS, MICRO_ROWS, ROW_LENGTH = 10, 8, 4, 32
SHORT: dict[str, Any] = {
    "max_steps": STEPS,
    "warmup_steps": 3,
    "learning_rate": 2e-3,
    "train_batch_size": ROWS,
    "generator_learning_rate": 4e-3,
}
NARROW = {"generator_size": 0.5}
OWN: dict[str, dict[str, Any]] = {
    "electra-small": NARROW,
    "electra-tiny": NARROW,
    "electra-15-tiny": NARROW,
    "coco-lm-tiny": {"contrast_rows": MICRO_ROWS},
}
HEADER = (
    "# {name}: ten updates of tests/golden/curves.py. Written by `python tests/golden/make.py "
    "{name}`, only when a change of the numbers is meant.\n"
)


def batch(step: int, *, first_row: int, num_rows: int) -> Tokens:
    """Skewed words with a rule between neighbours, hashed from the step: nothing is read and
    nothing is left to a library's generator."""
    return text_batch(seed=1000 + step, rows=ROWS, row_length=ROW_LENGTH, vocab=VOCAB).rows(
        first_row, first_row + num_rows
    )


def run_of(name: str, folder: Path) -> Run:
    fields = SHORT | OWN.get(name, {})
    objective, config = built(name, **fields), tiny(name, **fields)
    loader: Any = SimpleNamespace(
        phases=one_phase(row_length=ROW_LENGTH, batch_rows=ROWS), batch=batch
    )
    data = TrainingData(loader, None, MICRO_ROWS, unigram_entropy=4.0)
    context = RunContext(World(rank=0, size=1, device=torch.device("cpu")), folder)
    return Run(
        objective.objective, config, data, context, discriminator=discriminator_names(objective)
    )


def curve(name: str, *, folder: Path) -> list[dict[str, float]]:
    """The losses, the replaced share and the norm of the gradient of each update."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        run = run_of(name, folder)
        points = []
        for step in range(STEPS):
            run.state.sums = MetricSums(torch.device("cpu"))
            run.update(run.batch(step))
            means = run.state.sums.means()
            points.append(
                {key: means[key] for key in [*run.weights, "replaced", "grad_norm"] if key in means}
            )
        return points
    finally:
        torch.set_num_threads(threads)


def write(name: str, points: list[dict[str, float]]) -> str:
    lines = [
        f"{step} " + " ".join(f"{key}={number:.6f}" for key, number in point.items())
        for step, point in enumerate(points, start=1)
    ]
    return HEADER.format(name=name) + "\n".join(lines) + "\n"


def read(text: str) -> list[dict[str, float]]:
    lines = [line.split()[1:] for line in text.splitlines() if not line.startswith("#")]
    return [
        {key: float(number) for key, number in (pair.split("=") for pair in line)} for line in lines
    ]
