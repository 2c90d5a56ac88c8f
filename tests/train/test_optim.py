"""Optimisers: updates by hand, groups, learning rates of kinds of parameters, clipping, schedules,
and beta2 that follows the tokens of an update."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from running import recipe
from safetensors.torch import load_file
from torch import Tensor, nn

from batches import built
from electrify.build import Vocabulary, build
from electrify.model.encoder import kinds_of
from electrify.text.corpus import Corpus
from electrify.train.loop import Batch, Run
from electrify.train.optim import (
    ElectraAdam,
    beta2_of,
    clip,
    clip_groups,
    factor,
    parameter_groups,
)
from electrify.train.run import pretrain
from small import records


def test_three_steps_by_hand() -> None:
    """p = 1, gradients 1, -2, .5; betas .9 and .99, lr .1, decay .01, eps 1e-6.

    m = .1, -.11, -.049; v = .01, .0499, .051901 p = 1 - .1 * (.1 / .100001 + .01) = .899001; then -
    .1 * (-.11 / .223384 + .00899001) = .947345; then - .1 * (-.049 / .227819 + .00947345) = .967906
    """
    p = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = ElectraAdam(
        [{"params": [p], "weight_decay": 0.01}], lr=0.1, betas=(0.9, 0.99), eps=1e-6
    )
    for g, m, v, after in (
        (1.0, 0.1, 0.01, 0.8990010000),
        (-2.0, -0.11, 0.0499, 0.9473445415),
        (0.5, -0.049, 0.051901, 0.9679055081),
    ):
        p.grad = torch.tensor([g], dtype=torch.float64)
        optimizer.step()
        assert optimizer.state[p]["exp_avg"].item() == pytest.approx(m, abs=1e-12)
        assert optimizer.state[p]["exp_avg_sq"].item() == pytest.approx(v, abs=1e-12)
        assert p.item() == pytest.approx(after, abs=2e-10)


@pytest.mark.parametrize("recipe", ["electra-tiny", "bert-tiny"])
def test_every_parameter_in_one_group_and_no_decay_on_biases_and_norms(recipe: str) -> None:
    objective = built(recipe).objective
    named = dict(objective.named_parameters())
    groups = parameter_groups(named, rates=dict.fromkeys(named, 1e-3), weight_decay=0.01)
    where = [(id(p), g["weight_decay"]) for g in groups for p in g["params"]]
    assert len(where) == len({i for i, _ in where}) == len(named)
    decay = dict(where)
    for part in objective.modules():
        for name, p in part.named_parameters(recurse=False):
            flat = isinstance(part, nn.LayerNorm) or name.startswith("bias")
            assert decay[id(p)] == (0.0 if flat else 0.01), (type(part).__name__, name)
    assert all(g["lr"] == g["peak_lr"] == 1e-3 for g in groups)
    assert [named[n] for g in groups for n in g["names"]] == [
        p for g in groups for p in g["params"]
    ]


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
    shapes = {"d.w": (2, 2), "g.w": (2, 2), "g.b": (2,)}
    named = {n: nn.Parameter(torch.zeros(shape)) for n, shape in shapes.items()}
    own = {"generator": {"g.w", "g.b"}, "decays": {"g.w": 0.3, "g.b": 0.3}}
    rates = dict.fromkeys(named, 1e-3)
    groups = parameter_groups(named, rates=rates, weight_decay=0.1, **own)
    assert [(g["names"], g["generator"], g["weight_decay"]) for g in groups] == [
        (["d.w"], False, 0.1),
        (["g.w"], True, 0.3),
        (["g.b"], True, 0.0),
    ]


def test_a_run_with_both_says_its_rates(small_data, tmp_path):
    own = {"generator_warmup_steps": 6, "warmup_steps": 3, "lr_scheduler_type": "constant"}
    losses = []
    for clip_by in ("apart", "together"):
        config = recipe(clip=clip_by, generator_weight_decay=0.2, **own)
        pretrain(small_data, output_dir=tmp_path / clip_by, recipe=config)
        lines, peak = records(tmp_path / clip_by, "train"), config.train.learning_rate
        rates = [(r["learning_rate"], r["generator_learning_rate"]) for r in lines]
        assert rates[3] == pytest.approx((peak, peak / 2))
        assert rates[8] == pytest.approx((peak, peak))
        losses.append(lines[-1]["generator"])
    assert losses[0] != losses[1]


SCHEDULES = ["electra", "linear", "cosine", "wsd", "constant"]
# 100 steps, 10 of warm-up. Worked out by hand. Beside the kind is the share of its decay.
TABLE: dict[tuple[str, float], dict[int, float]] = {
    ("electra", 0.2): {0: 0.0, 1: 0.1 * 0.99, 5: 0.5 * 0.95, 10: 0.9, 55: 0.45, 99: 0.01, 100: 0.0},
    ("linear", 0.2): {0: 0.0, 1: 0.1, 5: 0.5, 10: 1.0, 55: 0.5, 91: 0.1, 99: 1 / 90, 100: 0.0},
    ("cosine", 0.2): {
        0: 0.0,
        5: 0.5,
        10: 1.0,
        40: 0.75,
        55: 0.5,
        70: 0.25,
        99: 0.5 * (1 - math.cos(math.pi / 90)),
        100: 0.0,
    },
    ("wsd", 0.2): {0: 0.0, 5: 0.5, 10: 1.0, 79: 1.0, 80: 1.0, 90: 0.5, 99: 0.05, 100: 0.0},
    ("wsd", 0.4): {60: 1.0, 70: 0.75, 90: 0.25, 100: 0.0},
    ("wsd", 0.05): {94: 1.0, 96: 0.8, 99: 0.2},
    ("wsd", 1.0): {5: 0.5 * 0.95, 50: 0.5, 99: 0.01},  # `electra`
    ("constant", 0.2): {0: 0.0, 5: 0.5, 10: 1.0, 99: 1.0, 100: 1.0},
}


@pytest.mark.parametrize(("kind", "share"), TABLE)
def test_table(kind: str, share: float) -> None:
    for step, wanted in TABLE[kind, share].items():
        found = factor(kind, step, warmup_steps=10, max_steps=100, decay_share=share)
        assert found == pytest.approx(wanted, abs=1e-12), step


@given(st.sampled_from(SCHEDULES), st.integers(0, 500), st.integers(1, 1000))
def test_up_to_the_end_of_warm_up_then_never_up(kind: str, warmup: int, rest: int) -> None:
    total = warmup + rest
    assert factor(kind, 0, warmup_steps=0, max_steps=total) == 1.0
    values = [
        factor(kind, s, warmup_steps=warmup, max_steps=total) for s in range(warmup, total + 1)
    ]
    assert all(a >= b - 1e-12 for a, b in pairwise(values))
    if kind != "constant":
        assert values[-1] == pytest.approx(0, abs=1e-12)


def test_beta2_by_hand() -> None:
    """A half-life of four updates of 64 tokens: 0.5 ** (1 / 4). Without one it is adam_beta2."""
    train = recipe(adam_beta2_tokens=256).train
    assert beta2_of(train, 64) == pytest.approx(0.8408964)
    assert beta2_of(train, 256) == 0.5
    assert beta2_of(recipe(adam_beta2=0.98).train, 64) == 0.98


@given(st.integers(1, 10**6), st.integers(1, 64), st.floats(1, 1e15))
def test_beta2_of_other_batches(tokens: int, times: int, half_life: float) -> None:
    """So many small updates decay what one large update does; beta2 is below 1."""
    train = recipe(adam_beta2_tokens=half_life).train
    one, small = beta2_of(train, tokens * times), beta2_of(train, tokens)
    assert one == pytest.approx(small**times, rel=1e-6, abs=1e-300)
    assert 0 <= one < 1


def spied(patch: pytest.MonkeyPatch, key: str) -> list[dict[str, Any]]:
    """What each update has under a key of its groups, by the names of their parameters."""
    seen: list[dict[str, Any]] = []
    update = Run.update

    def spy(self: Run, batch: Batch) -> None:
        update(self, batch)
        groups = self.state.optimizer.param_groups
        seen.append({name: group[key] for group in groups for name in group["names"]})

    patch.setattr(Run, "update", spy)
    return seen


def test_it_follows_the_schedules(small_data, tmp_path, monkeypatch):
    """Batches of 2 x 8, 2 x 16, then 4 x 16 tokens; passes that are accumulated count once."""
    seen = spied(monkeypatch, "betas")
    grow = {"batch_size_schedule": {2: 0.5}, "seq_length_schedule": {8: 0.25}}
    config = recipe(adam_beta2_tokens=1000, per_device_train_batch_size=1, **grow)
    pretrain(small_data, output_dir=tmp_path / "run", recipe=config)
    tokens = [16] * 3 + [32] * 3 + [64] * 6
    assert [{*one.values()} for one in seen] == [{(0.9, 0.5 ** (t / 1000))} for t in tokens]


@pytest.mark.parametrize("name", ["corrective-modernbert-tiny", "gdes-tiny"])
@pytest.mark.parametrize("kind", ["embeddings", "matrices", "heads", "rest"])
def test_a_tiny_factor_holds_one_kind(
    small_data: Path, tmp_path: Path, name: str, kind: str
) -> None:
    """Every parameter moves but those of the kind."""
    fields = {"weight_decay": 0.0, "max_steps": 3, "warmup_steps": 0, "init_words": "random"}
    config = recipe(name, lr_factors={kind: 1e-30}, **fields)
    pretrain(small_data, output_dir=tmp_path, recipe=config)
    facts = Corpus(small_data, "train").manifest
    made = build(config, Vocabulary(facts.vocab_size, facts.special_ids)).objective
    after, kinds = load_file(tmp_path / "checkpoint-3" / "model.safetensors"), kinds_of(made)
    assert set(kinds.values()) == {"embeddings", "matrices", "heads", "rest"}
    for n, p in made.named_parameters():
        moved = float((after[n] - p.detach()).abs().max()) > 1e-20
        assert moved == (kinds[n] != kind), n


def test_factors_multiply_both_rates(small_data, tmp_path, monkeypatch):
    seen = spied(monkeypatch, "peak_lr")
    rates = {"learning_rate": 1e-3, "generator_learning_rate": 3e-3}
    config = recipe(lr_factors="embeddings=0.5,heads=2", max_steps=1, **rates)
    pretrain(small_data, output_dir=tmp_path, recipe=config)
    (found,) = seen
    assert found["head.out.weight"] == pytest.approx(2e-3)
    assert found["corruptor.lm.head.dense.weight"] == pytest.approx(6e-3)
    assert found["encoder.blocks.0.qkv.weight"] == pytest.approx(1e-3)
    assert found["corruptor.lm.encoder.blocks.0.qkv.weight"] == pytest.approx(3e-3)
    words = next(rate for n, rate in found.items() if n.endswith("embeddings.words.weight"))
    assert words == pytest.approx(5e-4), "the shared table is the discriminator's"
