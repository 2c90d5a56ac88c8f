"""The loop in this process: gradients that do not depend on the cut, a log that says what was
trained, intervals that move no number."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from electrify import cli
from electrify.build import Vocabulary, build
from electrify.data.loader import Loader, Rows
from electrify.data.phases import phases_of
from electrify.flop_counts import recipe_flops
from electrify.objectives.objective import Step
from electrify.recipe import Recipe, load, override
from electrify.text.corpus import Corpus
from electrify.train import METRICS, log
from electrify.train import machine as machine_module
from electrify.train.dist import World
from electrify.train.loop import Run
from electrify.train.monitor import unigram_entropy
from electrify.train.start import discriminator_names
from electrify.train.state import RunContext, TrainingData
from small import (
    DROPOUT,
    SMALL,
    electrify,
    listing,
    logged_step,
    parameters_sha256,
    pretrain_words,
    records,
    run,
    same_ending,
    steps_of,
)

ALONE = World(rank=0, size=1, device=torch.device("cpu"))


def recipe(name: str = "electra-tiny", **fields: Any) -> Recipe:
    return override(load(name), SMALL | {"max_steps": 10} | fields)


def run_of(data: Path, folder: Path, config: Recipe, *, micro_rows: int | None = None) -> Run:
    """A run as `pretrain` makes it, without its folder."""
    corpus = Corpus(data, "train")
    built = build(config, Vocabulary(corpus.manifest.vocab_size, corpus.manifest.special_ids))
    rows = {"max_seq_length": config.data.max_seq_length, "num_segments": config.data.num_segments}
    loader = Loader(
        corpus,
        phases=phases_of(config),
        num_segments=config.data.num_segments,
        seed=config.train.seed,
    )
    micro_rows = micro_rows or config.train.train_batch_size
    entropy = unigram_entropy(corpus, config.corruption)
    read = TrainingData(loader, Rows(Corpus(data, "valid"), **rows), micro_rows, entropy)
    context = RunContext(ALONE, folder)
    return Run(built.objective, config, read, context, discriminator=discriminator_names(built))


def pretrain(data: Path, run: Path, **fields: Any) -> int:
    return cli.main(pretrain_words(data, run, **{"max_steps": 12, "logging_steps": 4} | fields))


def gradients(run: Run) -> dict[str, torch.Tensor]:
    """The gradient of the first update, caught between backward and the optimiser."""
    found: dict[str, torch.Tensor] = {}
    hook = run.state.optimizer.register_step_pre_hook(
        lambda *_: found.update(
            {n: p.grad.clone() for n, p in run.state.named.items() if p.grad is not None}
        )
    )
    run.update(run.batch(0))
    hook.remove()
    return found


@pytest.mark.parametrize("name", ["electra-tiny", "bert-tiny"])
@pytest.mark.parametrize("micro_rows", [1, 2, 4])
def test_gradient_of_any_cut(small_data: Path, tmp_path: Path, name: str, micro_rows: int) -> None:
    """Against sum / count of the whole batch, written out by hand. Unequal pieces (pads, numbers of
    chosen tokens) would show a mean of means."""
    config = recipe(name, train_batch_size=8, max_grad_norm=0)
    run = run_of(small_data, tmp_path, config, micro_rows=micro_rows)
    got = gradients(run)

    other = run_of(small_data, tmp_path, config)
    ((tokens, plan),) = other.batch(0)
    terms = Step(other.objective)(tokens, plan)
    sum(
        weight * terms[k].sum / terms[k].count
        for k, weight in config.objective.term_weights.items()
    ).backward()
    named = other.state.named
    assert got.keys() == {n for n, p in named.items() if p.grad is not None} == set(named)
    for n, p in named.items():
        torch.testing.assert_close(got[n], p.grad, rtol=1e-4, atol=1e-6, msg=n)


def test_clipping_and_its_figure(small_data: Path, tmp_path: Path) -> None:
    """The norm is of all parameters together; the log has it before clipping."""
    free, clipped = (
        gradients(run_of(small_data, tmp_path, recipe(max_grad_norm=limit))) for limit in (0, 0.01)
    )
    norm = math.sqrt(sum(float(g.double().square().sum()) for g in free.values()))
    assert norm > 0.02
    for name, g in free.items():
        torch.testing.assert_close(clipped[name], g * (0.01 / norm), rtol=1e-3, atol=1e-7)
    run = run_of(small_data, tmp_path, recipe(max_grad_norm=0.01))
    run.update(run.batch(0))
    assert run.state.sums.means()["grad_norm"] == pytest.approx(norm, rel=1e-5)


def test_a_line_of_the_log_is_the_mean_over_its_updates(small_data: Path, tmp_path: Path) -> None:
    """Lines of one update each, weighted by what each was divided by, give the lines of four."""
    for name, every in (("one", 1), ("four", 4)):
        assert (
            pretrain(
                small_data, tmp_path / name, recipe="bert-tiny", logging_steps=every, **DROPOUT
            )
            == 0
        )
    config = override(load("bert-tiny"), SMALL | DROPOUT)
    run = run_of(small_data, tmp_path, config)
    weights = [float(run.counts(run.batch(step))["mlm"]) for step in range(12)]
    ones, fours = records(tmp_path / "one", "train"), records(tmp_path / "four", "train")
    assert (len(ones), len(fours)) == (12, 3)
    for k, line in enumerate(fours):
        part, share = ones[4 * k : 4 * k + 4], weights[4 * k : 4 * k + 4]
        assert line["mlm"] == pytest.approx(
            sum(w * r["mlm"] for w, r in zip(share, part, strict=True)) / sum(share), rel=1e-9
        )
        assert line["grad_norm"] == pytest.approx(sum(r["grad_norm"] for r in part) / 4, rel=1e-9)
        assert line["tokens"] == part[-1]["tokens"]


def test_intervals_move_no_number(small_data: Path, tmp_path: Path) -> None:
    """Logging, validating and saving often or never: the same bytes at the end, with dropout, whose
    generator validation must not touch."""
    often = {"logging_steps": 1, "eval_steps": 2, "save_steps": 3, "save_total_limit": 1}
    seldom = {"logging_steps": 100, "eval_steps": 0, "save_steps": 100}
    for name, fields in (("often", often), ("seldom", seldom)):
        assert pretrain(small_data, tmp_path / name, **DROPOUT, **fields) == 0
    assert parameters_sha256(tmp_path / "often", 12) == parameters_sha256(tmp_path / "seldom", 12)
    assert records(tmp_path / "often", "valid")[-1] == records(tmp_path / "seldom", "valid")[-1]
    assert steps_of(tmp_path / "often") == [12]
    assert [r["step"] for r in records(tmp_path / "often", "valid")] == [2, 4, 6, 8, 10, 12]
    assert logged_step(tmp_path / "seldom") == 12


def test_the_seed_decides(small_data: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        assert (
            pretrain(
                small_data, tmp_path / name, recipe="bert-tiny", seed=seed, max_steps=3, **DROPOUT
            )
            == 0
        )
    a, b, c = (listing(tmp_path / name / "checkpoint-3")["model.safetensors"] for name in "abc")
    assert a == b != c


def test_validation_does_not_depend_on_how_it_is_cut(small_data: Path, tmp_path: Path) -> None:
    """Nor on the rows missing in its last batch (18 rows by 4), nor on the seed of the run."""
    found = []
    for name, fields in (
        ("whole", {"train_batch_size": 32}),
        ("cut", {"train_batch_size": 32, "per_device_train_batch_size": 4}),
    ):
        assert (
            pretrain(
                small_data,
                tmp_path / name,
                max_steps=1,
                eval_rows=18,
                learning_rate=1e-30,
                seed=0,
                **fields,
            )
            == 0
        )
        found.append(
            {k: v for k, v in records(tmp_path / name, "valid")[-1].items() if k != "kind"}
        )
    assert found[0] == pytest.approx(found[1], rel=1e-5, abs=1e-6)


def test_bf16_stays_close_and_repeats(small_data: Path, tmp_path: Path) -> None:
    """Autocast moves losses a little; parameters and optimiser stay float32; two runs give the same
    bytes."""
    fields = {"max_steps": 6, "logging_steps": 1}
    for folder, bf16 in (("full", False), ("a", True), ("b", True)):
        assert pretrain(small_data, tmp_path / folder, bf16=bf16, **fields) == 0
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
    for name, compiled in (("plain", False), ("compiled", True)):
        fields = {"max_steps": 6, "logging_steps": 1, "torch_compile": compiled}
        electrify(pretrain_words(small_data, tmp_path / name, **fields), tmp_path)
    plain, compiled = (records(tmp_path / name, "train") for name in ("plain", "compiled"))
    for a, b in zip(plain, compiled, strict=True):
        assert {k: v for k, v in a.items() if k != "kind"} == pytest.approx(
            {k: v for k, v in b.items() if k != "kind"}, rel=1e-4, abs=1e-5
        )
    names = [
        set(load_file(tmp_path / name / "checkpoint-6" / "model.safetensors"))
        for name in ("plain", "compiled")
    ]
    assert names[0] == names[1]


def test_rows_and_batches_that_grow(small_data: Path, tmp_path: Path) -> None:
    """Tokens, FLOPs and epochs of the log are those of the batches that the schedules ask for;
    validation has rows of the full length."""
    schedules = {"seq_length_schedule": "8=.5", "batch_size_schedule": "2=.25"}
    assert pretrain(small_data, tmp_path / "run", logging_steps=1, eval_steps=12, **schedules) == 0
    config = override(load("electra-tiny"), SMALL | {"max_steps": 12} | schedules)
    run = run_of(small_data, tmp_path, config)
    shapes = [(2, 8)] * 3 + [(4, 8)] * 3 + [(4, 16)] * 6
    tokens = flops = 0
    vocab_size = Corpus(small_data, "train").manifest.vocab_size
    one = override(config, {"seq_length_schedule": {}})
    per_token = {
        n: recipe_flops(
            override(one, {"max_seq_length": n}), vocab_size=vocab_size, convention="hardware"
        ).token
        for n in (8, 16)
    }
    for step, (r, (rows, length)) in enumerate(
        zip(records(tmp_path / "run", "train"), shapes, strict=True)
    ):
        batch = run.data.loader.batch(step)
        assert (batch.num_rows, batch.row_length) == (rows, length)
        tokens += int(batch.real_T.sum())
        flops += per_token[length] * rows * length
        assert (r["tokens"], r["flops"]) == (tokens, pytest.approx(flops))
    assert run.data.valid is not None
    assert run.data.valid.row_length == 16
    for r in (r for r in log.read(tmp_path / "run" / METRICS) if r["kind"] == "train"):
        assert r["flops_per_s"] > 0
        assert 0 < r["mfu"] < 2  # the peak is measured beside other tests


QUICK = {"max_steps": 4, "warmup_steps": 1, "save_steps": 2}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Sets whether this machine has arithmetic in bfloat16."""

    def has(able: bool) -> None:
        monkeypatch.setattr(machine_module, "supports_bf16", lambda device: able)

    return has


