"""The loop in this process: gradients that do not depend on the cut, a log that says what was
trained, intervals that move no number."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from running import CPU, recipe, run_of
from safetensors.torch import load_file

from electrify import cli
from electrify.flop_counts import recipe_flops
from electrify.objectives.objective import Step
from electrify.recipe import load, override
from electrify.text.corpus import Corpus
from electrify.train import METRICS, log
from electrify.train import machine as machine_module
from electrify.train.dist import World
from small import (
    DROPOUT,
    electrify,
    logged_step,
    parameters_sha256,
    pretrain_words,
    records,
    run,
    same_ending,
    steps_of,
)


def pretrain(data: Path, run: Path, **fields: Any) -> None:
    given = {"max_steps": 12, "logging_steps": 4} | fields
    assert cli.main(pretrain_words(data, run, **given)) == 0


def gradients(data: Path, folder: Path, *, micro_rows: int | None = None, **fields: Any) -> Any:
    """The run after its first update, and the gradients of that, caught between backward and the
    optimiser."""
    run = run_of(data, folder, recipe(**fields), micro_rows=micro_rows)
    found: dict[str, torch.Tensor] = {}
    named = run.state.named.items()
    run.state.optimizer.register_step_pre_hook(
        lambda *_: found.update({n: p.grad.clone() for n, p in named if p.grad is not None})
    )
    run.update(run.batch(0))
    return run, found


@pytest.mark.parametrize("name", ["electra-tiny", "bert-tiny"])
@pytest.mark.parametrize("micro_rows", [1, 2, 4])
def test_gradient_of_any_cut(small_data: Path, tmp_path: Path, name: str, micro_rows: int) -> None:
    """Against sum / count of the whole batch, written out by hand. Unequal pieces (pads, numbers of
    chosen tokens) would show a mean of means."""
    fields = {"train_batch_size": 8, "max_grad_norm": 0}
    _, got = gradients(small_data, tmp_path, name=name, micro_rows=micro_rows, **fields)
    other = run_of(small_data, tmp_path, recipe(name, **fields))
    ((tokens, plan),) = other.batch(0)
    terms = Step(other.objective)(tokens, plan)
    sum(w * terms[k].sum / terms[k].count for k, w in other.weights.items()).backward()
    named = other.state.named
    assert got.keys() == {n for n, p in named.items() if p.grad is not None} == set(named)
    for n, p in named.items():
        torch.testing.assert_close(got[n], p.grad, rtol=1e-4, atol=1e-6, msg=n)


def test_clipping_and_its_figure(small_data: Path, tmp_path: Path) -> None:
    """The norm is of all parameters together; the log has it before clipping."""
    _, free = gradients(small_data, tmp_path, max_grad_norm=0)
    run, clipped = gradients(small_data, tmp_path, max_grad_norm=0.01)
    norm = math.sqrt(sum(float(g.double().square().sum()) for g in free.values()))
    assert norm > 0.02
    for name, g in free.items():
        torch.testing.assert_close(clipped[name], g * (0.01 / norm), rtol=1e-3, atol=1e-7)
    assert run.state.sums.means()["grad_norm"] == pytest.approx(norm, rel=1e-5)


def test_a_line_of_the_log_is_the_mean_over_its_updates(small_data: Path, tmp_path: Path) -> None:
    """Lines of one update each, weighted by what each was divided by, give the lines of four."""
    for name, every in (("one", 1), ("four", 4)):
        fields = DROPOUT | {"recipe": "bert-tiny", "logging_steps": every}
        pretrain(small_data, tmp_path / name, **fields)
    run = run_of(small_data, tmp_path, recipe("bert-tiny", **DROPOUT))
    weights = [float(run.counts(run.batch(step))["mlm"]) for step in range(12)]
    ones, fours = records(tmp_path / "one", "train"), records(tmp_path / "four", "train")
    assert (len(ones), len(fours)) == (12, 3)
    for k, line in enumerate(fours):
        part, share = ones[4 * k : 4 * k + 4], weights[4 * k : 4 * k + 4]
        mean = sum(w * r["mlm"] for w, r in zip(share, part, strict=True)) / sum(share)
        assert line["mlm"] == pytest.approx(mean, rel=1e-9)
        assert line["grad_norm"] == pytest.approx(sum(r["grad_norm"] for r in part) / 4, rel=1e-9)
        assert line["tokens"] == part[-1]["tokens"]


def test_intervals_move_no_number(small_data: Path, tmp_path: Path) -> None:
    """Logging, validating and saving often or never: the same bytes at the end, with dropout, whose
    generator validation must not touch. With another seed: others."""
    often = {"logging_steps": 1, "eval_steps": 2, "save_steps": 3, "save_total_limit": 1}
    seldom = {"logging_steps": 100, "eval_steps": 0, "save_steps": 100}
    for name, fields in {"often": often, "seldom": seldom, "other": seldom | {"seed": 1}}.items():
        pretrain(small_data, tmp_path / name, **DROPOUT, **fields)
    one, two, other = (parameters_sha256(tmp_path / n, 12) for n in ("often", "seldom", "other"))
    assert one == two != other
    assert records(tmp_path / "often", "valid")[-1] == records(tmp_path / "seldom", "valid")[-1]
    assert steps_of(tmp_path / "often") == [12]
    assert [r["step"] for r in records(tmp_path / "often", "valid")] == [2, 4, 6, 8, 10, 12]
    assert logged_step(tmp_path / "seldom") == 12


def test_validation_does_not_depend_on_how_it_is_cut(small_data: Path, tmp_path: Path) -> None:
    """Nor on the rows missing in its last batch (18 rows by 4)."""
    fields = {"max_steps": 1, "eval_rows": 18, "learning_rate": 1e-30, "train_batch_size": 32}
    found = []
    for name, cut in (("whole", {}), ("cut", {"per_device_train_batch_size": 4})):
        pretrain(small_data, tmp_path / name, **fields, **cut)
        (record,) = records(tmp_path / name, "valid")
        found.append({k: v for k, v in record.items() if k != "kind"})
    assert found[0] == pytest.approx(found[1], rel=1e-5, abs=1e-6)


def test_bf16_stays_close_and_repeats(small_data: Path, tmp_path: Path) -> None:
    """Autocast moves losses a little; parameters and optimiser stay float32; two runs give the same
    bytes."""
    for folder, bf16 in (("full", False), ("a", True), ("b", True)):
        pretrain(small_data, tmp_path / folder, bf16=bf16, max_steps=6, logging_steps=1)
    assert parameters_sha256(tmp_path / "a", 6) == parameters_sha256(tmp_path / "b", 6)
    tensors = load_file(tmp_path / "a" / "checkpoint-6" / "model.safetensors")
    assert {t.dtype for t in tensors.values()} == {torch.float32}
    full, half = (
        [r["generator"] for r in records(tmp_path / name, "train")] for name in ("full", "a")
    )
    assert half == pytest.approx(full, rel=0.02)
    assert half != full


@pytest.mark.slow
def test_torch_compile(small_data: Path, tmp_path: Path) -> None:
    """The same numbers but for rounding, and the same names in the checkpoint. In processes, for
    the compiler warns of its own doings."""
    lines, names = [], []
    for name, compiled in (("plain", False), ("compiled", True)):
        fields = {"max_steps": 6, "logging_steps": 1, "torch_compile": compiled}
        electrify(pretrain_words(small_data, tmp_path / name, **fields), tmp_path)
        found = records(tmp_path / name, "train")
        lines.append([{k: v for k, v in r.items() if k != "kind"} for r in found])
        names.append({*load_file(tmp_path / name / "checkpoint-6" / "model.safetensors")})
    for plain, compiled in zip(*lines, strict=True):
        assert plain == pytest.approx(compiled, rel=1e-4, abs=1e-5)
    assert names[0] == names[1]


def test_rows_and_batches_that_grow(small_data: Path, tmp_path: Path) -> None:
    """Tokens, FLOPs and epochs of the log are those of the batches that the schedules ask for;
    validation has rows of the full length."""
    schedules = {"seq_length_schedule": "8=.5", "batch_size_schedule": "2=.25"}
    pretrain(small_data, tmp_path / "run", logging_steps=1, eval_steps=12, **schedules)
    config = recipe(**schedules)
    run = run_of(small_data, tmp_path, config)
    shapes = [(2, 8)] * 3 + [(4, 8)] * 3 + [(4, 16)] * 6
    tokens = flops = epochs = 0
    size = Corpus(small_data, "train").manifest.vocab_size
    one = override(config, {"seq_length_schedule": {}})
    per_token = {
        n: recipe_flops(
            override(one, {"max_seq_length": n}), vocab_size=size, convention="hardware"
        ).token
        for n in (8, 16)
    }
    logged = [r for r in log.read(tmp_path / "run" / METRICS) if r["kind"] == "train"]
    for step, (r, (rows, length)) in enumerate(zip(logged, shapes, strict=True)):
        batch = run.data.loader.batch(step)
        assert (batch.num_rows, batch.row_length) == (rows, length)
        tokens += int(batch.real_T.sum())
        flops += per_token[length] * rows * length
        epochs += rows / run.data.loader.streams[length].num_rows
        assert (r["tokens"], r["flops"]) == (tokens, pytest.approx(flops))
        assert r["epoch"] == pytest.approx(epochs)
        assert r["flops_per_s"] > 0
        assert 0 < r["mfu"] < 2  # the peak is measured beside other tests
    assert run.data.valid is not None
    assert run.data.valid.row_length == 16


# ------------------------------------------------------------------ what the machine can do


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Sets whether this machine has arithmetic in bfloat16."""

    def has(able: bool) -> None:
        monkeypatch.setattr(machine_module, "supports_bf16", lambda device: able)

    return has


