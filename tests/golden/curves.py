"""Ten updates of a recipe, two layers of width 32, through the loop's own `Run.update`: on the CPU,
in float32, two micro-batches, no dropout."""

from pathlib import Path
from typing import Any

import torch

from batches import run_of, tiny
from electrify.train.log import MetricSums
from systems import SYSTEMS

HERE = Path(__file__).parent
# The published optimiser and initial values, and ours; then one of every other objective.
RECIPES = ("bert-small", "electra-small", *(f"{name}-tiny" for name in SYSTEMS))
STEPS, MICRO_ROWS = 10, 4
SHORT: dict[str, Any] = {
    "max_steps": STEPS,
    "warmup_steps": 3,
    "learning_rate": 2e-3,
    "train_batch_size": 2 * MICRO_ROWS,
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


def curve(name: str, *, folder: Path) -> list[dict[str, float]]:
    """The losses, the replaced share and the norm of the gradient of each update."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        config = tiny(name, **SHORT | OWN.get(name, {}))
        run = run_of(config, folder, seed=1000, micro_rows=MICRO_ROWS)
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
