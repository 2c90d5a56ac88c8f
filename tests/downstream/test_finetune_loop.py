from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from electrify.downstream import loop
from electrify.downstream.answer_heads import JointHead, SpanHead
from electrify.downstream.encoder import load
from electrify.downstream.examples import Example
from electrify.downstream.heads import (
    NO_WORD,
    Finetuned,
    TagHead,
    TextHead,
    grade_class,
    grade_each,
)
from electrify.downstream.options import FinetuneSettings
from electrify.downstream.problems.texts import Texts
from electrify.downstream.rows import Rows
from electrify.downstream.tasks import TaskData
from electrify.errors import UserError

CPU = torch.device("cpu")


@given(
    st.lists(st.integers(3, 60), min_size=1, max_size=300),
    st.integers(1, 40),
    st.integers(0, 5),
    st.integers(0, 3),
)
def test_every_example_once_an_epoch(lengths: list[int], batch_size: int, seed: int, epoch: int):
    lengths_N = torch.tensor(lengths)
    batches = loop.epoch_batches(lengths_N, batch_size=batch_size, seed=seed, epoch=epoch)
    assert sorted(torch.cat(batches).tolist()) == list(range(len(lengths)))
    sizes = sorted(len(b) for b in batches)
    assert sizes[1:] == [batch_size] * (len(sizes) - 1)
    assert len(batches) == loop.updates_of(len(lengths), batch_size=batch_size, epochs=1)
    again = loop.epoch_batches(lengths_N, batch_size=batch_size, seed=seed, epoch=epoch)
    assert all(torch.equal(a, b) for a, b in zip(batches, again, strict=True))


def test_epochs_differ_and_lengths_are_alike_in_a_batch():
    lengths_N = torch.randint(3, 60, (3200,), generator=torch.Generator().manual_seed(0))
    first, second = (loop.epoch_batches(lengths_N, batch_size=32, seed=0, epoch=e) for e in (0, 1))
    assert not torch.equal(first[0], second[0])
    slots = sum(32 * int(lengths_N[b].max()) for b in first)
    assert lengths_N.sum() / slots > 0.9
    assert {len({int(i) for i in a} & {int(i) for i in b}) for a in first for b in second} != {
        0,
        32,
    }


def test_neither_the_incomplete_batch_nor_the_first_ones_are_long_or_short():
    lengths_N = torch.arange(1, 101)
    left, opening = [], []
    for seed in range(200):
        batches = loop.epoch_batches(lengths_N, batch_size=32, seed=seed, epoch=0)
        left += [float(lengths_N[b].float().mean()) for b in batches if len(b) == 4]
        opening.append(float(lengths_N[batches[0]].float().mean()))
    # means of 4 of 1..100 over 200 seeds: standard error 1; of the first batch: 2
    assert len(left) == 200
    assert abs(sum(left) / 200 - 50.5) < 4
    assert abs(sum(opening) / 200 - 50.5) < 7


def test_a_permutation_is_the_same_on_every_machine():
    assert loop.shuffled(8, 3, loop.SUBSET).tolist() == [7, 4, 5, 1, 0, 3, 2, 6]


def encoded(zoo: Path, name: str = "electra") -> tuple[Finetuned, Rows]:
    loaded = load(str(zoo / name), device=CPU)
    torch.manual_seed(0)
    examples = tuple(
        Example("good " * n, "bad film" if n % 2 else "the", k % 3)
        for k, n in enumerate((9, 1, 4, 20, 2))
    )
    task = TaskData(
        "three", "classification", ("a", "b", "c"), ("accuracy",), 3, examples, examples
    )
    problem = Texts(task, loaded, max_seq_length=16, device=CPU)
    return problem.model(dropout=0.5, std=0.5), problem.training(examples)


