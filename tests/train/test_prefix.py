"""A run that starts from the checkpoint of a longer one is the run from scratch, to the byte."""

from pathlib import Path
from typing import Any

import pytest

from electrify.errors import UserError
from electrify.recipe import Recipe, load, override
from electrify.studies.budgets import leaves_at
from electrify.train import checkpoint
from electrify.train.run import pretrain
from small import SMALL, same_ending

LONG, SHORT = 20, 10


def recipe(name: str, **fields: Any) -> Recipe:
    given = {"lr_scheduler_type": "wsd", "logging_steps": 3, "eval_steps": 8, "dropout": 0.1}
    return override(load(name), SMALL | given | {"max_steps": SHORT} | fields)


def prefix_of(data: Path, folder: Path, config: Recipe) -> Path:
    """The long run, which keeps only its last checkpoint and the one where `config` leaves."""
    long = override(config, {"max_steps": LONG, "save_steps": 7, "save_total_limit": 1})
    step = leaves_at(config, long)
    pretrain(data, output_dir=folder, config=long, milestones=frozenset({step}))
    assert checkpoint.steps(folder) == [step, LONG]
    return folder / f"checkpoint-{step}"


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("electra-tiny", {}),
        ("bert-tiny", {"decay_share": 0.5, "adam_beta2_tokens": 3000.0, "optim": "muon"}),
    ],
    ids=str,
)
def test_the_same_bytes_as_from_scratch(
    small_data: Path, tmp_path: Path, name: str, fields: dict[str, Any]
) -> None:
    """The two have in common what comes before the shorter one decays."""
    config = recipe(name, **fields)
    prefix = prefix_of(small_data, tmp_path / "long", config)
    # The decay begins at 1, or a rounding below.
    begins = round((1 - config.train.decay_share) * SHORT)
    assert int(prefix.name.split("-")[1]) in (begins, begins + 1)
    pretrain(small_data, output_dir=tmp_path / "whole", config=config)
    pretrain(small_data, output_dir=tmp_path / "end", config=config, prefix=prefix)
    same_ending(tmp_path / "whole", tmp_path / "end", step=SHORT)
    # Its checkpoints are its own: it does not begin at the prefix again.
    pretrain(small_data, output_dir=tmp_path / "end", config=config, prefix=prefix)
    same_ending(tmp_path / "whole", tmp_path / "end", step=SHORT)


def test_two_stages_start_from_no_other_run_and_keep_no_milestone_of_the_first(
    small_data, tmp_path, exports
):
    sizes = {"generator_steps": 6, "max_steps": 6, "save_steps": 2, "save_total_limit": 1}
    config = override(load("two-stage-tiny"), SMALL | sizes)
    run = tmp_path / "run"
    with pytest.raises(UserError, match="starts from the generator of its first"):
        pretrain(small_data, output_dir=run, config=config, prefix=tmp_path / "checkpoint-2")
    assert not run.exists()
    pretrain(small_data, output_dir=run, config=config, milestones=frozenset({2}))
    assert [checkpoint.steps(f) for f in (run / "generator-stage", run)] == [[6], [2, 6]]
