"""Learning rates of kinds of parameters, and beta2 that follows the tokens of an update."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import recipe
from safetensors.torch import load_file

from electrify.build import Vocabulary, build
from electrify.model.encoder import kinds_of
from electrify.text.corpus import Corpus
from electrify.train.loop import Batch, Run
from electrify.train.optim import beta2_of
from electrify.train.run import pretrain


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
