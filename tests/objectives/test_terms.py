import itertools
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import precision_score, recall_score, roc_auc_score
from torch import Tensor

from batches import (
    built,
    counts_of,
    draws_of,
    pack,
    ragged_batch,
    terms_of,
    text_batch,
    tiny,
    value,
)
from electrify.build import Built
from electrify.corruption.choosing import enough
from electrify.model.likelihood import token_ce
from electrify.objectives.contrast import crop, partner_ce
from electrify.objectives.losses import binary_ce
from electrify.objectives.metrics import BINS, REACH, detection_summary, histogram, summarise
from electrify.terms import Term, term, weighted
from electrify.tokens import Tokens

RECIPES = ["electra-tiny", "bert-tiny"]


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


def test_token_ce_of_impossible_tokens() -> None:
    """-inf beside the target is probability 0; -inf at it is an infinite loss, never nan."""
    logits = torch.tensor([[0.0, -math.inf, 0.0], [-math.inf, 0.0, 0.0]], requires_grad=True)
    loss = token_ce(logits, torch.tensor([0, 0]))
    assert loss.tolist() == [pytest.approx(math.log(2)), math.inf]
    loss[0].backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == [[-0.5, 0.0, 0.5], [0.0, 0.0, 0.0]]


def test_binary_ce_by_hand() -> None:
    loss = binary_ce(
        torch.tensor([0.0, math.log(3), math.log(3), -1000.0, 1000.0]),
        torch.tensor([True, True, False, False, False]),
    )
    assert loss.tolist() == pytest.approx(
        [math.log(2), math.log(4 / 3), math.log(4), 0, 1000], abs=1e-6
    )


def test_term_by_hand() -> None:
    values = torch.tensor([1.0, 2.0, 4.0])
    for where, total, count in ((None, 7, 3), ([True, False, True], 5, 2), ([False] * 3, 0, 0)):
        found = term(values, where if where is None else torch.tensor(where))
        assert (float(found.sum), int(found.count)) == (total, count)


@pytest.mark.parametrize("recipe", RECIPES)
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


def gradients(
    b: Built, parts: list[Tokens], weights: dict[str, float], *, whole: Tokens
) -> tuple[dict[str, list[float]], dict[str, Tensor]]:
    """Terms and gradients of a batch fed in parts, as the loop does it."""
    b.objective.zero_grad(set_to_none=True)
    counts, total, first = counts_of(b.objective, whole, draws_of(whole, seed=3)), {}, 0
    for part in parts:
        terms = terms_of(b.objective, part, draws_of(part, seed=3, first_row=first))
        weighted(terms, weights, counts).backward()
        first += part.num_rows
        for name, t in terms.items():
            old = total.setdefault(name, [0.0, 0.0])
            total[name] = [old[0] + value(t.sum), old[1] + float(t.count)]
    return total, {
        n: p.grad.clone() for n, p in b.objective.named_parameters() if p.grad is not None
    }


CUTS = [(0, 1, 2, 3, 4), (0, 3, 4)]
MANY_TERMS = [*RECIPES, "corrective-tiny", "teams-tiny", "amos-tiny"]
GROUPS = [("coco-lm-tiny", (0, 2, 4))]  # of two rows, which no cut takes apart


@pytest.mark.parametrize(
    ("recipe", "cuts"), [*itertools.product(MANY_TERMS, CUTS), *GROUPS], ids=str
)
def test_micro_batches_equal_the_whole(recipe: str, cuts: tuple[int, ...]) -> None:
    """Also where the parts hold very different numbers of tokens, and none at all: a mean of means
    would fail."""
    fields = {"contrast_rows": 2} if recipe == "coco-lm-tiny" else {}
    b, weights = built(recipe, mask_rate=0.3, **fields), tiny(recipe).objective.term_weights
    tokens = ragged_batch()
    whole, g_whole = gradients(b, [tokens], weights, whole=tokens)
    parts, g_parts = gradients(
        b, [tokens.rows(i, j) for i, j in pairwise(cuts)], weights, whole=tokens
    )
    for name, (total, count) in whole.items():
        assert parts[name][0] == pytest.approx(total, rel=1e-6, abs=1e-6)
        assert parts[name][1] == count
    assert g_whole.keys() == g_parts.keys() == {n for n, _ in b.objective.named_parameters()}
    scale = max(float(g.abs().max()) for g in g_whole.values())
    for name, g in g_whole.items():
        torch.testing.assert_close(
            g_parts[name],
            g,
            rtol=1e-5,
            atol=1e-6 * max(1.0, scale),
            msg=lambda m, name=name: f"{name}: {m}",
        )


def test_weighted_by_hand() -> None:
    terms = {
        name: Term(torch.tensor(total), torch.tensor(count))
        for name, total, count in (("a", 6.0, 2), ("b", 5.0, 1), ("rate", 1.0, 1))
    }
    counts = {
        "a": torch.tensor(3.0),
        "b": torch.tensor(0.0),
    }  # global counts: of all micro-batches, not this one's
    assert value(weighted(terms, {"a": 2.0, "b": 0.1}, counts)) == pytest.approx(
        2 * 6 / 3 + 0.1 * 5 / 1
    )


