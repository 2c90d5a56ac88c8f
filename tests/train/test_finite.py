"""Losses that are no numbers: all ranks agree before anything moves; stop, skip and rollback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from electrify import cli
from electrify.errors import UserError
from electrify.objectives.terms import Term
from electrify.train import checkpoint, log
from electrify.train.dist import World
from electrify.train.finite import Guard
from electrify.train.optim import make_optimizer
from electrify.train.state import Window
from small import pretrain_words, records, same_ending, steps_of, torchrun

ALONE = World(rank=0, size=1, local_rank=0, device=torch.device("cpu"))
SHORT: dict[str, Any] = {"max_steps": 20, "logging_steps": 1, "save_steps": 5, "eval_steps": 0}


def run(data: Path, folder: Path, **fields: Any) -> int:
    return cli.main(pretrain_words(data, folder, **SHORT | fields))


@pytest.mark.parametrize("kind", ["electra_adam", "adamw"])
def test_the_optimiser_obeys_the_verdict(kind: str) -> None:
    p = torch.nn.Parameter(torch.ones(3))
    optimizer = make_optimizer(kind, [{"params": [p], "lr": 0.1, "weight_decay": 0.1}], betas=(0.9, 0.999), eps=1e-6)
    guard = Guard("skip", 9, ALONE)
    for value in (1.0, float("nan"), 1.0, float("inf")):
        before = p.detach().clone(), {k: v.clone() for k, v in optimizer.state[p].items()}
        p.grad = torch.full((3,), value)
        optimizer.found_inf = guard.judge(1, p.grad.sum())  # type: ignore[attr-defined]
        optimizer.step()
        same = torch.equal(p, before[0])
        assert same == (value != 1.0)
        if same:
            assert all(torch.equal(v, before[1][k]) for k, v in optimizer.state[p].items() if k != "step")
    assert guard.settle() == [1, 1]
    assert guard.settle() == []
    assert guard.refused == 2


def test_the_sums_of_a_refused_update_are_nowhere() -> None:
    window, found = Window(ALONE.device), Window(ALONE.device)
    found.add({"loss": Term(torch.tensor(float("nan")), torch.tensor(3.0)), "fine": Term(torch.tensor(2.0), torch.tensor(1.0))})
    window.merge(found, unless=torch.tensor(1.0))
    assert window.means() == {}
    found = Window(ALONE.device)
    found.add({"loss": Term(torch.tensor(6.0), torch.tensor(3.0))})
    window.merge(found, unless=torch.tensor(0.0))
    assert window.means() == {"loss": 2.0}


def test_a_budget() -> None:
    guard = Guard("skip", 1, ALONE)
    guard.judge(4, torch.tensor(float("inf")), torch.tensor(1.0))
    assert guard.settle() == [4]
    guard.judge(9, torch.tensor(1.0))
    guard.judge(10, torch.tensor(float("nan")))
    with pytest.raises(UserError, match=r"update 10 is not finite, nor was that of 1 updates before it, and --max-non-finite allows 1"):
        guard.settle()


def test_stop(small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ELECTRIFY_FAULT_AT", "nan:batch@8")
    assert run(small_data, tmp_path / "run") == 2
    err = capsys.readouterr().err
    assert "the loss or gradient of update 8 is not finite" in err
    assert "the same command with --non-finite skip goes on" in err
    assert steps_of(tmp_path / "run") == [5]
    assert run(small_data, tmp_path / "run", non_finite="skip") == 0, "as the message says"
    assert [r["step"] for r in records(tmp_path / "run", "train") if "generator" not in r] == [8]


def test_skip(small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Update 8 moves nothing, its rows are written down, and a run that is resumed behind it ends with the same bytes."""
    monkeypatch.setenv("ELECTRIFY_FAULT_AT", "nan:batch@8,nan:batch@13")
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert run(small_data, whole, non_finite="skip") == 0
    assert "warning: the loss or gradient of update 8 is not finite: left out (1 so far, 10 allowed)" in capsys.readouterr().err
    events = [r for r in log.read(whole / "metrics.jsonl") if r["kind"] == "event"]
    assert [(e["step"], len(e["rows"])) for e in events if "rows" in e] == [(8, 4), (13, 4)]
    assert [r["step"] for r in records(whole, "train") if "generator" not in r] == [8, 13], "nothing of a refused update is in the log"
    assert steps_of(whole)[-1] == 20
    assert run(small_data, broken, non_finite="skip", max_minutes=1e-9) == 75
    assert steps_of(broken) == [1]
    assert run(small_data, broken, non_finite="skip") == 0
    same_ending(whole, broken, step=20)
    assert checkpoint.load(broken / "checkpoint-20")[1]["refused"] == 2
    monkeypatch.setenv("ELECTRIFY_FAULT_AT", "nan:batch")
    assert run(small_data, tmp_path / "dead", non_finite="skip", max_non_finite=3) == 2
    assert "nor was that of 3 updates before it" in capsys.readouterr().err


