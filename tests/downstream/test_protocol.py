"""The published protocol, part by part: by hand where it is arithmetic, against a restatement
elsewhere."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from electrify.downstream import loop
from electrify.downstream.encoder import learning_rates, load
from electrify.downstream.epochs import training_examples
from electrify.downstream.examples import Example, Sentence
from electrify.downstream.finetune import finetune
from electrify.downstream.glue_tasks import GLUE
from electrify.downstream.one_run import finetune_one, problem_of
from electrify.downstream.options import (
    PROTOCOLS,
    PUBLISHED_DROPOUT,
    FinetuneConfig,
    FinetuneSettings,
    search_grid,
)
from electrify.downstream.problems.texts import Texts
from electrify.downstream.read.glue import read_glue
from electrify.downstream.tasks import TaskData
from electrify.errors import UserError

CPU = torch.device("cpu")
X = (0.4, 0.8)


class Line(torch.nn.Module):
    """y = w x with loss y^2, in float64: the gradient of the sum over the batch is 2 w (.16 + .64)
    = 1.6 w, of the mean .8 w."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(1, 1, dtype=torch.float64))

    def loss(self, batch: torch.Tensor) -> torch.Tensor:
        return (self.w[0, 0] * batch).square().mean()

    def weight(self, batch: torch.Tensor) -> torch.Tensor:
        return torch.tensor(len(batch))

    def answers(self, batch: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": self.w[0, 0] * batch}


class Points:
    lengths_N = torch.tensor([1, 1])
    device = CPU

    def batch(self, index_B: torch.Tensor) -> torch.Tensor:
        return torch.tensor(X, dtype=torch.float64)[index_B]


def trained(settings: FinetuneSettings) -> tuple[list[float], list[float]]:
    """w after each of three updates over both points at the peak rate .1, and the losses."""
    line, seen, losses = Line(), list[float](), list[float]()

    def after(step: int, epoch: float, loss: torch.Tensor) -> bool:
        seen.append(line.w.item())
        losses.append(loss.item())
        return True

    settings = dataclasses.replace(
        settings, per_device_train_batch_size=2, warmup_ratio=0.5, weight_decay=0.01
    )
    loop.train(
        line,
        Points(),
        rates={"w": 0.1},
        settings=settings,
        epochs=3,
        seed=0,
        bf16=False,
        after=after,
    )
    return seen, losses


def test_three_updates_of_the_published_protocol_by_hand():
    """Rates: step / 1.5 * (1 - step / 3) = 0, 4/9, then 1 * 1/3. The sum's gradient, 1.6 w, is
    clipped to 1 (torch divides by the norm + 1e-6)."""
    w, m, v, wanted = 1.0, 0.0, 0.0, []
    for rate in (0.0, 0.1 * 4 / 9, 0.1 / 3):
        gradient = 1.6 * w
        gradient /= gradient + 1e-6
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        w -= rate * (m / (math.sqrt(v) + 1e-6) + 0.01 * w)
        wanted.append(w)
    seen, losses = trained(FinetuneSettings(protocol="published"))
    assert seen == pytest.approx(wanted, abs=1e-12)
    assert seen[0] == 1.0, "the first update is at a rate of 0"
    assert seen[1] == pytest.approx(
        1 - 0.1 * 4 / 9 * (0.19 / math.sqrt(0.001999) + 0.01), abs=1e-5
    ), "about four times the rate"
    assert losses[0] == pytest.approx(0.4), "what is shown is the mean, (.16 + .64) / 2"


def test_three_updates_of_our_protocol_by_hand():
    """Rates: 1/2, 1, 1/2 of the peak (warm-up over round(1.5) = 2 updates, one further); the mean's
    gradient is not clipped; bias correction."""
    w, m, v, wanted = 1.0, 0.0, 0.0, []
    for step, rate in enumerate((0.05, 0.1, 0.05), 1):
        gradient = 0.8 * w
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        w -= rate * 0.01 * w
        w -= rate * (m / (1 - 0.9**step)) / (math.sqrt(v / (1 - 0.999**step)) + 1e-6)
        wanted.append(w)
    seen, losses = trained(FinetuneSettings())
    assert seen == pytest.approx(wanted, abs=1e-9)
    assert losses[0] == pytest.approx(0.4)


def test_each_part_alone_differs_from_our_protocol():
    ours = trained(FinetuneSettings())[0][-1]
    parts: list[dict[str, Any]] = [
        {"optim": "electra_adam"},
        {"lr_scheduler_type": "electra"},
        {"loss_reduction": "sum"},
    ]
    found = [trained(FinetuneSettings(**part))[0][-1] for part in parts]
    assert len({ours, *found}) == 4
    together: dict[str, Any] = {name: value for part in parts for name, value in part.items()}
    assert trained(FinetuneSettings(**together)) == trained(FinetuneSettings(protocol="published"))


@pytest.mark.parametrize("total", [10, 37, 1000])
def test_the_published_schedule_is_its_formula(total: int):
    """polynomial_decay to 0 of power 1, times min(1, step / (total * warmup_proportion)), where no
    number is rounded."""
    settings = FinetuneSettings(protocol="published").filled()
    found = [loop.rate_factor(settings, step, total) for step in range(total)]
    wanted = [(1 - step / total) * min(1.0, step / (0.1 * total)) for step in range(total)]
    assert found == pytest.approx(wanted, abs=1e-12)
    assert max(found) < 1


def test_what_is_given_wins_over_the_protocol():
    assert {
        k: getattr(FinetuneSettings().filled(), k) for k in PROTOCOLS["electrify"]
    } == PROTOCOLS["electrify"]
    assert {
        k: getattr(FinetuneSettings(protocol="published").filled(), k)
        for k in PROTOCOLS["published"]
    } == PROTOCOLS["published"]
    assert PROTOCOLS["electrify"].keys() == PROTOCOLS["published"].keys()
    mixed = FinetuneSettings(
        protocol="published", optim="adamw", double_unordered=False, group_by_length=True
    ).filled()
    assert (mixed.optim, mixed.double_unordered, mixed.group_by_length, mixed.loss_reduction) == (
        "adamw",
        False,
        True,
        "sum",
    )
    assert mixed.filled() == mixed
    assert (
        FinetuneSettings(protocol="published", frozen_encoder="last").filled().optim
        == "electra_adam"
    )
    grid = search_grid("protocol=electrify,published", FinetuneSettings())
    assert [settings.filled().optim for _, settings in grid] == ["adamw", "electra_adam"]


def test_the_level_that_the_public_code_skips(zoo: Path):
    """n + 2 - depth, where embeddings have depth 0, layer i has i + 1, and the head n + 2."""
    named = dict(load(str(zoo / "electra"), device=CPU).encoder.named_parameters()) | {
        "head.out.weight": torch.nn.Parameter(torch.ones(1, 1))
    }
    rates = learning_rates(named, peak=1.0, decay=0.5, skip=True)
    n = 2
    depths = {
        "embeddings.": 0,
        "embeddings_project.": 0,
        "encoder.layer.0.": 1,
        "encoder.layer.1.": 2,
        "head.": n + 2,
    }
    for name, rate in rates.items():
        depth = next(depth for part, depth in depths.items() if name.startswith(part))
        assert rate == 0.5 ** (n + 2 - depth), name
    settings = FinetuneSettings(protocol="published", learning_rate=1.0, layerwise_lr_decay=0.5)
    assert loop.rates_for(named, settings, width=16) == rates


def test_the_sum_is_the_mean_times_the_examples_in_pieces_too(monkeypatch: pytest.MonkeyPatch):
    for most in (100, 1):
        monkeypatch.setitem(loop.TOKENS, "cpu", most)
        line = Line()
        loss = loop._backward(line, Points(), torch.tensor([0, 1]), bf16=False, summed=True)  # pyright: ignore[reportPrivateUsage]
        assert line.w.grad is not None
        assert (line.w.grad.item(), loss.item()) == pytest.approx((1.6, 0.4), abs=1e-7)


def test_batches_of_any_length():
    lengths_N = torch.arange(100)
    batches = loop.epoch_batches(lengths_N, batch_size=32, seed=0, epoch=0, by_length=False)
    assert [len(b) for b in batches] == [32, 32, 32, 4]
    assert torch.cat(batches).tolist() == loop.shuffled(100, 0, loop.ORDER, 0).tolist()


STSB = tuple(Example("good " * k, "bad film", label) for k, label in enumerate((1.0, 2.0, 4.5), 1))


def regression(**more: Any) -> TaskData:
    return TaskData("stsb", "regression", (), ("spearman",), 1, STSB, STSB, symmetric=True, **more)


@pytest.mark.parametrize(
    ("how", "more", "wanted"),
    [
        ("unit", {"value_range": (0.0, 5.0)}, [0.2, 0.4, 0.9]),
        ("unit", {}, [0.0, 1 / 3.5, 1.0]),
        ("raw", {}, [1.0, 2.0, 4.5]),
        ("standardised", {}, [-1.0190493, -0.3396831, 1.3587324]),
    ],
)
def test_targets_of_regression(zoo: Path, how: str, more: dict[str, Any], wanted: list[float]):
    problem = Texts(
        regression(**more),
        load(str(zoo / "bert"), device=CPU),
        max_seq_length=16,
        device=CPU,
        regression_targets=how,
    )
    assert problem.training(STSB).targets.tolist() == pytest.approx(wanted)


def test_the_range_of_stsb_is_the_tasks_and_not_the_files(tmp_path: Path):
    (tmp_path / "STS-B").mkdir()
    for name in ("train", "dev"):
        (tmp_path / "STS-B" / f"{name}.tsv").write_text(
            "sentence1\tsentence2\tscore\na\tb\t1.0\nb\tc\t3.0\n"
        )
    data = read_glue(GLUE["stsb"], tmp_path)
    assert data.value_range == (0.0, 5.0)
    assert (
        len(training_examples(data, seed=0, settings=FinetuneSettings(protocol="published"))) == 4
    ), "pairs in both orders"
    assert len(training_examples(data, seed=0, settings=FinetuneSettings())) == 2


def test_the_published_heads(zoo: Path, monkeypatch: pytest.MonkeyPatch):
    """Glorot's uniform weights; dropout .1 before a class, none before tags."""
    made: list[Any] = []
    monkeypatch.setattr(loop, "train", lambda model, *_, **__: made.append(model))
    words = (Sentence(("good", "film"), ("A", "B")),)
    texts = (Example("good", None, 0), Example("bad", None, 1))
    tasks = [
        TaskData("two", "classification", ("0", "1"), ("accuracy",), 1, texts, texts),
        TaskData("tags", "tagging", ("A", "B"), ("accuracy",), 1, words, words),
    ]
    for task in tasks:
        for protocol in ("electrify", "published"):
            with pytest.raises(IndexError):  # there is no curve without a training
                finetune_one(
                    str(zoo / "bert"), task, seed=0, settings=FinetuneSettings(protocol=protocol)
                )  # type: ignore[arg-type]
    ours, theirs, our_tags, their_tags = (model.head for model in made)
    assert [head.dropout.p for head in (ours, theirs, our_tags, their_tags)] == [0.1, 0.1, 0.1, 0.0]
    limit = math.sqrt(6 / (16 + 2))
    assert 0.5 * limit < float(theirs.out.weight.detach().abs().max()) <= limit
    assert float(ours.out.weight.detach().abs().max()) < 0.1
    assert float(theirs.out.bias.detach().abs().max()) == 0
    assert PUBLISHED_DROPOUT["answering"] == 0


@pytest.mark.parametrize("name", ["electra", "bert", "roberta"])
def test_dropout_of_the_encoder(zoo: Path, name: str):
    """All of it, that of attention too, in weights that were read and in random ones; none leaves
    the model's own."""
    for model in (str(zoo / name), f"random:{zoo / name}"):
        found = load(model, device=CPU, dropout=0.3)
        assert {m.p for m in found.encoder.modules() if isinstance(m, torch.nn.Dropout)} == {0.3}
        assert found.encoder.config.attention_probs_dropout_prob == 0.3
        assert found.dropout == load(model, device=CPU).dropout == 0.1  # that before the head stays
    assert {
        m.p
        for m in load(str(zoo / name), device=CPU).encoder.modules()
        if isinstance(m, torch.nn.Dropout)
    } == {0.1}
    assert FinetuneSettings(protocol="published").filled().encoder_dropout == 0.1
    assert FinetuneSettings().filled().encoder_dropout is None


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"encoder_dropout": 0.2}, "encoder_dropout"),
        ({"layerwise_lr_skip": True}, "layerwise_lr_skip"),
        ({"protocol": "published", "layerwise_lr_skip": False}, "layerwise_lr_skip"),
        ({"layerwise_lr_decay": 0.9}, "layerwise_lr_decay"),
    ],
)
def test_a_frozen_encoder_is_not_trained(given: dict[str, Any], name: str):
    with pytest.raises(UserError, match=f"{name} has no effect with frozen_encoder"):
        FinetuneSettings(frozen_encoder="last", **given)
    for protocol in ("electrify", "published"):
        FinetuneSettings(frozen_encoder="last", protocol=protocol).filled()


