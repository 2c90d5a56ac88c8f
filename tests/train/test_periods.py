"""A run whose objective asks for one thing first and for another later."""

from itertools import pairwise
from typing import Any

import pytest
import running
import torch
from safetensors.torch import load_file

from batches import SPECIAL
from electrify.build import Vocabulary, build
from electrify.data.phases import Phases, phases_of
from electrify.flop_counts import PeriodFlops, flops_before, flops_of_periods, recipe_flops
from electrify.recipe import Recipe, load, override
from electrify.text.corpus import Corpus
from electrify.train.run import pretrain
from small import records

STEPS = 20


def recipe(**fields: Any) -> Recipe:
    given = {"max_steps": STEPS, "mlm_share": 0.4, "eval_steps": 5, "dropout": 0.1}
    return running.recipe("corrective-tiny", **given | fields)


MOVING = {"mask_rate": 0.3, "mask_rate_end": 0.15}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("bert-tiny", {}),
        (
            "corrective-tiny",
            {"mlm_share": 0.3, "batch_size_schedule": {8: 0.5}, "seq_length_schedule": {16: 0.7}},
        ),
    ],
)
def test_a_mask_rate_that_moves_is_counted_update_by_update(name, fields):
    """By recipes whose rate is that of the middle of the update. (The run takes that of its start,
    half an update earlier.)"""
    steps = 6

    def costs(**rate: float | None) -> tuple[Phases, list[PeriodFlops]]:
        config = override(load(name), {"max_steps": steps} | fields | rate)
        with torch.device("meta"):
            objective = build(config, Vocabulary(8192, SPECIAL)).objective
        phases, how = phases_of(config), {"convention": "hardware", "rows": 64}
        return phases, flops_of_periods(objective, phases, max_steps=steps, **how)

    each = []
    for k in range(steps):
        phases, periods = costs(mask_rate=0.3 - 0.15 * (k + 0.5) / steps, mask_rate_end=None)
        each.append(flops_before(phases, k + 1, periods) - flops_before(phases, k, periods))
    phases, periods = costs(**MOVING)
    for step in (steps, 5, 3, 1):
        assert flops_before(phases, step, periods) == pytest.approx(sum(each[:step]), rel=1e-9)
    # As one number for the whole run says it only where all updates are alike.
    _, mean = costs(mask_rate=0.225, mask_rate_end=None)
    alike = abs(flops_before(phases, steps, mean) / sum(each) - 1) < 1e-3
    assert alike == (not fields)


@pytest.mark.parametrize(
    "fields",
    [{"batch_size_schedule": {2: 0.5}} | MOVING, {"max_steps": 13, "mlm_end_share": 0.3} | MOVING],
    ids=str,
)
def test_the_plan_and_the_log_count_alike(small_data, tmp_path, fields):
    """Also where the change falls between two updates, and where batches grow."""
    config = recipe(**fields)
    pretrain(small_data, output_dir=tmp_path / "run", recipe=config)
    vocab_size = Corpus(small_data, "train").manifest.vocab_size
    planned = recipe_flops(config, vocab_size=vocab_size, convention="hardware")
    logged = records(tmp_path / "run", "train")[-1]["flops"]
    assert logged == pytest.approx(planned.train, rel=1e-9)


CONTRAST = {
    "contrast_rows": 2,
    "term_weights": {"generator": 1.0, "rtd": 50.0, "correct": 1.0, "contrast": 1.0},
}


@pytest.mark.parametrize(("optim", "micro_rows"), [("electra_adam", 2), ("adamw", 4)])
def test_a_head_that_waits_is_left_as_it_is(small_data, tmp_path, optim, micro_rows):
    """No decay and no momentum moves it: to the bit, the heads that come in at the change begin at
    their initial values, and the one that goes out ends there."""
    fields = {"optim": optim, "per_device_train_batch_size": micro_rows, "weight_decay": 0.1}
    config = recipe(
        max_steps=6,
        mlm_share=0.5,
        correction="none",
        warmup_steps=0,
        save_steps=1,
        save_total_limit=None,
        **CONTRAST,
        **fields,
    )
    pretrain(small_data, output_dir=tmp_path, recipe=config)
    facts = Corpus(small_data, "train").manifest
    made = build(config, Vocabulary(facts.vocab_size, facts.special_ids)).objective
    files = [tmp_path / f"checkpoint-{step}" / "model.safetensors" for step in range(1, 7)]
    at = [{n: p.detach() for n, p in made.named_parameters()}, *map(load_file, files)]
    coming = [n for n in at[0] if n.startswith(("head.", "vectors."))]
    going = [n for n in at[0] if n.startswith("corrector.")]
    assert len(coming) >= 6
    assert len(going) >= 4
    for before, after in pairwise(range(7)):
        for n in (*coming, *going):
            rests = n in coming if after <= 3 else n in going
            assert torch.equal(at[before][n], at[after][n]) == rests, (n, after)


def test_the_periods_are_logged_and_counted(small_data, tmp_path):
    run = tmp_path / "run"
    pretrain(small_data, output_dir=run, recipe=recipe(mlm_end_share=0.25))
    train, valid = (records(run, kind) for kind in ("train", "valid"))
    for r in (*train, *valid):
        # A validation at the change sees what comes then.
        step = r["step"] - (r["kind"] == "train")
        masked = step < 8 or step >= 15
        assert ("mlm_accuracy_masked" in r) == masked, r
        assert ("rtd" in r) != masked, r
    costs = [b["flops"] - a["flops"] for a, b in pairwise(train)]
    assert costs[0] == pytest.approx(costs[6])
    assert costs[8] == pytest.approx(costs[13])
    assert costs[-1] == pytest.approx(costs[0])
    assert costs[8] > costs[0]
