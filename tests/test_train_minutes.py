"""`--train-minutes`: as many updates as fill a time, and a run like any other afterwards."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from electrify.flop_counts import recipe_flops
from electrify.recipe import Recipe, load, override
from electrify.text.corpus import Corpus
from electrify.train import dist
from electrify.train import length as timed
from electrify.train.job import Job
from electrify.train.length import FEWEST, FORWARD, measured, of_time
from electrify.train.run import pretrain
from small import SMALL, same_ending

# An update of 4 rows of 16 tokens takes .64 s.
PER_SLOT = 0.01
EVAL_ROWS = 16


def recipe(**fields: object) -> Recipe:
    return override(load("electra-tiny"), SMALL | {"warmup_steps": 5} | fields)


def measured_as(monkeypatch: pytest.MonkeyPatch, per_slot: float) -> None:
    """A machine whose slots take this many seconds, and on which measuring takes no time."""

    def rate(job: Job, limit_s: float) -> tuple[float, int]:
        return per_slot, job.config.train.eval_rows

    monkeypatch.setattr(timed, "measured", rate)
    stopped_clock(monkeypatch)


def stopped_clock(monkeypatch: pytest.MonkeyPatch, *ticks: int) -> None:
    """The clock by which updates are measured."""
    clock = iter(ticks)
    now = SimpleNamespace(monotonic=lambda: float(next(clock, 0)))
    monkeypatch.setattr(timed, "time", now)


def test_by_hand() -> None:
    """One validation of 16 rows of 16 tokens at the end: a third of 2.56 s. Of 60 s 59.15 are left,
    which hold 92 updates of .64 s."""
    config = of_time(recipe(), 60.0, per_slot=PER_SLOT, eval_rows=EVAL_ROWS)
    assert config is not None
    assert (config.train.max_steps, config.train.warmup_steps) == (92, 5)
    # With a validation every 10 updates, 10 updates take 6.4 + .853 s: 80 and a rest take 59.7.
    config = of_time(recipe(eval_steps=10), 60.0, per_slot=PER_SLOT, eval_rows=EVAL_ROWS)
    assert config is not None
    assert config.train.max_steps == 81
    # The warm-up is a tenth at most.
    config = of_time(recipe(warmup_steps=50), 60.0, per_slot=PER_SLOT, eval_rows=EVAL_ROWS)
    assert config is not None
    assert config.train.warmup_steps == 9
    config = of_time(
        recipe(warmup_steps=5, generator_warmup_steps=50),
        60.0,
        per_slot=PER_SLOT,
        eval_rows=EVAL_ROWS,
    )
    assert config is not None
    assert (config.train.warmup_steps, config.train.generator_warmup_steps) == (5, 9)


@settings(max_examples=20)
@given(
    seconds=st.floats(0.01, 1e6), per_slot=st.floats(1e-6, 1.0), every=st.sampled_from([0, 7, 100])
)
def test_the_most_updates_that_fit(seconds: float, per_slot: float, every: int) -> None:
    def cost(steps: int) -> float:
        validations = 1 + (steps // every if every else 0)
        return per_slot * (64 * steps + FORWARD * validations * 16 * 16)

    config = of_time(recipe(eval_steps=every), seconds, per_slot=per_slot, eval_rows=EVAL_ROWS)
    if config is None:
        assert cost(FEWEST) > seconds
    else:
        steps = config.train.max_steps
        assert cost(steps) <= seconds < cost(steps + 1)


def test_a_run_of_a_measured_time_is_the_run_of_its_number_of_updates(
    small_data, tmp_path, monkeypatch, capsys, without_exports
):
    """What was measured leaves no trace in the weights; the same command continues the run."""
    found = []

    def once(job: Job, limit_s: float) -> tuple[float, int]:
        assert limit_s == 3.0
        found.append(measured(job, limit_s=0.0)[1])
        return 0.05, EVAL_ROWS

    monkeypatch.setattr(timed, "measured", once)
    stopped_clock(monkeypatch)
    folder = tmp_path / "timed"
    pretrain(small_data, output_dir=folder, config=recipe(), train_minutes=1)
    assert found == [EVAL_ROWS]
    # 57.6 s, of which the validation takes 4.27: 3.2 s are an update's.
    assert "1 minutes hold 16 updates, the first 1 of them" in capsys.readouterr().err
    config = load(folder / "config.yaml")
    assert (config.train.max_steps, config.train.warmup_steps) == (16, 1)
    pretrain(small_data, output_dir=tmp_path / "whole", config=config)
    same_ending(tmp_path / "whole", folder, step=16)
    # A finished run is left as it is, though another time is given now.
    again = pretrain(small_data, output_dir=folder, config=recipe(), train_minutes=10)
    assert (again.summary.step, again.summary.finished, len(found)) == (16, True, 1)


def test_the_measured_rate(small_data, tmp_path, monkeypatch):
    """The first updates are not counted, and at least five are."""
    stopped_clock(monkeypatch, *range(1000))
    config = recipe()
    world = dist.World(0, 1, torch.device("cpu"))
    job = Job(small_data, tmp_path / "run", config, 4, world, {})
    # One tick an update; 4 rows of 16 tokens each.
    assert measured(job, limit_s=0.0)[0] == pytest.approx(6 / 5 / 64)
    assert not (tmp_path / "run").exists()
    # The recipe's own length does not matter, though it is too short to be measured.
    short = replace(job, config=recipe(max_steps=2, warmup_steps=1))
    assert measured(short, limit_s=0.0)[0] == pytest.approx(6 / 5 / 64)


def test_one_slow_update_is_enough(small_data, tmp_path, monkeypatch) -> None:
    """100 s an update: the first one shows the rate, though it is not counted otherwise."""
    stopped_clock(monkeypatch, *range(0, 10_000, 100))
    job = Job(small_data, tmp_path / "run", recipe(), 4, dist.World(0, 1, torch.device("cpu")), {})
    assert measured(job, limit_s=1.0)[0] == pytest.approx(2 * 100 / 64)


def test_the_dearer_part_of_a_run_is_foreseen(small_data, tmp_path, monkeypatch):
    """What is measured is the beginning, a masked language model; the FLOPs say how much more a
    token costs later, when crops are read too."""
    stopped_clock(monkeypatch, *range(1000))
    share, steps = 0.4, 1000
    fields = {"mlm_share": share, "max_steps": steps, "contrast_rows": 2}
    config = override(load("coco-lm-tiny"), SMALL | {"warmup_steps": 5} | fields)
    words = Corpus(small_data, "train").manifest.vocab_size
    whole = recipe_flops(config, vocab_size=words, convention="hardware")
    beginning = (whole.train - (1 - share) * steps * whole.step) / (share * steps)
    assert whole.step > 1.4 * beginning
    world = dist.World(0, 1, torch.device("cpu"))
    job = Job(small_data, tmp_path / "run", config, 4, world, {})
    assert measured(job, limit_s=0.0)[0] == pytest.approx(
        6 / 5 / 64 * (share + (1 - share) * whole.step / beginning)
    )


def test_an_interrupted_run_keeps_its_number(small_data, tmp_path, monkeypatch, without_exports):
    measured_as(monkeypatch, PER_SLOT)
    folder = tmp_path / "run"
    short = recipe(max_minutes=1e-9)
    assert not pretrain(
        small_data, output_dir=folder, config=short, train_minutes=1
    ).summary.finished
    monkeypatch.setattr(timed, "measured", None)
    result = pretrain(small_data, output_dir=folder, config=recipe(), train_minutes=1)
    assert result.summary.finished
    # 57.6 s hold 88 updates and a validation.
    assert result.summary.step == 88


def test_a_warmup_longer_than_the_run_is_shortened(small_data, tmp_path, capsys, without_exports):
    """Only where the user gave the length of the run and no warm-up."""
    config = override(recipe(), {"max_steps": 20, "warmup_steps": 200})
    run = pretrain(small_data, output_dir=tmp_path / "run", config=config, given=["max_steps"])
    assert "warmup_steps is 2, a tenth of the run, not 200" in capsys.readouterr().err
    facts = json.loads((run.run / "run.json").read_text())
    assert facts["recipe"]["warmup_steps"] == 2
    again = pretrain(small_data, output_dir=tmp_path / "run", config=config, given=["max_steps"])
    assert again.summary.step == 20