@pytest.mark.parametrize(
    "weights", [{"a": 1.0}, {"a": 1.0, "b": 1.0, "c": 1.0}, {}, {"a": 1.0, "rate": 1.0}], ids=str
)
def test_weights_must_name_the_losses(weights: dict[str, float]) -> None:
    terms = {n: Term(torch.tensor(1.0), torch.tensor(1)) for n in ("a", "b", "rate")}
    with pytest.raises(ValueError, match=r"the objective's losses are \['a', 'b'\]"):
        weighted(terms, weights, {n: torch.tensor(1.0) for n in ("a", "b")})


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


logits_and_labels = st.integers(2, 80).flatmap(
    lambda n: st.tuples(
        st.lists(
            st.one_of(
                st.floats(-9, 9, width=32),
                st.sampled_from([0.0, -0.0, -1e-7, 1e-7, 0.5, -30.0, 30.0, 1e30, -1e30]),
            ),
            min_size=n,
            max_size=n,
        ),
        st.lists(st.booleans(), min_size=n, max_size=n),
    )
)


def blind(counts_2B: Tensor) -> float:
    """Half the share of (negative, positive) pairs inside a bin: the figure may be off by it."""
    negative, positive = counts_2B
    return float((negative * positive).sum() / (negative.sum() * positive.sum()) / 2)


@settings(max_examples=20)
@given(logits_and_labels)
def test_detection_summary_is_sklearns(case: tuple[list[float], list[bool]]) -> None:
    logits, labels = torch.tensor(case[0], dtype=torch.float32), torch.tensor(case[1])
    counts = histogram(logits, labels, torch.ones_like(labels)).sum
    found = detection_summary(counts)
    predicted = logits >= 0
    assert found["precision"] == pytest.approx(precision_score(labels, predicted, zero_division=0))
    assert found["recall"] == pytest.approx(recall_score(labels, predicted, zero_division=0))
    assert found["replaced"] == pytest.approx(float(labels.float().mean()))
    if labels.any() and not labels.all():
        assert abs(found["auc"] - roc_auc_score(labels, logits.numpy())) <= blind(counts) + 1e-9
    else:
        assert found["auc"] == 0.5


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
    logits = (centre + spread * rng.standard_normal(20_000) + shift * labels).astype(np.float32)
    counts = histogram(
        torch.tensor(logits), torch.tensor(labels), torch.ones(20_000, dtype=torch.bool)
    ).sum
    assert detection_summary(counts)["auc"] == pytest.approx(
        roc_auc_score(labels, logits), abs=1e-3
    )


def test_histogram_leaves_pads_out() -> None:
    rng = torch.Generator().manual_seed(0)
    logits = 8 * torch.randn(300, generator=rng)
    labels, where = (torch.rand(300, generator=rng) < share for share in (0.3, 0.8))
    found = histogram(logits, labels, where).sum
    assert torch.equal(found, histogram(logits[where], labels[where], where[where]).sum)
    assert found.sum(1).tolist() == [int((where & ~labels).sum()), int((where & labels).sum())]


def test_bins_by_hand() -> None:
    """Bin B / 2 begins at logit 0, so that `positive` means probability of at least one half, to
    the last bit."""
    half, width = BINS // 2, 2 * REACH / BINS
    tiny_one = float(np.nextafter(np.float32(0), np.float32(-1)))
    logits = torch.tensor(
        [0.0, -0.0, tiny_one, 1.5 * width, -1.5 * width, 1e30, -1e30, math.inf, -math.inf, REACH]
    )
    counts = histogram(
        logits, torch.zeros(10, dtype=torch.bool), torch.ones(10, dtype=torch.bool)
    ).sum
    expected = {half: 2, half - 1: 1, half + 1: 1, half - 2: 1, BINS - 1: 3, 0: 2}
    assert {int(i): int(counts[0, i]) for i in counts[0].nonzero()} == expected
    assert not counts[1].any()


WEIGHTS = {"generator": 1.0, "rtd": 50.0, "correct": 1.0, "contrast": 1.0}
ASKED: dict[str, Any] = {"contrast_rows": 2, "term_weights": WEIGHTS}


def at(*degrees: float) -> torch.Tensor:
    radians_N = torch.tensor(degrees).deg2rad()
    return 7 * torch.stack([radians_N.cos(), radians_N.sin()], dim=1)