def test_encoding_by_hand(zoo: Path):
    _, data = encoded(zoo)
    index = torch.tensor([1, 4])
    inputs = data.inputs(index)
    # [CLS] good [SEP] bad film [SEP] / [CLS] good good [SEP] the [SEP]
    assert inputs["input_ids"].tolist() == [[2, 5, 3, 8, 13, 3], [2, 5, 5, 3, 11, 3]]
    assert inputs["token_type_ids"].tolist() == [[0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1]]
    assert inputs["attention_mask"].tolist() == [[1] * 6, [1] * 6]
    assert data.lengths_N.tolist() == [14, 6, 8, 16, 6]
    assert data.inputs(torch.tensor([1, 2]))["input_ids"].tolist()[0] == [2, 5, 3, 8, 13, 3, 0, 0]


@pytest.mark.parametrize("name", ["electra", "bert", "roberta"])
def test_neither_padding_nor_order_changes_a_prediction(zoo: Path, name: str):
    model, data = encoded(zoo, name)
    together = loop.predict(model, data, bf16=False)["logits"]
    assert model.training
    model.eval()
    with torch.no_grad():
        alone = torch.cat(
            [model.answers(data.batch(torch.tensor([i])))["logits"] for i in range(5)]
        )
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("width", "tags", "protocol", "peak"),
    [
        (128, True, "electrify", 3e-3),
        (128, False, "electrify", 3e-4),
        (128, True, "published", 3e-4),
        (256, True, "electrify", 3e-4),
        (768, True, "electrify", 1e-4),
    ],
)
def test_the_learning_rate_by_size_and_task(
    width: int, tags: bool, protocol: Literal["electrify", "published"], peak: float
):
    named = {"head.out.weight": torch.nn.Parameter(torch.zeros(1))}
    settings = FinetuneSettings(protocol=protocol)
    assert loop.rates_for(named, settings, width=width, tags=tags) == {"head.out.weight": peak}
    given = FinetuneSettings(protocol=protocol, learning_rate=2e-5)
    assert loop.rates_for(named, given, width=width, tags=tags) == {"head.out.weight": 2e-5}


def test_each_part_moves_by_its_learning_rate(zoo: Path):
    """AdamW's first update moves every weight that has a gradient by the rate itself."""
    model, data = encoded(zoo)
    model.eval()
    settings = FinetuneSettings(
        learning_rate=1e-3,
        layerwise_lr_decay=0.5,
        max_grad_norm=1e9,
        per_device_train_batch_size=5,
        warmup_ratio=0,
    )
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    seen: list[tuple[int, float]] = []
    rates = loop.rates_for(dict(model.named_parameters()), settings, width=16)
    loop.train(
        model,
        data,
        rates=rates,
        settings=settings,
        epochs=1,
        seed=0,
        bf16=False,
        after=lambda s, e, _: seen.append((s, e)) is None,
    )
    assert seen == [(1, 1.0)]
    moved: dict[float, float] = {}
    for name, p in model.named_parameters():
        moved[rates[name]] = max(
            moved.get(rates[name], 0.0), float((p.detach() - before[name]).abs().max())
        )
    assert sorted(moved) == pytest.approx([1e-3 * 0.5**3, 1e-3 * 0.5**2, 1e-3 * 0.5, 1e-3])
    for rate, most in moved.items():
        assert most == pytest.approx(0.5 * rate, rel=0.02), (
            "a run of one update stands in the middle of its decay"
        )


def test_default_rates():
    assert [loop.default_rates(d) for d in (128, 256, 312, 768, 1024)] == [
        (3e-4, 0.8),
        (3e-4, 0.8),
        (1e-4, 0.8),
        (1e-4, 0.8),
        (5e-5, 0.9),
    ]


def test_a_loss_that_is_no_number_is_reported(zoo: Path):
    model, data = encoded(zoo)
    with torch.no_grad():
        model.head.out.bias.fill_(float("nan"))
    rates = loop.rates_for(dict(model.named_parameters()), FinetuneSettings(), width=16)
    with pytest.raises(
        UserError, match=r"the loss is nan after 1 updates \(seed 7\): lower --learning-rate"
    ):
        loop.train(
            model,
            data,
            rates=rates,
            settings=FinetuneSettings(),
            epochs=1,
            seed=7,
            bf16=False,
            after=lambda *_: True,
        )


