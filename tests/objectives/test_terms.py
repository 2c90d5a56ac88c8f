"""Cross-entropy with a gradient by hand, and the figures of detectors."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import precision_score, recall_score, roc_auc_score

from batches import built, draws_of, terms_of, text_batch, value
from electrify.model.heads import token_ce
from electrify.objectives.objective import BINS, REACH, detection_summary, histogram, summarise
from electrify.terms import Term


@given(
    st.integers(0, 6),
    st.integers(1, 12),
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.sampled_from([1.0, 30.0, 1e4]),
    st.integers(0, 999),
)
def test_token_ce_is_torchs_forward_and_backward(rows, vocab, dtype, scale, seed):
    """The gradient is written by hand: weights of any sign and size before it, logits of any size,
    no row at all, a vocabulary of one."""
    rng = torch.Generator().manual_seed(seed)
    logits = (scale * torch.randn(rows, vocab, generator=rng)).to(dtype)
    target, weight = (
        torch.randint(0, vocab, (rows,), generator=rng),
        100 * torch.randn(rows, generator=rng),
    )
    ours, torchs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss = token_ce(ours, target)
    expected = torch.nn.functional.cross_entropy(torchs.float(), target, reduction="none")
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6 * scale)
    (loss * weight).sum().backward()
    (expected * weight).sum().backward()
    assert ours.grad is not None
    assert ours.grad.dtype == dtype
    torch.testing.assert_close(
        ours.grad, torchs.grad, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-4 * scale
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_token_ce_is_the_same_when_compiled(dtype, monkeypatch) -> None:
    """The compiler is given other operators, with the same results."""
    rng = torch.Generator().manual_seed(0)
    logits = (10 * torch.randn(64, 50, generator=rng)).to(dtype).requires_grad_()
    target = torch.randint(0, 50, (64,), generator=rng)
    found = []
    for compiling in (False, True):
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda known=compiling: known)
        loss = token_ce(logits, target)
        found.append((loss, *torch.autograd.grad(loss.sum(), logits)))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_token_ce_of_impossible_tokens() -> None:
    """-inf beside the target is probability 0; -inf at it is an infinite loss, never nan."""
    logits = torch.tensor([[0.0, -math.inf, 0.0], [-math.inf, 0.0, 0.0]], requires_grad=True)
    loss = token_ce(logits, torch.tensor([0, 0]))
    assert loss.tolist() == [pytest.approx(math.log(2)), math.inf]
    loss[0].backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == [[-0.5, 0.0, 0.5], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize("recipe", ["electra-tiny", "bert-tiny"])
def test_the_parts_of_the_loss_add_up(recipe: str) -> None:
    b = built(recipe, mask_mix=[0.4, 0.3, 0.3], mask_rate=0.5)
    tokens = text_batch(seed=0, rows=4, row_length=32)
    terms = terms_of(b.objective, tokens, draws_of(tokens))
    name = "mlm" if recipe == "bert-tiny" else "generator"
    parts = [terms[f"{name}_loss_{kind}"] for kind in ("masked", "kept", "random")]
    assert sum(int(p.count) for p in parts) == int(terms[name].count)
    assert all(int(p.count) > 0 for p in parts)
    assert sum(value(p.sum) for p in parts) == pytest.approx(value(terms[name].sum), rel=1e-6)
    assert not any(t.sum.requires_grad for n, t in terms.items() if n not in (name, "rtd")), (
        "rates carry no graph"
    )


def test_summarise() -> None:
    counts = torch.zeros(2, BINS, dtype=torch.float64)
    counts[0, 0], counts[1, -1] = 3, 1
    one = torch.ones(())
    terms = {
        "x": Term(torch.tensor(6.0), torch.tensor(4)),
        "never": Term(torch.tensor(0.0), torch.tensor(0)),
        "d": Term(counts, one, "histogram"),
        "r": Term(counts, one, "ranking"),
    }
    assert summarise(terms) == {
        "x": 1.5,
        "d_auc": 1.0,
        "d_precision": 1.0,
        "d_recall": 1.0,
        "d_replaced": 0.25,
        "r_auc": 1.0,
    }


logits = st.one_of(
    st.floats(-9, 9, width=32),
    st.sampled_from([0.0, -0.0, -1e-7, 1e-7, 0.5, -30.0, 30.0, 1e30, -1e30]),
)


@settings(max_examples=25)
@given(st.lists(st.tuples(logits, st.booleans(), st.booleans()), min_size=2, max_size=80))
def test_detection_summary_is_sklearns(tokens: list[tuple[float, bool, bool]]) -> None:
    """AUC may be off by half the share of (negative, positive) pairs inside a bin. Pads count
    nowhere."""
    logits_T, label_T, where_T = (torch.tensor(x) for x in zip(*tokens, strict=True))
    negative_B, positive_B = counts_2B = histogram(logits_T, label_T, where_T).sum
    labels, scores = label_T[where_T], logits_T[where_T]
    assert counts_2B.sum(1).tolist() == [int((~labels).sum()), int(labels.sum())]
    found = detection_summary(counts_2B)
    if not len(labels) or labels.all() or not labels.any():
        assert found["auc"] == 0.5
    else:
        pairs = negative_B.sum() * positive_B.sum()
        blind = float((negative_B * positive_B).sum() / pairs / 2)
        assert abs(found["auc"] - roc_auc_score(labels, scores.numpy())) <= blind + 1e-9
    if len(labels):
        given = labels, scores >= 0
        assert found["precision"] == pytest.approx(precision_score(*given, zero_division=0))
        assert found["recall"] == pytest.approx(recall_score(*given, zero_division=0))
        assert found["replaced"] == pytest.approx(float(labels.float().mean()))


@pytest.mark.parametrize(
    ("centre", "spread", "shift"),
    [(-2.0, 0.05, 0.05), (-2.2, 0.3, 0.1), (-6.0, 1.5, 5.0), (-9.0, 2.0, 12.0), (0.0, 1.0, 0.0)],
    ids=str,
)
def test_auc_is_within_a_thousandth_of_sklearns(centre: float, spread: float, shift: float) -> None:
    """A discriminator that says .12 of everything (the plateau), and one that is sure: equal bins
    of probability are blind to both."""
    rng = np.random.default_rng(0)
    labels = rng.random(20_000) < 0.12
    scores = (centre + spread * rng.standard_normal(20_000) + shift * labels).astype(np.float32)
    every = torch.ones(20_000, dtype=torch.bool)
    found = detection_summary(histogram(torch.tensor(scores), torch.tensor(labels), every).sum)
    assert found["auc"] == pytest.approx(roc_auc_score(labels, scores), abs=1e-3)


def test_bins_by_hand() -> None:
    """Bin B / 2 begins at logit 0, so that `positive` means probability of at least one half, to
    the last bit."""
    half, width = BINS // 2, 2 * REACH / BINS
    least = float(np.nextafter(np.float32(0), np.float32(-1)))
    scores = [0.0, -0.0, least, 1.5 * width, -1.5 * width, 1e30, -1e30, math.inf, -math.inf, REACH]
    none = torch.zeros(10, dtype=torch.bool)
    counts = histogram(torch.tensor(scores), none, ~none).sum
    expected = {half: 2, half - 1: 1, half + 1: 1, half - 2: 1, BINS - 1: 3, 0: 2}
    assert {int(i): int(counts[0, i]) for i in counts[0].nonzero()} == expected
    assert not counts[1].any()
