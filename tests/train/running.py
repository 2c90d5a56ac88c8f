"""Small runs in this process: of the command's function, and of the loop alone."""

from pathlib import Path
from typing import Any

import torch

from electrify.recipe import Recipe, load, override
from electrify.train.dist import World
from electrify.train.job import Job, assembled, set_up
from electrify.train.loop import Run
from small import SMALL

CPU = torch.device("cpu")
ALONE = World(rank=0, size=1, device=CPU)
# Of a ModernBERT whose rotary base belongs to the length of its rows: 8 tokens, then 32.
ROPE: dict[str, Any] = {
    "num_hidden_layers": 2,
    "global_attn_every_n_layers": 2,
    "local_attention": 4,
    "generator_size": 1.0,
    "max_seq_length": 32,
    "seq_length_schedule": {8: 0.5},
    "global_rope_theta": 700.0,
    "global_rope_theta_schedule": {8: 20.0},
}


def recipe(name: str = "electra-tiny", **fields: Any) -> Recipe:
    return override(load(name), SMALL | {"max_steps": 12, "logging_steps": 1} | fields)


def run_of(
    data: Path, folder: Path, recipe: Recipe, *, micro_rows: int | None = None, device: str = "cpu"
) -> Run:
    """A run as `pretrain` makes it, without its folder and without word vectors."""
    rows = micro_rows or recipe.train.train_batch_size
    job = Job(recipe, folder, World(rank=0, size=1, device=torch.device(device)), rows, data)
    return assembled(*set_up(job), fresh=False)[0]
