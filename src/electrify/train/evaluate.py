"""Validation, on the same rows and with the same masks for every run."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ..data.loader import Rows
from ..draws import draws_for
from ..objectives.objective import Objective, Step
from .dist import World
from .state import MetricSums

# "valid": validation masks do not depend on the run's seed, so that runs are compared on the same
# task
SEED = 0x76616C6964


@torch.no_grad()
def evaluate(
    objective: Objective,
    rows: Rows,
    *,
    limit: int,
    rows_each: int,
    world: World,
    bf16: bool,
    progress: float = 1.0,
) -> dict[str, float]:
    """Means and detection metrics of the objective over the first `limit` rows of the split. The
    ranks share every batch; missing rows are padding.

    rows_each: rows of one forward pass of one process. progress: share of the run that is done, for
    corruptors that change during a run.
    """
    was_training = objective.training
    objective.eval()
    step = Step(objective)
    sums = MetricSums(world.device)
    mine = (world.rank * rows_each, (world.rank + 1) * rows_each)
    for k, tokens in enumerate(rows.sequential(rows_each * world.size, limit=limit)):
        first = k * tokens.num_rows
        n = tokens.num_rows
        draws = draws_for(
            seed=SEED,
            step=0,
            num_rows=n,
            row_length=rows.row_length,
            first_row=first,
            progress=progress,
        )
        with torch.autocast(world.device.type, torch.bfloat16, enabled=bf16):
            own = tokens.rows(*mine)
            plan = objective.plan(own, draws.rows(*mine))
            sums.add(step(own.to(world.device), plan.to(world.device)))
    objective.train(was_training)
    return sums.means()


def shown(validation: dict[str, float], *, losses: Iterable[str]) -> dict[str, float]:
    """The validation metrics that fit on one line: the losses, the accuracies, the share of
    replaced tokens, and how well replaced tokens are detected."""
    ends = ("_accuracy", "_auc", "_recall", "_precision")
    return {
        k.replace("_detection_", " "): v
        for k, v in validation.items()
        if k in losses or k == "replaced" or k.endswith(ends)
    }
