"""The loop: minibatches, schedules, the published protocol by hand, and the weights of classes."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from toy import QUICK, THOROUGH, alone, reader_of, reviews_task, sharpened, task_of, values

from electrify.finetuning import loop
from electrify.finetuning.loop import PROTOCOLS
from electrify.finetuning.one_run import (
    MOST_EPOCHS,
    drawn_examples,
    epochs_of,
    expected_updates,
    finetune_one,
    problem_of,
    shown_examples,
)
from electrify.finetuning.options import FinetuneSettings
from electrify.finetuning.problems import (
    Texts,
    class_weights,
    grade_classes,
)
from electrify.finetuning.tasks import Example, Sentence
from golden import tasks

PUBLISHED = FinetuneSettings(protocol="published")


@given(
    st.lists(st.integers(3, 60), min_size=1, max_size=300),
    st.integers(1, 40),
    st.integers(0, 5),
    st.integers(0, 3),
)
def test_every_example_once_an_epoch(lengths, batch_size, seed, epoch):
    lengths_N = torch.tensor(lengths)
    how = {"batch_size": batch_size, "seed": seed, "epoch": epoch}
    batches = loop.epoch_batches(lengths_N, **how)
    assert sorted(torch.cat(batches).tolist()) == list(range(len(lengths)))
    sizes = sorted(len(b) for b in batches)
    assert sizes[1:] == [batch_size] * (len(sizes) - 1)
    assert len(batches) == loop.updates_of(len(lengths), batch_size=batch_size, epochs=1)
    again = loop.epoch_batches(lengths_N, **how)
    assert all(torch.equal(a, b) for a, b in zip(batches, again, strict=True))


def test_epochs_differ_and_lengths_are_similar_in_a_batch() -> None:
    lengths_N = torch.randint(3, 60, (3200,), generator=torch.Generator().manual_seed(0))
    first, second = (loop.epoch_batches(lengths_N, batch_size=32, seed=0, epoch=e) for e in (0, 1))
    slots = sum(32 * int(lengths_N[b].max()) for b in first)
    assert lengths_N.sum() / slots > 0.9
    sets = [{frozenset(b.tolist()) for b in batches} for batches in (first, second)]
    assert not sets[0] & sets[1]


def test_predictions_are_in_the_order_of_the_rows(zoo, monkeypatch):
    task = tasks()["pairs"]
    problem = problem_of(task, reader_of(zoo / "electra"), QUICK)
    net, rows = problem.net(dropout=0.5), problem.training(task.train[:5])
    monkeypatch.setitem(loop.TOKENS, "cpu", 20)
    done: list[float] = []
    outputs, each = (
        lambda batch: [net(batch.inputs)],
        lambda _, logits_C: torch.from_numpy(logits_C),
    )
    found = torch.stack(loop.answers(net, rows, outputs, each, done.append))
    assert net.training
    assert (sum(done), len(done) > 2) == (pytest.approx(1), True)
    torch.testing.assert_close(found, alone(net.eval(), rows), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("total", [10, 37, 1000])
def test_the_published_schedule_is_its_formula(total: int) -> None:
    """polynomial_decay to 0 of power 1, times min(1, step / (total * warmup_proportion))."""
    found = [loop.rate_factor(PROTOCOLS["published"], step, total, 0.1) for step in range(total)]
    wanted = [(1 - step / total) * min(1.0, step / (0.1 * total)) for step in range(total)]
    assert found == pytest.approx(wanted, abs=1e-12)
    ours = [loop.rate_factor(PROTOCOLS["electrify"], step, total, 0.1) for step in range(total)]
    assert min(ours) > 0
    assert ours.index(max(ours)) == round(0.1 * total) - 1
    assert max(ours) == 1


X = (0.4, 0.8)


class Line(torch.nn.Module):
    """y = w x in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(1, 1, dtype=torch.float64))


class Squares:
    """The loss y^2: the gradient of the sum over the batch is 2 w (0.16 + 0.64) = 1.6 w, of the
    mean 0.8 w."""

    def loss(self, net: Line, batch: Tensor) -> Tensor:
        return (net.w[0, 0] * batch).square().mean()

    def weight(self, batch: Tensor) -> Tensor:
        return torch.tensor(len(batch))


class Points:
    lengths_N = torch.tensor([1, 1])
    targets = torch.zeros(2)

    def batch(self, index_B: Tensor) -> Tensor:
        return torch.tensor(X, dtype=torch.float64)[index_B]


def three_updates(protocol: Any) -> tuple[list[float], list[float]]:
    """w after each of three updates over both points at the peak rate 0.1, and the losses."""
    line, seen, losses = Line(), list[float](), list[float]()
    settings = FinetuneSettings(
        protocol=protocol, per_device_train_batch_size=2, warmup_ratio=0.5, weight_decay=0.01
    )
    how: dict[str, Any] = {"rates": {"w": 0.1}, "epochs": 3, "seed": 0}
    for _, _, loss in loop.train(line, Squares(), Points(), settings, **how):
        seen.append(line.w.item())
        losses.append(loss.item())
    return seen, losses


