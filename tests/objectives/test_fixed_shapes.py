"""A batch whose list of chosen positions is filled up to a fixed length is graded as it is without:
what a compiled step needs."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stubs import part

from batches import at_of, built, counts_of, draws_of, ragged_batch, text_batch
from electrify.corruption import choosing
from electrify.corruption.choosing import SPARE, STEP, WHOLE, Chooser, count, enough, positions
from electrify.draws import Draws
from electrify.objectives.objective import Step
from electrify.terms import Terms, weighted
from electrify.tokens import Tokens

RECIPES = (
    *("bert-tiny", "electra-tiny", "electra-15-tiny", "replace-mlm-tiny", "all-tokens-mlm-tiny"),
    *("corrective-tiny", "teams-tiny", "amos-tiny", "adversarial-tiny", "electric-tiny"),
    *("two-stage-tiny", "unigram-tiny"),
)
SENTENCE: dict[str, Any] = {
    "clean_rate": 0.4,
    "term_weights": {"generator": 1.0, "rtd": 50.0, "sentence": 1.0},
}
DECODER: dict[str, Any] = {
    "architecture": "deberta",
    "init": "published",
    "position_buckets": 16,
    "generator_size": 1.0,
    "mask_decoder": True,
}
CASES = [
    *((name, {}) for name in RECIPES),
    ("electra-tiny", {"mask_choice": "rare"}),
    ("electra-tiny", SENTENCE),
    ("electra-tiny", {"disallow_correct": True}),
    ("electra-tiny", DECODER),
    ("bert-tiny", DECODER),
]


def graded(
    objective: Any, tokens: Tokens, draws: Draws, weights: dict[str, float], *, fixed: bool
) -> tuple[Terms, dict[str, torch.Tensor]]:
    objective.zero_grad()
    made = objective.plan(tokens, draws, fixed=fixed)
    assert (made.valid_M is not None) == fixed
    terms = Step(objective)(tokens, made)
    weighted(terms, weights, made.counts).backward()
    return terms, {n: p.grad.clone() for n, p in objective.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("name", "fields"), CASES, ids=str)
def test_the_same_terms_and_gradients(
    monkeypatch: pytest.MonkeyPatch, name: str, fields: dict[str, Any], training: bool
) -> None:
    made = built(name, **fields)
    objective: Any = made.objective.train(training)
    weights = dict.fromkeys(counts_of(objective, ragged_batch(), draws_of(ragged_batch())), 1.0)
    tokens = ragged_batch(seed=3)
    draws = draws_of(tokens, seed=5)
    chosen = len(at_of(objective.corruptor.chooser, tokens, draws))
    assert chosen > 3
    terms, gradients = graded(objective, tokens, draws, weights, fixed=False)
    counts = {n: int(c) for n, c in counts_of(objective, tokens, draws).items()}
    for whole in (chosen, chosen + 29):  # lists without a filler, and with many
        monkeypatch.setattr(choosing, "WHOLE", whole)
        fixed = objective.plan(tokens, draws, fixed=True)
        assert len(fixed.at_M) % whole == 0
        assert int(fixed.valid_M.sum()) == chosen
        assert {n: int(c) for n, c in fixed.counts.items()} == counts
        filled, slopes = graded(objective, tokens, draws, weights, fixed=True)
        assert terms.keys() == filled.keys()
        for k, t in terms.items():
            pairs = [(one.sum.double(), one.count.double()) for one in (filled[k], t)]
            # Sums of float32, in another order.
            torch.testing.assert_close(*pairs, rtol=2e-6, atol=1e-6, msg=k)
            assert t.kind == filled[k].kind
        assert gradients.keys() == slopes.keys()
        for n, g in gradients.items():
            torch.testing.assert_close(slopes[n], g, rtol=1e-4, atol=1e-6, msg=n)


def test_positions_in_order_then_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    chooser: Chooser = part(built("electra-tiny").objective).corruptor.chooser
    tokens = ragged_batch(seed=1)
    draws = draws_of(tokens)
    at = at_of(chooser, tokens, draws)
    monkeypatch.setattr(choosing, "SPARE", 0.1)
    for spare in (3, 0):
        monkeypatch.setattr(choosing, "WHOLE", len(at) + spare)
        filled = chooser.plan(tokens, draws, fixed=True)
        assert filled.at_M.tolist() == [*at.tolist(), *[0] * spare]
        assert filled.valid_M is not None
        assert filled.valid_M.tolist() == [*[True] * len(at), *[False] * spare]
        assert int(count(filled)) == len(at)
    assert chooser.plan(tokens, draws).valid_M is None


@given(st.integers(1, 2000), st.floats(0, 1), st.floats(0.01, 0.99))
def test_lists_have_few_lengths_and_lose_nothing(size: int, share: float, usual: float) -> None:
    """However many are chosen of a batch of this size: one length for every number up to the usual
    one, a quarter more for each step beyond."""
    chosen_T = torch.rand(size, generator=torch.Generator().manual_seed(size)) < share
    at_M, valid_M = positions(chosen_T, fixed_for=usual)
    assert valid_M is not None
    assert torch.equal(at_M[valid_M], chosen_T.nonzero().squeeze(1))
    assert not at_M[~valid_M].any()
    assert len(at_M) <= size
    lengths = {min(enough(SPARE * usual * size, number), size) for number in range(size + 1)}
    assert len(at_M) in lengths
    assert len(lengths) <= 2 + math.log(max(1, size / max(WHOLE, usual * size))) / math.log(STEP)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_one_graph(name: str) -> None:
    """Nothing in a step waits for a number: dynamo takes each objective whole, and the graph gives
    the same terms."""
    objective: Any = built(name).objective
    tokens = text_batch(seed=4, rows=4, row_length=32)
    torch.compiler.reset()
    compiled = torch.compile(Step(objective), backend="eager", fullgraph=True, dynamic=False)
    made = objective.plan(tokens, draws_of(tokens), fixed=True)
    plain, graph = Step(objective)(tokens, made), compiled(tokens, made)
    assert plain.keys() == graph.keys()
    for k, t in plain.items():
        torch.testing.assert_close(graph[k].sum.double(), t.sum.double(), msg=k)
