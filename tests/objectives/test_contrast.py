"""The contrast of corrective: an example by hand, groups of rows, and where its gradients go."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from batches import built, draws_of, pack, ragged_batch, terms_of, text_batch, value
from electrify.corruption.cropping import crop
from electrify.corruption.plan import enough
from electrify.flop_counts import Convention, passes_flops
from electrify.objectives.losses import partner_ce
from electrify.terms import weighted

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


def test_in_bfloat16_the_cosines_are_compared_in_float32() -> None:
    tokens = text_batch(seed=5, rows=8, row_length=32)
    made = built("corrective-tiny", **ASKED).objective.eval()
    whole = terms_of(made, tokens, draws_of(tokens))["contrast"]
    with torch.autocast("cpu", torch.bfloat16):
        half = terms_of(made, tokens, draws_of(tokens))["contrast"]
    assert half.sum.dtype == torch.float32
    assert value(half.sum) == pytest.approx(value(whole.sum), rel=0.02)


def test_the_count_is_that_of_the_plan_and_empty_rows_count_nothing() -> None:
    tokens = ragged_batch()
    made = built("corrective-tiny", **ASKED).objective.eval()
    plan = made.plan(tokens, draws_of(tokens))
    terms = terms_of(made, tokens, draws_of(tokens))
    assert int(plan.counts["contrast"]) == int(terms["contrast"].count)
    moved: Any = plan.to("cpu")
    assert torch.equal(moved.view.tokens.ids_T, vars(plan)["view"].tokens.ids_T)


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


def test_it_learns_to_find_the_crops_of_text_that_it_has_not_seen() -> None:
    made = built("corrective-tiny", **ASKED | {"contrast_rows": 8}).objective
    optimizer = torch.optim.Adam(made.parameters(), lr=2e-3)
    held_out = text_batch(seed=1000, rows=8, row_length=32)

    def loss() -> float:
        term = terms_of(made, held_out, draws_of(held_out))["contrast"]
        return value(term.sum / term.count)

    before = loss()
    for step in range(40):
        tokens = text_batch(seed=step, rows=8, row_length=32)
        draws = draws_of(tokens, step=step)
        plan = made.plan(tokens, draws)
        terms = terms_of(made, tokens, draws)
        optimizer.zero_grad()
        weighted({n: terms[n] for n in WEIGHTS}, WEIGHTS, plan.counts).backward()
        optimizer.step()
    assert loss() < before - 0.1, before


def test_in_its_first_part_a_run_has_no_contrast() -> None:
    tokens = text_batch(seed=1, rows=4, row_length=32)
    made = built("corrective-tiny", **ASKED | {"mlm_share": 0.5}).objective
    early = draws_of(tokens)
    late = replace(early, progress=torch.tensor(0.5))
    assert made.plan(tokens, early).view is None
    assert int(terms_of(made, tokens, early)["contrast"].count) == 0
    assert int(terms_of(made, tokens, late)["contrast"].count) > 0


@pytest.mark.parametrize("convention", ["hardware", "paper"])
def test_the_second_view_costs_a_pass_of_the_encoder(convention: Convention) -> None:
    plain = built("corrective-tiny").objective
    made = built("corrective-tiny", **ASKED).objective
    cost = {
        name: passes_flops(o.passes(), row_length=32, convention=convention)
        for name, o in (("plain", plain), ("contrast", made))
    }
    electra = built("electra-tiny").objective
    encoder = [p for p in electra.passes() if p.network is electra.encoder]
    one = passes_flops(encoder, row_length=32, convention=convention)
    assert cost["contrast"] - cost["plain"] == pytest.approx(one, rel=1e-6)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("fixed", [False, True])
def test_rows_of_padding_alone(training: bool, fixed: bool) -> None:
    """What one of several processes may get of the last batch of a validation."""
    empty = pack([[], []], row_length=32)
    objective = built("corrective-tiny", **ASKED).objective.train(training)
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