@pytest.mark.parametrize("most", [100, 1])  # in one piece, in two
def test_three_updates_of_the_published_protocol_by_hand(monkeypatch, most):
    """Rates: step / 1.5 * (1 - step / 3) = 0, 4/9, then 1 * 1/3. The sum's gradient, 1.6 w, is
    clipped to 1 (torch divides by the norm + 1e-6)."""
    w, m, v, wanted = 1.0, 0.0, 0.0, []
    for rate in (0.0, 0.1 * 4 / 9, 0.1 / 3):
        gradient = 1.6 * w
        gradient /= gradient + 1e-6
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        w -= rate * (m / (math.sqrt(v) + 1e-6) + 0.01 * w)
        wanted.append(w)
    monkeypatch.setitem(loop.TOKENS, "cpu", most)
    seen, losses = three_updates("published")
    assert seen == pytest.approx(wanted, abs=1e-12)
    assert seen[0] == 1.0
    # Without bias correction, the second update is about four times the rate.
    four = 1 - 0.1 * 4 / 9 * (0.19 / math.sqrt(0.001999) + 0.01)
    assert seen[1] == pytest.approx(four, abs=1e-5)
    assert losses[0] == pytest.approx(0.4)  # the mean, (0.16 + 0.64) / 2


def test_three_updates_of_our_protocol_by_hand() -> None:
    """Rates: 1/2, 1, 1/2 of the peak (warm-up over round(1.5) = 2 updates, one further); the mean's
    gradient is not clipped; bias correction."""
    w, m, v, wanted = 1.0, 0.0, 0.0, []
    for step, rate in enumerate((0.05, 0.1, 0.05), 1):
        gradient = 0.8 * w
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        w -= rate * 0.01 * w
        w -= rate * (m / (1 - 0.9**step)) / (math.sqrt(v / (1 - 0.999**step)) + 1e-6)
        wanted.append(w)
    seen, losses = three_updates("electrify")
    assert seen == pytest.approx(wanted, abs=1e-9)
    assert losses[0] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        *((name, {}) for name in ("classes", "pairs", "values", "several", "tags", "squad2")),
        ("classes", {"class_weights": "balanced"}),
        ("squad2", {"protocol": "published"}),
    ],
)
def test_a_long_batch_in_pieces_has_the_same_gradient(zoo, monkeypatch, name, given):
    """The mean of a batch, whatever number of rows or words each piece holds."""
    task = tasks()[name]
    train: Any = task.train[:20]
    if name == "several":  # what is not known takes no part
        train = [replace(e, unknown=(1, 2)[: k % 3 * (0 in e.label)]) for k, e in enumerate(train)]
    task = replace(task, train=tuple(train))
    settings = FinetuneSettings(max_seq_length=32, bf16="false", **given)
    problem = problem_of(task, reader_of(zoo / "bert"), settings)
    rows, net = problem.training(train), sharpened(problem.net(dropout=0.0))
    found = []
    for most in (1000, 40, 1):
        monkeypatch.setitem(loop.TOKENS, "cpu", most)
        net.zero_grad()
        index_B = torch.randperm(len(rows.lengths_N))
        loss = loop.backward(net, problem, rows, index_B, summed=False)
        found.append([loss, *(p.grad for p in net.parameters() if p.grad is not None)])
    largest = max(float(grad.abs().max()) for grad in found[0][1:])
    assert largest > 1e-2
    for pieces in found[1:]:
        torch.testing.assert_close(found[0], pieces, atol=1e-6 * max(1, largest), rtol=1e-5)


@pytest.mark.parametrize(
    ("protocol", "value_range", "wanted"),
    [
        ("published", (0.0, 5.0), [0.2, 0.4, 0.9]),
        ("published", None, [0.0, 1 / 3.5, 1.0]),
        ("electrify", (0.0, 5.0), [-1.0190493, -0.3396831, 1.3587324]),
    ],
)
def test_targets_of_a_regression(zoo, protocol, value_range, wanted):
    made = [Example("good", "bad", label) for label in (1.0, 2.0, 4.5)]
    task = task_of("regression", made, value_range=value_range)
    settings = replace(QUICK, protocol=protocol)
    problem = problem_of(task, reader_of(zoo / "bert"), settings)
    assert problem.training(made).targets.tolist() == pytest.approx(wanted)
    assert problem.values(torch.tensor(wanted)[:, None]) == pytest.approx([1.0, 2.0, 4.5], abs=1e-6)


