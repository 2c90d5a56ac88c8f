"""`--train-minutes`: as many updates as fill a time, and a run like any other afterwards."""

import json
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
from electrify.train.length import FEWEST, FORWARD, fitted, slot_seconds, updates_in
from electrify.train.run import pretrain
from small import SMALL, same_ending

# An update of 4 rows of 16 tokens takes .64 s.
PER_SLOT = 0.01
EVAL_ROWS = 16
ALONE = dist.World(0, 1, torch.device("cpu"))


def recipe(name: str = "electra-tiny", **fields: object) -> Recipe:
    return override(load(name), SMALL | {"warmup_steps": 5} | fields)


def stopped_clock(monkeypatch: pytest.MonkeyPatch, *ticks: int) -> None:
    """The clock by which updates are measured."""
    clock = iter(ticks)
    now = SimpleNamespace(monotonic=lambda: float(next(clock, 0)))
    monkeypatch.setattr(timed, "time", now)


@pytest.mark.parametrize(
    ("fields", "steps"),
    [
        # One validation of 16 rows of 16 tokens at the end: a third of 2.56 s. Of 60 s 59.15 are
        # left, which hold 92 updates of .64 s.
        ({}, 92),
        # With a validation every 10 updates, 10 updates take 6.4 + .853 s: 80 and a rest take 59.7.
        ({"eval_steps": 10}, 81),
    ],
)
def test_by_hand(fields, steps):
    own = recipe(**fields)
    assert updates_in(own, 60.0, per_slot=PER_SLOT, eval_rows=EVAL_ROWS) == steps


@settings(max_examples=20)
@given(
    seconds=st.floats(0.01, 1e6), per_slot=st.floats(1e-6, 1.0), every=st.sampled_from([0, 7, 100])
)
def test_the_most_updates_that_fit(seconds: float, per_slot: float, every: int) -> None:
    def cost(steps: int) -> float:
        validations = 1 + (steps // every if every else 0)
        return per_slot * (64 * steps + FORWARD * validations * 16 * 16)

    own = recipe(eval_steps=every)
    steps = updates_in(own, seconds, per_slot=per_slot, eval_rows=EVAL_ROWS)
    if steps < FEWEST:
        assert cost(FEWEST) > seconds
    else:
        assert cost(steps) <= seconds < cost(steps + 1)


def test_a_run_of_a_measured_time_is_the_run_of_its_number_of_updates(
    small_data, tmp_path, monkeypatch, capsys, without_exports
):
    """What was measured leaves no trace in the weights; the same command continues the run, also
    where it was interrupted, with its number of updates."""
    found = []

    def once(job: Job, limit_s: float) -> tuple[float, int]:
        assert limit_s == 3.0
        found.append(slot_seconds(job, limit_s=0.0)[1])
        return 0.05, EVAL_ROWS

    monkeypatch.setattr(timed, "slot_seconds", once)
    stopped_clock(monkeypatch)
    folder = tmp_path / "timed"

    def run(minutes: float, **fields: object) -> tuple[int, bool]:
        own = recipe(**fields)
        done = pretrain(small_data, output_dir=folder, recipe=own, train_minutes=minutes)
        return done.step, done.finished

    assert run(1, max_minutes=1e-9) == (1, False)
    # 57.6 s, of which the validation takes 4.27: 3.2 s are an update's.
    said = capsys.readouterr().err
    assert "1 minutes hold 16 updates" in said
    assert "warmup_steps is 1, a tenth of the run, not 5" in said
    config = load(folder / "config.yaml")
    assert (config.train.max_steps, config.train.warmup_steps) == (16, 1)
    assert run(1) == (16, True)
    config = override(config, {"max_minutes": None})
    pretrain(small_data, output_dir=tmp_path / "whole", recipe=config)
    same_ending(tmp_path / "whole", folder, step=16)
    # A finished run is left as it is, though another time is given now.
    assert run(10) == (16, True)
    assert found == [EVAL_ROWS]


SLOW = (0, 1000, 1100, 1200, 1300, 1400)  # the first update compiles


@pytest.mark.parametrize(
    ("fields", "ticks", "limit_s", "rate"),
    [
        # The first three updates are not counted, and five are.
        ({}, range(100), 0.0, 6 / 5),
        # The recipe's own length does not matter, though it is too short to be measured.
        ({"max_steps": 2, "warmup_steps": 1}, range(100), 0.0, 6 / 5),
        ({}, SLOW, 1.0, 200),  # so slow that one must do
    ],
)
def test_the_measured_rate(small_data, tmp_path, monkeypatch, fields, ticks, limit_s, rate):
    """The clock is asked before the first update, after each, and at the end; 4 rows of 16 tokens
    each."""
    stopped_clock(monkeypatch, *ticks)
    job = Job(recipe(**fields), tmp_path / "run", ALONE, 4, small_data)
    assert slot_seconds(job, limit_s=limit_s)[0] == pytest.approx(rate / 64)
    assert not (tmp_path / "run").exists()


def test_the_dearer_part_of_a_run_is_foreseen(small_data, tmp_path, monkeypatch):
    """What is measured is the beginning, a masked language model; the FLOPs say how much more a
    token costs later, when crops are read too."""
    stopped_clock(monkeypatch, *range(1000))
    share, steps = 0.4, 1000
    config = recipe("coco-lm-tiny", mlm_share=share, max_steps=steps, contrast_rows=2)
    words = Corpus(small_data, "train").manifest.vocab_size
    whole = recipe_flops(config, vocab_size=words, convention="hardware")
    beginning = (whole.train - (1 - share) * steps * whole.step) / (share * steps)
    assert whole.step > 1.4 * beginning
    job = Job(config, tmp_path / "run", ALONE, 4, small_data)
    rate = 6 / 5 / 64 * (share + (1 - share) * whole.step / beginning)
    assert slot_seconds(job, limit_s=0.0)[0] == pytest.approx(rate)


def test_a_warmup_longer_than_the_run_is_shortened(small_data, tmp_path, capsys, without_exports):
    """Only where the user gave the length of the run and no warm-up, and from a quarter on; the
    generator's, too."""
    for steps, warmup in ((799, 79), (800, 200)):
        longer = recipe(max_steps=steps, warmup_steps=200, generator_warmup_steps=200)
        t = fitted(longer, ["max_steps"], ALONE).train
        assert t.warmup_steps == t.generator_warmup_steps == warmup
        assert fitted(longer, [], ALONE) == longer
        assert fitted(longer, ["max_steps"], ALONE).train.logging_steps == 39 + (steps == 800)
    config, run = recipe(max_steps=20, warmup_steps=200), tmp_path / "run"
    for _ in range(2):
        done = pretrain(small_data, output_dir=run, recipe=config, given=["max_steps"])
        assert done.step == 20
    assert "warmup_steps is 2, a tenth of the run, not 200" in capsys.readouterr().err
    assert json.loads((run / "run.json").read_text())["recipe"]["warmup_steps"] == 2
