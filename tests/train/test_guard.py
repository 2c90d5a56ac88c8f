"""Losses that are not numbers, and spikes: all ranks agree before anything moves; stop, warn, skip
and rollback."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from running import ALONE
from spoiled import spoil

from electrify import cli
from electrify.errors import UserError
from electrify.recipe import load
from electrify.train import METRICS, checkpoint, guard, log
from electrify.train.guard import ENOUGH, Guard
from electrify.train.optim import make_optimizer
from small import pretrain_words, records, same_ending, steps_of

SHORT: dict[str, Any] = {"max_steps": 20, "logging_steps": 1, "save_steps": 5, "eval_steps": 0}
LONG: dict[str, Any] = {"max_steps": 16, "save_total_limit": 3}


def guard_of(**fields: Any) -> Guard:
    return Guard(replace(load("electra-tiny").train, **fields), ALONE)


def judged(guard: Guard, step: int, loss: torch.Tensor, norm: torch.Tensor) -> torch.Tensor:
    refused, figures = guard.judge(loss, norm)
    guard.remember(step, figures)
    return refused


def run(data: Path, folder: Path, **fields: Any) -> int:
    return cli.main(pretrain_words(data, folder, **SHORT | fields))


def left_out(folder: Path) -> list[int]:
    """The updates of which nothing is in the log."""
    return [r["step"] for r in records(folder, "train") if "generator" not in r]


def events(folder: Path) -> list[dict[str, Any]]:
    return [r for r in log.read(folder / METRICS) if r["kind"] == "event"]


def state_of(folder: Path, step: int) -> tuple[int, dict[str, int]]:
    """The batches left out and the updates refused, as the checkpoint has them."""
    state = checkpoint.load(folder / f"checkpoint-{step}")[1]
    return state["left_out"], state["guard"]["refused"]


@pytest.mark.parametrize("kind", ["electra_adam", "adamw", "muon"])
def test_the_optimiser_obeys_the_verdict(kind: str) -> None:
    p = torch.nn.Parameter(torch.eye(3))
    group: dict[str, Any] = {"params": [p], "lr": 0.1, "weight_decay": 0.1, "stacked": 1}
    optimizer: Any = make_optimizer(kind, [group], betas=(0.9, 0.999), eps=1e-6)
    guard = guard_of(non_finite="skip")
    for value in (1.0, math.nan, 1.0, math.inf):
        before = p.detach().clone(), {k: v.clone() for k, v in optimizer.state[p].items()}
        p.grad = torch.full((3, 3), value)
        optimizer.found_inf = judged(guard, 1, p.grad.sum(), torch.ones(()))
        optimizer.step()
        same = torch.equal(p, before[0])
        assert same == (value != 1.0)
        state = {k: v for k, v in optimizer.state[p].items() if k != "step"}
        assert not same or all(torch.equal(v, before[1][k]) for k, v in state.items())
    assert [(v.step, v.kind, v.refused) for v in guard.settle()] == [(1, "non_finite", True)] * 2
    assert guard.settle() == []
    assert guard.refused == {"non_finite": 2, "spike": 0}


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten losses are enough for a spike."""
    monkeypatch.setattr(guard, "ENOUGH", 10)


@pytest.mark.parametrize(
    ("fields", "factors", "says"),
    [
        ({"non_finite": "skip"}, {8: math.nan, 13: math.nan}, "update 8 is not finite: left out "),
        ({"spike": "skip"} | LONG, {12: 100.0}, "deviations above the "),
    ],
)
def test_skip(small_data, tmp_path, monkeypatch, capsys, soon, fields, factors, says):
    """Such updates move nothing, and their rows are written down. A run that is stopped before them
    and resumed ends with the same bytes: what a spike is compared with is in the checkpoint."""
    spoil(monkeypatch, factors)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    steps, kind = (SHORT | fields)["max_steps"], "spike" if "spike" in fields else "non_finite"
    assert run(small_data, whole, **fields) == 0
    assert says in capsys.readouterr().err
    found = [e for e in events(whole) if "rows" in e]
    assert [(e["step"], len(e["rows"])) for e in found] == [(step, 4) for step in factors]
    assert "left out (1 so far, 10 allowed)" in found[0]["warning"]
    assert left_out(whole) == [*factors]
    assert run(small_data, broken, **fields, max_minutes=1e-9) == 75
    assert steps_of(broken) == [1]
    assert run(small_data, broken, **fields) == 0
    same_ending(whole, broken, step=steps)
    assert state_of(broken, steps)[1][kind] == len(factors)


def test_rollback(small_data, tmp_path, monkeypatch, capsys):
    """From update 8 back to the checkpoint of 5 and on with the ninth batch; the log has every
    update once. A first checkpoint must be there."""
    went = tmp_path / "went"
    spoil(monkeypatch, {8: math.nan})
    assert run(small_data, went, non_finite="rollback") == 0
    said = "went back from update 8 to the checkpoint of 5; the batches between them are left out"
    assert said in capsys.readouterr().err
    assert [r["step"] for r in records(went, "train")] == list(range(1, 21))
    assert state_of(went, 20) == (3, {"non_finite": 1, "spike": 0})
    spoil(monkeypatch, {2: math.nan})
    assert run(small_data, tmp_path / "early", non_finite="rollback") == 2
    assert "there is no checkpoint yet to go back to" in capsys.readouterr().err


@pytest.mark.parametrize("policy", ["warn", "rollback"])
def test_a_run_at_a_spike(small_data, tmp_path, monkeypatch, soon, policy):
    spoil(monkeypatch, {12: 100.0})
    assert run(small_data, tmp_path / "run", **LONG, spike=policy) == 0
    assert [r["step"] for r in records(tmp_path / "run", "train")] == list(range(1, 17))
    said = [e["warning"] for e in events(tmp_path / "run") if "update" in e["warning"]]
    state = state_of(tmp_path / "run", 16)
    if policy == "warn":
        (text,) = said
        assert "trained on; spike=skip" in text
        assert state == (0, {"non_finite": 0, "spike": 0})
    else:
        assert "left out (1 so far" in said[0]
        assert "went back from update 12 to the checkpoint of 10" in said[1]
        assert state == (2, {"non_finite": 0, "spike": 1})


# By hand: mean 10, deviation sqrt(64 * .01 / 63) = .1008, so a spike begins at 10 + 6 * .1008 =
# 10.6047.
LEVEL = [9.9, 10.1] * (ENOUGH // 2)


@pytest.mark.parametrize(
    ("loss", "spike"), [(10.60, False), (10.61, True), (0.0, False), (1e30, True)]
)
def test_where_a_spike_begins(loss: float, spike: bool) -> None:
    def refused(policy: str, losses: list[float]) -> list[bool]:
        guard = guard_of(spike=policy)
        return [bool(judged(guard, 1, torch.tensor(one), torch.ones(()))) for one in losses]

    assert refused("skip", [*LEVEL, loss]) == [False] * ENOUGH + [spike]
    assert not any(refused("skip", [*LEVEL[1:], loss])), "fewer than enough"
    assert not any(refused("warn", [*LEVEL, loss])), "trained on"


def test_a_budget() -> None:
    guard, one = guard_of(non_finite="skip", max_non_finite=1), torch.ones(())
    judged(guard, 4, torch.tensor(math.inf), one)
    assert [v.step for v in guard.settle()] == [4]
    judged(guard, 9, one, one)
    judged(guard, 10, one, torch.tensor(math.nan))
    with pytest.raises(UserError, match=r"update 10 is .*, and max_non_finite allows 1"):
        guard.settle()