def test_pairs_in_both_orders() -> None:
    """Those of known tasks, where the order does not matter, under the published protocol alone. A
    held-out pair is not trained on in its other order."""
    task = values()
    assert shown_examples(task, seed=0, settings=QUICK)[0] == drawn_examples(
        task, seed=0, settings=QUICK
    )
    shown, _ = shown_examples(task, seed=0, settings=PUBLISHED)
    first: Any = task.train[0]
    assert len(shown) == 72
    assert shown[36] == Example(first.pair, first.text, first.label)
    assert len(shown_examples(replace(task, symmetric=False), seed=0, settings=PUBLISHED)[0]) == 36
    rows = [Example(f"a{k}", f"b{k}", k % 2) for k in range(40)]
    held = replace(PUBLISHED, load_best_model_at_end=True)
    pairs = task_of("classification", rows, symmetric=True)
    shown, selection = shown_examples(pairs, seed=0, settings=held)
    assert len(shown) == 2 * (40 - len(selection)) == 72
    trained = {frozenset((e.text, e.pair)) for e in shown}
    assert not trained & {frozenset((e.text, e.pair)) for e in selection}


def test_a_small_set_is_shown_more_often() -> None:
    """100 examples are 4 batches of 32."""
    rows = [Example("a", None, k % 2) for k in range(100)]
    small = task_of("classification", rows, min_updates=100, epochs=3)
    plain = FinetuneSettings()
    assert expected_updates(small, plain) == 100
    for settings, examples, epochs in (
        (plain, 100, 25),
        (plain, 10_000, 3),
        (replace(plain, min_train_steps=40), 100, 10),
        (replace(plain, min_train_steps=10**6), 1, MOST_EPOCHS),
        (replace(plain, num_train_epochs=2.0), 100, 2),
        (PUBLISHED, 100, 3),
        (replace(plain, frozen_encoder="last"), 100, 20),
    ):
        assert epochs_of(small, settings, examples=examples) == epochs
    for number in (1, 5, 49):  # 49 quarters of an epoch are 12.25
        assert expected_updates(small, replace(plain, max_steps=number)) == number


def test_a_run_is_a_function_of_its_seed(zoo: Path) -> None:
    """It leaves torch's generator as it was."""
    task, model = reviews_task(), f"random:{zoo / 'electra'}"
    torch.manual_seed(5)
    first = finetune_one(model, task, seed=3, settings=QUICK)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1))
    again, other = (finetune_one(model, task, seed=s, settings=QUICK) for s in (3, 4))
    assert again.curve == first.curve
    assert other.curve[0].loss != first.curve[0].loss


def test_a_class_and_a_value_are_learnt(zoo: Path) -> None:
    found = finetune_one(str(zoo / "electra"), reviews_task(), seed=0, settings=THOROUGH)
    assert found.scores["accuracy"] == 1.0
    # 7 updates an epoch, every fifth of 24 epochs and the last.
    assert [p.step for p in found.curve] == [35, 70, 105, 140, 168]
    assert found.curve[-1].metrics == found.scores
    assert (found.train_examples, found.updates) == (54, 168)
    found = finetune_one(str(zoo / "electra"), values(), seed=0, settings=THOROUGH)
    assert found.scores["pearson"] > 0.9, found.curve


def test_weights_of_classes_by_hand() -> None:
    """Nine of a, three of b: 12 / (2 * 9) and 12 / (2 * 3)."""
    rows = [Example("t", None, int(k >= 9)) for k in range(12)]
    wanted = torch.tensor([2 / 3, 2.0])
    torch.testing.assert_close(class_weights(task_of("classification", rows)), wanted)
    tags = [Sentence(("x", "y", "z", "w"), ("a", "a", "a", "b"))]
    torch.testing.assert_close(class_weights(task_of("tagging", tags)), wanted)
    several = [Example("t", None, (0, 1) if k < 3 else (1,)) for k in range(12)]
    found = class_weights(task_of("multilabel", several, labels=("a", "b")))
    torch.testing.assert_close(found, torch.tensor([[2 / 3, 2.0], [6.5, 13 / 24]]))


def test_the_loss_with_weights(zoo: Path) -> None:
    logits, targets = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])
    weights = torch.tensor([1.0, 0.5, 2.0])
    each = F.cross_entropy(logits, targets, reduction="none") * torch.tensor([1.0, 2.0, 0.5, 0.5])
    torch.testing.assert_close(grade_classes(logits, targets, weights), each.mean())
    several = torch.tensor([[1.0, math.nan, 0.0], [math.nan, math.nan, 1.0]])
    pairs = torch.tensor([[1.0, 4.0], [1.0, 1.0], [3.0, 1.0]])
    one = F.binary_cross_entropy_with_logits
    losses = [4 * one(logits[0, 0], several[0, 0]), 3 * one(logits[0, 2], several[0, 2])]
    losses.append(one(logits[1, 2], several[1, 2]))
    how: dict[str, Any] = {"max_seq_length": 16, "weights": pairs}
    problem = Texts(reader_of(zoo / "bert"), "multilabel", ("a", "b", "c"), **how)
    batch: Any = SimpleNamespace(inputs={}, targets=several)
    loss = problem.loss(lambda inputs: logits[:2], batch)
    torch.testing.assert_close(loss, torch.stack(losses).mean())
    assert float(problem.weight(batch)) == pytest.approx(2 / 3 + 1 / 3)