def words(data: Path, folder: Path, *more: str, **fields: object) -> list[str]:
    """Those of a small run that does not say in what it computes."""
    given = pretrain_words(data, folder, **QUICK | fields)
    at = given.index("--bf16")
    return [*given[:at], *given[at + 2 :], *more]


def written(folder: Path) -> bool:
    return yaml.safe_load((folder / "config.yaml").read_text())["train"]["bf16"]


def test_a_run_goes_on_as_it_began_on_another_machine(small_data, tmp_path, machine, capsys):
    """A run computes in bfloat16 where the machine can."""
    machine(True)
    assert run(*words(small_data, tmp_path / "whole")) == 0
    assert run(*words(small_data, tmp_path / "run", "--max-minutes", "1e-9")) == 75
    assert steps_of(tmp_path / "run") == [1]
    machine(False)
    capsys.readouterr()
    assert run(*words(small_data, tmp_path / "run")) == 0
    assert "emulates bfloat16" in capsys.readouterr().err
    same_ending(tmp_path / "whole", tmp_path / "run", step=4)
    assert run(*words(small_data, tmp_path / "other", max_steps=1)) == 0
    assert [written(tmp_path / name) for name in ("run", "other")] == [True, False]


@pytest.mark.parametrize(
    ("fields", "begun", "compiles"),
    [
        ({}, None, True),
        ({}, False, False),
        ({"torch_compile": False}, None, False),
        ({"torch_compile": True}, False, True),
        ({"fsdp": "full_shard"}, None, False),
    ],
)
def test_what_is_compiled_on_a_gpu(monkeypatch, fields, begun, compiles):
    """By default every run that can be, but for those that were begun without."""
    monkeypatch.setattr(machine_module, "can_compile", lambda device: device.type == "cuda")
    config = override(load("electra-tiny"), fields)
    for device, wanted in (("cuda", compiles), ("cpu", fields.get("torch_compile", False))):
        world = World(0, 1, torch.device(device))
        made = machine_module.with_compiler(config, world, begun=begun)
        assert made.train.torch_compile is wanted


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_products_of_float32_on_a_gpu_use_tf32(machine, device):
    machine(True)
    matmul = torch.backends.cuda.matmul
    assert not matmul.allow_tf32
    world = World(0, 1, torch.device(device))
    try:
        machine_module.with_precision(load("electra-tiny"), world, begun=None)
        assert matmul.allow_tf32 is (device == "cuda")
    finally:
        matmul.allow_tf32 = False