def test_rollback(small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """From update 8 back to the checkpoint of 5 and on with the ninth batch; the log has every update once."""
    went = tmp_path / "went"
    monkeypatch.setenv("ELECTRIFY_FAULT_AT", "nan:batch@8")
    assert run(small_data, went, non_finite="rollback") == 0
    err = capsys.readouterr().err
    assert "went back from update 8 to the checkpoint of 5; the batches between them are left out" in err
    assert [r["step"] for r in records(went, "train")] == list(range(1, 21))
    state = checkpoint.load(went / "checkpoint-20")[1]
    assert (state["left_out"], state["refused"]) == (3, 1)
    monkeypatch.setenv("ELECTRIFY_FAULT_AT", "nan:batch@2")
    assert run(small_data, tmp_path / "early", non_finite="rollback") == 2
    assert "there is no checkpoint yet to go back to" in capsys.readouterr().err


def test_rollback_is_as_if_the_batches_had_never_been(small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes as a run of ordinary updates from the checkpoint's, over the batches behind."""
    from electrify.train.loop import Run

    went, plain = tmp_path / "went", tmp_path / "plain"
    monkeypatch.setenv("ELECTRIFY_FAULT_AT", "nan:batch@8")
    assert run(small_data, went, non_finite="rollback", max_minutes=1e-9) == 75, "stopped after its first update"
    assert run(small_data, went, non_finite="rollback") == 0
    monkeypatch.delenv("ELECTRIFY_FAULT_AT")
    batch = Run.batch

    def behind(self: Run, step: int) -> Any:
        self.left_out = 3 if step >= 5 else 0
        return batch(self, step)

    update = Run.update

    def numbered(self: Run, b: Any) -> None:
        self.left_out = 3 if self.step >= 5 else 0  # the batches were made ahead
        update(self, b)

    monkeypatch.setattr(Run, "batch", behind)
    monkeypatch.setattr(Run, "update", numbered)
    assert run(small_data, plain) == 0
    ours, theirs = (checkpoint.load(folder / "checkpoint-20")[0] for folder in (went, plain))
    for group in ours:
        assert all(torch.equal(t, theirs[group][n]) for n, t in ours[group].items())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("policy", ["stop", "skip", "rollback"])
def test_one_rank_of_two(small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    monkeypatch.setenv("ELECTRIFY_FAULT_AT", "nan:batch@8%1")
    done = torchrun(pretrain_words(small_data, tmp_path / "run", **SHORT, non_finite=policy), tmp_path).end()
    if policy == "stop":
        assert "the loss or gradient of update 8 is not finite" in done.err
        assert steps_of(tmp_path / "run") == [5]
    else:
        assert done.status == 0, done.err
        assert done.err.count("update 8 is not finite: left out") == 1
        assert steps_of(tmp_path / "run")[-1] == 20
