"""Losses that are not numbers, and spikes: all ranks agree before anything moves; stop, warn, skip
and rollback."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from spoiled import spoil

from electrify import cli
from electrify.errors import UserError
from electrify.recipe import load
from electrify.train import checkpoint, guard, log
from electrify.train.dist import World
from electrify.train.guard import ENOUGH, Guard
from electrify.train.optim import make_optimizer
from small import pretrain_words, records, same_ending, steps_of

ALONE = World(rank=0, size=1, device=torch.device("cpu"))
SHORT: dict[str, Any] = {"max_steps": 20, "logging_steps": 1, "save_steps": 5, "eval_steps": 0}


def guard_of(**fields: Any) -> Guard:
    return Guard(replace(load("electra-tiny").train, **fields), ALONE)


def judged(guard: Guard, step: int, loss: torch.Tensor, norm: torch.Tensor) -> torch.Tensor:
    refused, figures = guard.judge(loss, norm)
    guard.remember(step, figures)
    return refused


def run(data: Path, folder: Path, **fields: Any) -> int:
    return cli.main(pretrain_words(data, folder, **SHORT | fields))


@pytest.mark.parametrize("kind", ["electra_adam", "adamw"])
def test_the_optimiser_obeys_the_verdict(kind: str) -> None:
    p = torch.nn.Parameter(torch.ones(3))
    optimizer = make_optimizer(
        kind, [{"params": [p], "lr": 0.1, "weight_decay": 0.1}], betas=(0.9, 0.999), eps=1e-6
    )
    guard = guard_of(non_finite="skip")
    for value in (1.0, float("nan"), 1.0, float("inf")):
        before = p.detach().clone(), {k: v.clone() for k, v in optimizer.state[p].items()}
        p.grad = torch.full((3,), value)
        optimizer.found_inf = judged(guard, 1, p.grad.sum(), torch.ones(()))  # type: ignore[attr-defined]
        optimizer.step()
        same = torch.equal(p, before[0])
        assert same == (value != 1.0)
        if same:
            assert all(
                torch.equal(v, before[1][k]) for k, v in optimizer.state[p].items() if k != "step"
            )
    assert [(v.step, v.kind, v.refused) for v in guard.settle()] == [(1, "non_finite", True)] * 2
    assert guard.settle() == []
    assert guard.refused == {"non_finite": 2, "spike": 0}


def test_stop(small_data, tmp_path, monkeypatch, capsys):
    spoil(monkeypatch, {8: math.nan})
    assert run(small_data, tmp_path / "run") == 2
    err = capsys.readouterr().err
    assert "the loss or gradient of update 8 is not finite" in err
    assert "the same command with --non-finite skip goes on" in err
    assert steps_of(tmp_path / "run") == [5]
    assert run(small_data, tmp_path / "run", non_finite="skip") == 0, "as the message says"
    assert [r["step"] for r in records(tmp_path / "run", "train") if "generator" not in r] == [8]


def test_skip(small_data, tmp_path, monkeypatch, capsys):
    """Update 8 moves nothing, its rows are written down, and a run that is resumed behind it ends
    with the same bytes."""
    spoil(monkeypatch, {8: math.nan, 13: math.nan})
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert run(small_data, whole, non_finite="skip") == 0
    assert (
        "warning: the loss or gradient of update 8 is not finite: left out (1 so far, 10 allowed)"
        in capsys.readouterr().err
    )
    events = [r for r in log.read(whole / "metrics.jsonl") if r["kind"] == "event"]
    assert [(e["step"], len(e["rows"])) for e in events if "rows" in e] == [(8, 4), (13, 4)]
    assert [r["step"] for r in records(whole, "train") if "generator" not in r] == [8, 13], (
        "nothing of a refused update is in the log"
    )
    assert steps_of(whole)[-1] == 20
    assert run(small_data, broken, non_finite="skip", max_minutes=1e-9) == 75
    assert steps_of(broken) == [1]
    assert run(small_data, broken, non_finite="skip") == 0
    same_ending(whole, broken, step=20)
    assert checkpoint.load(broken / "checkpoint-20")[1]["guard"]["refused"] == {
        "non_finite": 2,
        "spike": 0,
    }
    spoil(monkeypatch, {}, other=math.nan)
    assert run(small_data, tmp_path / "dead", non_finite="skip", max_non_finite=3) == 2
    assert "3 updates before it were left out" in capsys.readouterr().err


def test_rollback(small_data, tmp_path, monkeypatch, capsys):
    """From update 8 back to the checkpoint of 5 and on with the ninth batch; the log has every
    update once."""
    went = tmp_path / "went"
    spoil(monkeypatch, {8: math.nan})
    assert run(small_data, went, non_finite="rollback") == 0
    err = capsys.readouterr().err
    assert (
        "went back from update 8 to the checkpoint of 5; the batches between them are left out"
        in err
    )
    assert [r["step"] for r in records(went, "train")] == list(range(1, 21))
    state = checkpoint.load(went / "checkpoint-20")[1]
    assert (state["left_out"], state["guard"]["refused"]["non_finite"]) == (3, 1)
    spoil(monkeypatch, {2: math.nan})
    assert run(small_data, tmp_path / "early", non_finite="rollback") == 2
    assert "there is no checkpoint yet to go back to" in capsys.readouterr().err


def fed(guard: Guard, losses: list[float]) -> list[bool]:
    """Which of them are refused."""
    return [
        bool(judged(guard, step, torch.tensor(loss), torch.ones(())))
        for step, loss in enumerate(losses, start=1)
    ]


LEVEL = (
    [9.9, 10.1] * (ENOUGH // 2)
    # By hand: mean 10, deviation sqrt(64 * .01 / 63) = .1008, so a spike begins at 10 + 6 * .1008 =
    # 10.6047.
)


@pytest.mark.parametrize(
    ("loss", "spike"), [(10.60, False), (10.61, True), (0.0, False), (1e30, True)]
)
def test_where_a_spike_begins(loss: float, spike: bool) -> None:
    guard = guard_of(spike="skip")
    assert not any(fed(guard, LEVEL))
    assert fed(guard, [loss]) == [spike]
    assert not any(fed(guard_of(spike="skip"), [*LEVEL[1:], loss])), "fewer than enough"
    assert not any(fed(guard_of(), [*LEVEL, loss])), "trained on"


LONG: dict[str, Any] = SHORT | {"max_steps": 16, "save_total_limit": 3}


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten losses are enough."""
    monkeypatch.setattr(guard, "ENOUGH", 10)