@pytest.mark.parametrize("filled", [False, True])
def test_by_hand(filled: bool) -> None:
    """A group of two sequences at 0 and 30 degrees, whose partners lie at 60 and 90, and a group of
    one, where only the partner is left. With temperature .5 the first vector has exp(2 cos 60) for
    its partner, beside exp(2 cos 30) and exp(2 cos 90)."""
    group_S = torch.tensor([0, 0, 1, 0][: 3 + filled])
    valid_S = torch.tensor([True, True, True, False]) if filled else None
    views = [(0, 30, 45, 0)[: 3 + filled], (60, 90, 200, 0)[: 3 + filled]]
    loss_K, found_K = partner_ce(
        torch.cat([at(*views[0]), at(*views[1])]), group_S, valid_S, temperature=0.5
    )

    def ce(partner: float, *others: float) -> float:
        logits = [2 * math.cos(math.radians(x)) for x in (partner, *others)]
        return math.log(sum(map(math.exp, logits))) - logits[0]

    real = [0, 1, 2, *range(3 + filled, 6 + filled)]
    wanted = [ce(60, 30, 90), ce(60, 30, 30), 0.0, ce(60, 30, 30), ce(60, 90, 30), 0.0]
    assert loss_K[real].tolist() == pytest.approx(wanted, abs=1e-5)
    assert loss_K.isfinite().all()
    assert found_K[real].tolist() == [False, False, True, False, False, True]


@pytest.mark.parametrize("fixed", [False, True])
def test_groups_do_not_see_each_other(fixed: bool) -> None:
    """Whatever the split of a batch, the contrast adds up to the same sum, and so do gradients."""
    tokens = text_batch(seed=5, rows=8, row_length=32)
    made = built("corrective-tiny", **ASKED).objective.eval()
    whole = terms_of(made, tokens, draws_of(tokens), fixed=fixed)["contrast"]
    parts = [
        terms_of(made, tokens.rows(a, a + 2), draws_of(tokens).rows(a, a + 2))["contrast"]
        for a in range(0, 8, 2)
    ]
    named = dict(made.named_parameters())
    want, *each = (
        torch.autograd.grad(t.sum, list(named.values()), materialize_grads=True)
        for t in (whole, *parts)
    )
    for name, g, *shares in zip(named, want, *each, strict=True):
        torch.testing.assert_close(sum(shares), g, rtol=1e-4, atol=1e-5, msg=name)
    assert sum(bool(g.any()) for g in want) > 20
    assert value(whole.sum) == pytest.approx(sum(value(p.sum) for p in parts), rel=1e-5)
    assert int(whole.count) == sum(int(p.count) for p in parts) == 2 * int(tokens.first_T.sum())
    assert value(whole.sum) > 1


def test_gradients_reach_the_encoder_and_its_own_head_only() -> None:
    tokens = text_batch(seed=1, rows=4, row_length=32)
    made = built("corrective-tiny", **ASKED).objective
    terms = terms_of(made, tokens, draws_of(tokens))
    value_of = terms["contrast"].sum
    own = dict(made.vectors.named_parameters())
    grads = torch.autograd.grad(
        value_of, list(made.parameters()), allow_unused=True, retain_graph=True
    )
    reached = {n for (n, _), g in zip(made.named_parameters(), grads, strict=True) if g is not None}
    assert {n for n in reached if n.startswith("vectors.")} == {f"vectors.{n}" for n in own}
    others = {n for n in reached if not n.startswith(("vectors.", "encoder."))}
    # The tables of words and positions are the generator's, too.
    assert all("embeddings" in n for n in others), others
    assert any(n.startswith("encoder.blocks.0") for n in reached)


def test_in_its_first_part_a_run_has_no_contrast() -> None:
    tokens = text_batch(seed=1, rows=4, row_length=32)
    made = built("corrective-tiny", **ASKED | {"mlm_share": 0.5}).objective
    early = draws_of(tokens)
    late = replace(early, progress=torch.tensor(0.5))
    assert made.plan(tokens, early).view is None
    assert int(terms_of(made, tokens, early)["contrast"].count) == 0
    assert int(terms_of(made, tokens, late)["contrast"].count) > 0


@pytest.mark.parametrize("fixed", [False, True])
def test_rows_of_padding_alone(fixed: bool) -> None:
    """What one of several processes may get of the last batch of a validation."""
    empty = pack([[], []], row_length=32)
    objective = built("corrective-tiny", **ASKED).objective.eval()
    terms = terms_of(objective, empty, draws_of(empty), fixed=fixed)
    for name in ("contrast", "contrast_accuracy"):
        assert (value(terms[name].sum), value(terms[name].count)) == (0.0, 0.0)


@pytest.mark.parametrize("runs", [7, 20, 40])
def test_the_runs_of_a_crop_are_one_of_few_numbers(runs: int) -> None:
    """A compiled step is compiled anew for each."""
    tokens = replace(text_batch(seed=4, rows=4, row_length=32), runs=runs)
    exact = crop(tokens, draws_of(tokens), share=0.9, fixed=False).tokens.runs
    few = crop(tokens, draws_of(tokens), share=0.9, fixed=True).tokens.runs
    assert exact == 3 * runs
    assert few == enough(4, 3 * runs) >= 3 * runs
    assert crop(tokens, draws_of(tokens), share=0.9, fixed=True).tokens.runs == few
