"""A run that goes on from a checkpoint of its own, with every kind of state that there is, or that
starts from one of a longer run: the same bytes."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from running import ROPE, recipe

from electrify.recipe import override
from electrify.studies.budgets import leaves_at
from electrify.train.run import pretrain
from small import same_ending, steps_of

PERIODS: dict[str, Any] = {"max_steps": 20, "mlm_share": 0.4, "eval_steps": 5, "weight_decay": 0.1}
APART: dict[str, Any] = {
    "clip": "apart",
    "generator_warmup_steps": 6,
    "generator_weight_decay": 0.2,
    "lr_scheduler_type": "constant",
}
CASES: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [
    # Momentum of Muon.
    ("bert-modernbert-tiny", {"optim": "muon", "num_hidden_layers": 2, "weight_decay": 0.1}, (5,)),
    ("electra-tiny", APART, (5,)),
    # Batches and rows that grow, and beta2 with them.
    (
        "electra-tiny",
        {"adam_beta2_tokens": 1000, "batch_size_schedule": {2: 0.5}}
        | {"seq_length_schedule": {8: 0.25}, "per_device_train_batch_size": 1},
        (1, 5),
    ),
    # A base of rotary positions that changes with the rows: on either side.
    ("electra-modernbert-tiny", ROPE, (3, 6)),
    # A head that has no moments yet in the first checkpoint.
    ("corrective-tiny", PERIODS, (6,)),
    ("corrective-tiny", PERIODS | {"optim": "adamw", "correction": "none"}, (8,)),
]


@pytest.mark.parametrize(("name", "fields", "stops"), CASES, ids=str)
def test_resumes_to_the_bit(
    small_data: Path, tmp_path: Path, name: str, fields: dict[str, Any], stops: tuple[int, ...]
) -> None:
    own = {"dropout": 0.1, "save_steps": 100, "save_total_limit": None}
    found, whole = recipe(name, **fields | own), tmp_path / "whole"
    pretrain(small_data, output_dir=whole, recipe=found, milestones=frozenset(stops))
    for stop in stops:
        broken = tmp_path / f"from-{stop}"
        shutil.copytree(whole, broken)
        for step in (s for s in steps_of(whole) if s > stop):
            shutil.rmtree(broken / f"checkpoint-{step}")
        pretrain(small_data, output_dir=broken, recipe=found, resume="must")
        same_ending(whole, broken, step=found.train.max_steps)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("electra-tiny", {"decay_share": 0.2}),
        ("bert-tiny", {"decay_share": 0.5, "adam_beta2_tokens": 3000.0, "optim": "muon"}),
    ],
    ids=str,
)
def test_starts_from_a_longer_run(small_data, tmp_path, name, fields):
    """The two have in common what comes before the shorter one decays. The longer one keeps only
    its last checkpoint and the one where the shorter one leaves."""
    own = {"lr_scheduler_type": "wsd", "logging_steps": 3, "eval_steps": 8, "dropout": 0.1}
    short = recipe(name, max_steps=10, **own | fields)
    long = override(short, {"max_steps": 20, "save_steps": 7, "save_total_limit": 1})
    leaves = leaves_at(short, long)
    begins = round((1 - fields["decay_share"]) * 10)
    assert leaves in (begins, begins + 1), "the decay begins at 1, or a rounding below"
    folder = tmp_path / "long"
    pretrain(small_data, output_dir=folder, recipe=long, milestones=frozenset({leaves}))
    assert steps_of(folder) == [leaves, 20]
    pretrain(small_data, output_dir=tmp_path / "whole", recipe=short)
    for _ in range(2):  # its checkpoints are its own: it does not begin at the prefix again
        prefix = folder / f"checkpoint-{leaves}"
        pretrain(small_data, output_dir=tmp_path / "end", recipe=short, prefix=prefix)
        same_ending(tmp_path / "whole", tmp_path / "end", step=10)