def test_published_from_end_to_end(zoo: Path, reviews: tuple[str, str], tmp_path: Path):
    """It learns, is written into the report, and an output folder holds one protocol."""
    train, held = reviews
    common: dict[str, Any] = {
        "models": (str(zoo / "electra"),),
        "train_file": train,
        "validation_file": held,
        "output_dir": str(tmp_path / "out"),
    }
    settings = FinetuneSettings(
        protocol="published",
        learning_rate=5e-3,
        layerwise_lr_decay=1.0,
        num_train_epochs=8,
        bf16="false",
    )
    report = finetune(FinetuneConfig(**common, seeds=1, settings=settings))
    assert report.rows[0].median > 0.9
    text = (tmp_path / "out" / "report.md").read_text()
    assert "optim electra_adam" in text
    assert "protocol published" in text
    with pytest.raises(UserError, match="holds runs with --protocol published, not electrify"):
        finetune(
            FinetuneConfig(**common, settings=dataclasses.replace(settings, protocol="electrify"))
        )


def test_options_that_no_task_uses(zoo: Path, reviews: tuple[str, str], tmp_path: Path):
    train, held = reviews
    common: dict[str, Any] = {
        "models": (str(zoo / "electra"),),
        "train_file": train,
        "validation_file": held,
        "output_dir": str(tmp_path / "out"),
    }
    with pytest.raises(
        UserError, match="--regression-targets is for regression; none of the tasks is"
    ):
        finetune(FinetuneConfig(**common, settings=FinetuneSettings(regression_targets="raw")))
    loaded = load(str(zoo / "bert"), device=CPU)
    for protocol in ("electrify", "published"):
        settings = FinetuneSettings(protocol=protocol)  # type: ignore[arg-type]
        problem = problem_of(
            regression(), loaded, settings=settings, device=CPU, bf16=False, name="m"
        )
        assert isinstance(problem, Texts)
        assert problem.regression_targets == settings.filled().regression_targets