def test_a_run_that_skips_a_spike(small_data, tmp_path, monkeypatch, capsys, soon):
    """Its rows are written down. Stopped before it and continued ends with the same bytes: what a
    spike is compared with is in the checkpoint."""
    spoil(monkeypatch, {12: 100.0})
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert run(small_data, whole, **LONG, spike="skip") == 0
    assert "deviations above the " in capsys.readouterr().err
    (event,) = (r for r in log.read(whole / "metrics.jsonl") if "rows" in r)
    assert (event["step"], len(event["rows"])) == (12, 4)
    assert "left out (1 so far, 10 allowed)" in event["warning"]
    assert [r["step"] for r in records(whole, "train") if "generator" not in r] == [12]
    assert run(small_data, broken, **LONG, spike="skip", max_minutes=1e-9) == 75
    assert run(small_data, broken, **LONG, spike="skip") == 0
    same_ending(whole, broken, step=16)


@pytest.mark.parametrize("policy", ["warn", "rollback"])
def test_a_run_at_a_spike(small_data, tmp_path, monkeypatch, soon, policy):
    spoil(monkeypatch, {12: 100.0})
    assert run(small_data, tmp_path / "run", **LONG, spike=policy) == 0
    assert [r["step"] for r in records(tmp_path / "run", "train")] == list(range(1, 17))
    said = [
        r["warning"]
        for r in log.read(tmp_path / "run" / "metrics.jsonl")
        if r["kind"] == "event" and "update" in r["warning"]
    ]
    state = checkpoint.load(tmp_path / "run" / "checkpoint-16")[1]
    if policy == "warn":
        assert ["trained on; --spike skip" in text for text in said] == [True]
        assert (state["left_out"], state["guard"]["refused"]["spike"]) == (0, 0)
    else:
        assert [
            "left out (1 so far" in said[0],
            "went back from update 12 to the checkpoint of 10" in said[1],
        ] == [True, True]
        assert (state["left_out"], state["guard"]["refused"]["spike"]) == (2, 1)


def test_a_budget() -> None:
    guard = guard_of(non_finite="skip", max_non_finite=1)
    one = torch.ones(())
    judged(guard, 4, torch.tensor(float("inf")), torch.tensor(1.0))
    assert [v.step for v in guard.settle()] == [4]
    judged(guard, 9, one, one)
    judged(guard, 10, one, torch.tensor(float("nan")))
    with pytest.raises(
        UserError,
        match=(
            r"update 10 is not finite; 1 updates before it were left out, and --max-non-finite "
            r"allows 1"
        ),
    ):
        guard.settle()