def test_devices_and_precision():
    assert loop.device_named("cpu") == CPU
    for absent in ("cuda:99", "gpu"):
        with pytest.raises(UserError, match=f"device '{absent}' is not here"):
            loop.device_named(absent)
    assert loop.computes_in_bf16("true", CPU)
    assert not loop.computes_in_bf16("false", CPU)


def test_settings_are_checked():
    for wrong in (
        {"learning_rate": 0.0},
        {"max_train_samples": 0},
        {"warmup_ratio": 1.0},
        {"max_seq_length": 3},
        {"weight_decay": -1.0},
    ):
        with pytest.raises(UserError, match=next(iter(wrong))):
            FinetuneSettings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["text", "weighted", "several", "tags", "spans", "joint"])
def test_a_long_batch_in_pieces_has_the_same_gradient(monkeypatch: pytest.MonkeyPatch, kind: str):
    """The mean of a batch, whatever number of rows or marked tokens each piece holds."""
    torch.manual_seed(0)
    common: dict[str, Any] = {"dropout": 0.0, "std": 0.5}
    lengths_N = torch.tensor([5, 9, 3, 12, 7])
    places_NL = (torch.arange(12) > 1) & (torch.arange(12) < lengths_N[:, None])
    if kind == "text":
        head, targets = (
            TextHead(8, 3, **common, last=False, grade=grade_class),
            torch.tensor([0, 1, 2, 1, 0]),
        )
    elif kind == "weighted":
        grade = functools.partial(grade_class, weights_C=torch.tensor([0.5, 3.0, 1.0]))
        head = TextHead(8, 3, **common, last=False, grade=grade)
        targets = torch.tensor([0, 1, 2, 1, 0])
    elif kind == "several":
        # What is not known takes no part: of the third row, nothing but one class is.
        nan = float("nan")
        rows = [[1.0, 0, 1], [nan, 1, 0], [nan, nan, 1], [0, 0, 0], [1, nan, 0]]
        head, targets = TextHead(8, 3, **common, last=False, grade=grade_each), torch.tensor(rows)
    elif kind == "tags":
        head = TagHead(8, 3, **common, grade=grade_class)
        begins_NL = places_NL & (torch.arange(12) % 3 == 2)  # words of three tokens
        targets = torch.randint(0, 3, (5, 12)).masked_fill(~begins_NL, NO_WORD)
    else:
        targets = torch.tensor([[2, 3, 0], [4, 8, 0], [0, 0, 1], [3, 3, 0], [2, 5, 0]])
        spans: dict[str, Any] = common | {"last": False, "keep": 2, "longest_answer": 4}
        head = (
            SpanHead(8, **spans)
            if kind == "spans"
            else JointHead(8, **spans, beam=3, answerable=True)
        )

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = torch.nn.Embedding(20, 8)

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
            return SimpleNamespace(last_hidden_state=self.words(input_ids))

    model = Finetuned(Encoder(), head)
    data = Rows(torch.randint(0, 20, (5, 12)), None, lengths_N, targets, places_NL)
    found = []
    for most in (1000, 20, 1):
        monkeypatch.setitem(loop.TOKENS, "cpu", most)
        model.zero_grad()
        loss = loop._backward(model, data, torch.tensor([3, 0, 2, 4, 1]), bf16=False)  # pyright: ignore[reportPrivateUsage]
        found.append([loss, *(p.grad for p in model.parameters())])
    for pieces in found[1:]:
        torch.testing.assert_close(found[0], pieces, atol=1e-6, rtol=1e-5)


def test_pieces_hold_every_row_once_and_little_at_a_time():
    lengths_N = torch.tensor([5, 9, 3, 12, 7, 30])
    found = list(loop.pieces(torch.tensor([5, 3, 1, 0, 2]), lengths_N, 20))
    assert [piece.tolist() for piece in found] == [[2, 0], [1], [3], [5]]
