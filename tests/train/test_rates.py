"""Learning rates of kinds of parameters, and beta2 that follows the tokens of an update."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from electrify.build import Vocabulary, build
from electrify.model.encoder import kinds_of
from electrify.recipe import Recipe, load, override
from electrify.text.corpus import Corpus
from electrify.train.loop import Batch, Run
from electrify.train.optim import beta2_of
from electrify.train.run import pretrain
from small import SMALL, same_ending


def recipe(name: str = "electra-tiny", **fields: Any) -> Recipe:
    return override(load(name), SMALL | {"max_steps": 12, "dropout": 0.1} | fields)


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


def test_it_follows_the_schedules_and_resumes_to_the_bit(
    small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of 2 x 8, 2 x 16, then 4 x 16 tokens; passes that are accumulated count once."""
    seen: list[tuple[float, float]] = []
    update = Run.update

    def spied(self: Run, batch: Batch) -> None:
        update(self, batch)
        (betas,) = {group["betas"] for group in self.state.optimizer.param_groups}
        seen.append(betas)

    monkeypatch.setattr(Run, "update", spied)
    config = recipe(
        adam_beta2_tokens=1000,
        batch_size_schedule={2: 0.5},
        seq_length_schedule={8: 0.25},
        per_device_train_batch_size=1,
        save_steps=4,
    )
    pretrain(small_data, output_dir=tmp_path / "whole", config=config)
    tokens = [16] * 3 + [32] * 3 + [64] * 6
    assert seen == [(0.9, 0.5 ** (t / 1000)) for t in tokens]
    first = override(config, {"max_minutes": 1e-9})
    pretrain(small_data, output_dir=tmp_path / "broken", config=first)
    pretrain(small_data, output_dir=tmp_path / "broken", config=config, resume="auto")
    same_ending(tmp_path / "whole", tmp_path / "broken", step=12)


@pytest.mark.parametrize("name", ["corrective-modernbert-tiny", "gdes-tiny"])
@pytest.mark.parametrize("kind", ["embeddings", "matrices", "heads", "rest"])
def test_a_tiny_factor_holds_one_kind(
    small_data: Path, tmp_path: Path, name: str, kind: str
) -> None:
    """Every parameter moves but those of the kind."""
    fields = {"weight_decay": 0.0, "max_steps": 3, "warmup_steps": 0, "init_words": "random"}
    config = recipe(name, lr_factors={kind: 1e-30}, **fields)
    pretrain(small_data, output_dir=tmp_path, config=config)
    facts = Corpus(small_data, "train").manifest
    made = build(config, Vocabulary(facts.vocab_size, facts.special_ids)).objective
    after, kinds = load_file(tmp_path / "checkpoint-3" / "model.safetensors"), kinds_of(made)
    assert set(kinds.values()) == {"embeddings", "matrices", "heads", "rest"}
    for n, p in made.named_parameters():
        moved = float((after[n] - p.detach()).abs().max()) > 1e-20
        assert moved == (kinds[n] != kind), n


def test_factors_multiply_both_rates(small_data: Path, tmp_path: Path) -> None:
    config = recipe(
        lr_factors="embeddings=0.5,heads=2",
        learning_rate=1e-3,
        generator_learning_rate=3e-3,
        max_steps=1,
    )
    found: dict[str, float] = {}
    update = Run.update

    def spied(self: Run, batch: Batch) -> None:
        for group in self.state.optimizer.param_groups:
            found.update(dict.fromkeys(group["names"], group["peak_lr"]))
        update(self, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "update", spied)
        pretrain(small_data, output_dir=tmp_path, config=config)
    assert found["head.out.weight"] == pytest.approx(2e-3)
    assert found["corruptor.lm.head.dense.weight"] == pytest.approx(6e-3)
    assert found["encoder.blocks.0.qkv.weight"] == pytest.approx(1e-3)
    assert found["corruptor.lm.encoder.blocks.0.qkv.weight"] == pytest.approx(3e-3)
    words = next(rate for n, rate in found.items() if n.endswith("embeddings.words.weight"))
    assert words == pytest.approx(5e-4), "the shared table is the discriminator's"
