"""Every shipped recipe is possible, builds and takes a step. The paper's sizes keep their widths'
ratios, with one layer and a small vocabulary."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

import pytest
import torch

from batches import VOCABULARY, counts_of, draws_of, terms_of, text_batch
from electrify import demo
from electrify.build import build
from electrify.recipe import load, names, override
from electrify.rules import cautions, check
from electrify.terms import weighted
from electrify.train.optim import make_optimizer, parameter_groups

NAMES = names()


def text(name: str) -> str:
    return (resources.files("electrify") / "recipes" / f"{name}.yaml").read_text(encoding="utf-8")


STUDY = [
    "electra",
    "bert",
    "electra-15",
    "replace-mlm",
    "all-tokens-mlm",
    "corrective",
    "two-stage",
    "adversarial",
    "electric",
    "unigram",
    "uniform",
]


def test_every_system_of_the_study_has_its_recipes() -> None:
    assert {f"{o}-{s}" for o in STUDY for s in ("tiny", "small", "base", "large")} <= set(NAMES)
    assert {f"teams-{s}" for s in ("tiny", "mini", "small", "base")} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_header(name: str) -> None:
    """A comment that says: what, command, hardware, expected score, source."""
    lines = text(name).splitlines()
    assert lines[0].startswith(f"# {name}: ")
    keys = [m.group(1) for line in lines[1:] if (m := re.match(r"# (\w+): +\S", line))]
    assert keys == ["command", "hardware", "expect", "source"]
    assert f"--recipe {name} " in text(name)


@pytest.mark.parametrize("name", NAMES)
def test_possible(name: str) -> None:
    check(load(name))


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("fast-electra")])
def test_a_generator_that_exists_as_the_header_says(name: str) -> None:
    words = re.search(r"--init-generator FOLDER [^.]*", text(name))
    assert words
    flags = words[0].split()
    given: dict[str, Any] = {
        f.removeprefix("--").replace("-", "_"): v
        for f, v in zip(flags[::2], flags[1::2], strict=True)
    }
    check(override(load(name), given | {"generator_steps": int(given["generator_steps"])}))


def step_costs_seconds(name: str) -> bool:
    """Whether a recipe is as wide as base or wider, and not one of the two that most others are
    like."""
    return not name.endswith(("-tiny", "-mini", "-small", "-small-pp")) and name not in (
        "bert-base",
        "electra-base",
    )


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * step_costs_seconds(n)) for n in NAMES],
)
def test_builds_and_takes_a_step(name: str) -> None:
    """Every parameter that is not frozen gets a finite gradient and one update of the recipe's own
    optimiser; the loss of the same batch falls (where the generator is paid for raising the
    discriminator's, it need not)."""
    fields = {"num_hidden_layers": 1, "max_seq_length": 32}
    fields |= {"dropout": 0.0, "attention_dropout": 0.0}
    if load(name).model.tie == "lower":
        fields |= {"num_hidden_layers": 2, "generator_num_hidden_layers": 2, "tie_layers": 1}
    config = override(load(name), fields)
    objective: Any = build(config, VOCABULARY).objective
    tokens = text_batch(seed=0, rows=2, row_length=32)
    named = dict(objective.named_parameters())
    t = config.train
    groups = parameter_groups(named, rates=dict.fromkeys(named, 2e-5), weight_decay=t.weight_decay)
    optimizer = make_optimizer(
        t.optim, groups, betas=(t.adam_beta1, t.adam_beta2), eps=t.adam_epsilon
    )

    def loss() -> torch.Tensor:
        return weighted(
            terms_of(objective, tokens, draws_of(tokens)),
            config.objective.term_weights,
            counts_of(objective, tokens, draws_of(tokens)),
        )

    before = loss()
    before.backward()
    assert bool(before.isfinite())
    frozen = (
        {id(p) for p in objective.corruptor.parameters()}
        if config.corruption.generator_training == "frozen"
        else set()
    )
    for n, p in named.items():
        assert (p.grad is None) == (id(p) in frozen), n
        assert p.grad is None or bool(p.grad.isfinite().all()), n
    optimizer.step()
    after = loss().detach()
    assert bool(after.isfinite())
    assert float(after) < float(before.detach()) or config.objective.objective == "adversarial"


PAPER = {  # 2003.10555, Table 6 and section 3; method: sizes
    "small": {"max_seq_length": 128, "train_batch_size": 128, "learning_rate": 5e-4},
    "base": {"max_seq_length": 512, "train_batch_size": 256, "learning_rate": 2e-4},
    "large": {"max_seq_length": 512, "train_batch_size": 2048, "learning_rate": 2e-4},
}
STEPS = {
    "electra-small": 1_000_000,
    "bert-small": 1_450_000,
    "electra-base": 766_000,
    "bert-base": 1_000_000,
    "electra-large": 400_000,
    "bert-large": 464_000,
}


@pytest.mark.parametrize("name", list(STEPS))
def test_published_numbers(name: str) -> None:
    c = load(name)
    t, m = c.train, c.model
    expected = PAPER[name.split("-")[1]]
    assert {
        "max_seq_length": c.data.max_seq_length,
        "train_batch_size": t.train_batch_size,
        "learning_rate": t.learning_rate,
    } == expected
    assert t.max_steps == STEPS[name]
    assert (t.warmup_steps, t.lr_scheduler_type, t.optim) == (10_000, "electra", "electra_adam")
    assert (t.weight_decay, t.adam_beta1, t.adam_beta2, t.adam_epsilon, t.max_grad_norm) == (
        0.01,
        0.9,
        0.999,
        1e-6,
        1.0,
    )
    assert (m.dropout, m.attention_dropout, m.init) == (0.1, 0.1, "bert")
    if name.startswith("electra"):
        assert (m.tie, c.corruption.mask_mix, c.objective.term_weights) == (
            "embeddings",
            (0.85, 0.15, 0.0),
            {"generator": 1.0, "rtd": 50.0},
        )
        assert c.corruption.mask_rate == (0.25 if name == "electra-large" else 0.15)
    else:
        assert (c.corruption.mask_mix, c.objective.term_weights) == ((0.8, 0.1, 0.1), {"mlm": 1.0})


def test_recipes_of_the_released_models() -> None:
    """README of the public code: Small++ has a generator of its own size and 4e6 steps; the large
    model has 1.75M steps."""
    small, large = load("electra-small-pp"), load("electra-large-1.75M")
    assert override(
        small, {"generator_size": 0.25, "init": "bert", "max_steps": 1_000_000}
    ) == load("electra-small")
    assert override(large, {"init": "bert", "max_steps": 400_000}) == load("electra-large")
    assert (small.model.generator_size, small.train.max_steps, large.train.max_steps) == (
        1.0,
        4_000_000,
        1_750_000,
    )


def test_tiny_recipes_start_local() -> None:
    assert {load(n).model.init for n in ("electra-tiny", "bert-tiny")} == {"local"}


def test_a_short_demo_leaves_its_warm_up() -> None:
    """It has no flag for it, so there is nothing to advise; the usual one keeps the recipe's."""
    for steps, warmup in ((1, 0), (100, 10), (2230, 200)):
        config = demo.recipe(steps, threads="1")
        check(config)
        assert config.train.warmup_steps == warmup
        assert not any("warmup_steps" in caution for caution in cautions(config))
    assert list(cautions(demo.recipe(100, threads="1"))) == []
