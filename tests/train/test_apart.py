"""What the generator has of its own in the optimiser: clipping and warm-up."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from electrify.recipe import Recipe, load, override
from electrify.train.optim import clip, clip_groups, parameter_groups
from electrify.train.run import pretrain
from small import SMALL, records, same_ending


def recipe(**fields: Any) -> Recipe:
    return override(load("electra-tiny"), SMALL | {"max_steps": 12} | fields)


def with_gradient(*values: float) -> nn.Parameter:
    p = nn.Parameter(torch.zeros(len(values)))
    p.grad = torch.tensor(values)
    return p


def norm_of(t: Tensor | None) -> float:
    assert t is not None
    return float(t.norm())


def test_each_group_by_its_own_norm() -> None:
    """Norms 5 and .5, limit 1: together both shrink by the norm of both; apart the small one
    stays."""
    named = {"d": with_gradient(3.0, 4.0), "g": with_gradient(0.3, 0.4)}
    both = math.hypot(5, 0.5)
    assert float(clip(clip_groups(named, {"d"}, apart=True), 1.0)) == pytest.approx(both)
    assert norm_of(named["d"].grad) == pytest.approx(1.0, rel=1e-5)
    assert norm_of(named["g"].grad) == pytest.approx(0.5)
    named = {"d": with_gradient(3.0, 4.0), "g": with_gradient(0.3, 0.4)}
    assert float(clip(clip_groups(named, {"d"}, apart=False), 1.0)) == pytest.approx(both)
    assert norm_of(named["g"].grad) == pytest.approx(0.5 / both, rel=1e-5)


def test_groups_of_the_generator_stand_apart() -> None:
    named = {"d.w": nn.Parameter(torch.zeros(2, 2)), "g.w": nn.Parameter(torch.zeros(2, 2))}
    rates = dict.fromkeys(named, 1e-3)
    groups = parameter_groups(named, rates=rates, weight_decay=0.1, generator={"g.w"})
    assert [(g["names"], g["generator"]) for g in groups] == [(["d.w"], False), (["g.w"], True)]
    (one,) = parameter_groups(named, rates=rates, weight_decay=0.1)
    assert one["names"] == ["d.w", "g.w"]
    flat = {"g.b": nn.Parameter(torch.zeros(2))}
    rates |= {"g.b": 1e-3}
    groups = parameter_groups(
        named | flat, rates=rates, weight_decay=0.1, decays={"g.w": 0.3, "g.b": 0.3}
    )
    assert {n: g["weight_decay"] for g in groups for n in g["names"]} == {
        "d.w": 0.1,
        "g.w": 0.3,
        "g.b": 0.0,
    }


def test_a_run_with_both_says_its_rates_and_resumes_to_the_bit(
    small_data: Path, tmp_path: Path
) -> None:
    config = recipe(
        clip="apart",
        generator_warmup_steps=6,
        generator_weight_decay=0.2,
        warmup_steps=3,
        logging_steps=1,
        lr_scheduler_type="constant",
        save_steps=5,
        dropout=0.1,
    )
    pretrain(small_data, output_dir=tmp_path / "whole", config=config)
    rates = [
        (r["learning_rate"], r["generator_learning_rate"])
        for r in records(tmp_path / "whole", "train")
    ]
    peak = config.train.learning_rate
    assert rates[3] == pytest.approx((peak, peak / 2))
    assert rates[8] == pytest.approx((peak, peak))
    first = override(config, {"max_minutes": 1e-9})
    pretrain(small_data, output_dir=tmp_path / "broken", config=first)
    pretrain(small_data, output_dir=tmp_path / "broken", config=config, resume="auto")
    same_ending(tmp_path / "whole", tmp_path / "broken", step=12)
    together = override(config, {"clip": "together"})
    pretrain(small_data, output_dir=tmp_path / "other", config=together)
    losses = [records(tmp_path / run, "train")[-1]["generator"] for run in ("whole", "other")]
    assert losses[0] != losses[1]