def test_a_run_goes_on_as_it_began_on_another_machine(small_data, tmp_path, machine, capsys):
    """A run computes in bfloat16 where the machine can."""

    def words(folder: str, **fields: object) -> list[str]:
        """Those of a small run that does not say in what it computes."""
        quick = {"max_steps": 4, "warmup_steps": 1, "save_steps": 2}
        given = pretrain_words(small_data, tmp_path / folder, **quick | fields)
        at = given.index("--bf16")
        return [*given[:at], *given[at + 2 :]]

    machine(True)
    assert run(*words("whole")) == 0
    assert run(*words("run", max_minutes=1e-9)) == 75
    assert steps_of(tmp_path / "run") == [1]
    machine(False)
    capsys.readouterr()
    assert run(*words("run")) == 0
    assert "emulates bfloat16" in capsys.readouterr().err
    same_ending(tmp_path / "whole", tmp_path / "run", step=4)
    assert run(*words("other", max_steps=1)) == 0
    for name, bf16 in (("run", True), ("other", False)):
        config = yaml.safe_load((tmp_path / name / "config.yaml").read_text())
        assert config["train"]["bf16"] is bf16


@pytest.mark.parametrize(
    ("fields", "begun", "compiles"),
    [
        ({}, {}, True),
        ({}, {"torch_compile": False}, False),
        ({"torch_compile": False}, {}, False),
        ({"torch_compile": True}, {"torch_compile": False}, True),
        ({"fsdp": "full_shard"}, {}, False),
    ],
)
def test_what_is_compiled_on_a_gpu(machine, monkeypatch, fields, begun, compiles):
    """By default every run that can be, but for those that were begun without. Products of float32
    use TF32 there, and only there."""
    machine(True)
    monkeypatch.setattr(machine_module, "can_compile", lambda device: device.type == "cuda")
    config, by_default = override(load("electra-tiny"), fields), fields.get("torch_compile", False)
    matmul = torch.backends.cuda.matmul
    try:
        for device, wanted in ((CPU, by_default), (torch.device("cuda"), compiles)):
            made = machine_module.with_machine(config, World(0, 1, device), begun)
            assert made.train.torch_compile is wanted
            assert matmul.allow_tf32 is (device.type == "cuda")
    finally:
        matmul.allow_tf32 = False
