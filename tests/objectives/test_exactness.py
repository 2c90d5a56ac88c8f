"""The same sums and gradients however a batch is cut, and whether or not its lists of chosen
positions are filled up to a fixed length, as a compiled step needs them."""

import itertools
import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from batches import at_of, built, counts_of, draws_of, ragged_batch, terms_of, text_batch, tiny
from electrify.corruption import choosing
from electrify.corruption.choosing import SPARE, STEP, WHOLE, enough, positions
from electrify.objectives.objective import Step
from electrify.terms import weighted
from electrify.tokens import Tokens

Found = tuple[dict[str, tuple[Tensor, Tensor]], dict[str, Tensor]]


def graded(
    objective: Any,
    parts: list[Tokens],
    weights: dict[str, float],
    *,
    whole: Tokens,
    fixed: bool = False,
) -> Found:
    """Sums and counts of all terms, and the gradients, of a batch fed in parts, as the loop does
    it."""
    objective.zero_grad(set_to_none=True)
    counts = objective.plan(whole, draws_of(whole, seed=3), fixed=fixed).counts
    found: dict[str, tuple[Tensor, Tensor]] = {}
    first = 0
    for part in parts:
        terms = terms_of(objective, part, draws_of(part, seed=3, first_row=first), fixed=fixed)
        weighted(terms, weights, counts).backward()
        first += part.num_rows
        for name, t in terms.items():
            old = found.get(name, (torch.tensor(0.0), torch.tensor(0.0)))
            found[name] = old[0] + t.sum.detach().double(), old[1] + t.count.double()
    named = objective.named_parameters()
    return found, {n: p.grad.clone() for n, p in named if p.grad is not None}


def the_same(one: Found, other: Found, *, rtol: float) -> None:
    """Sums of float32, in another order."""
    for a, b in zip(one, other, strict=True):
        assert a.keys() == b.keys()
    for name, sums in one[0].items():
        torch.testing.assert_close(other[0][name], sums, rtol=2e-6, atol=1e-6, msg=name)
        assert torch.equal(other[0][name][1], sums[1])
    scale = max([1.0, *(float(g.abs().max()) for g in one[1].values())])
    for name, g in one[1].items():
        torch.testing.assert_close(other[1][name], g, rtol=rtol, atol=1e-6 * scale, msg=name)


CUTS = [(0, 1, 2, 3, 4), (0, 3, 4)]
MANY_TERMS = ["electra-tiny", "bert-tiny", "corrective-tiny", "teams-tiny", "amos-tiny"]
GROUPS = [("coco-lm-tiny", (0, 2, 4))]  # of two rows, which no cut takes apart


@pytest.mark.parametrize(
    ("recipe", "cuts"), [*itertools.product(MANY_TERMS, CUTS), *GROUPS], ids=str
)
def test_micro_batches_equal_the_whole(recipe: str, cuts: tuple[int, ...]) -> None:
    """Also where the parts hold very different numbers of tokens, and none at all: a mean of means
    would fail."""
    fields = {"contrast_rows": 2} if recipe == "coco-lm-tiny" else {}
    objective: Any = built(recipe, mask_rate=0.3, **fields).objective
    weights = tiny(recipe).objective.term_weights
    tokens = ragged_batch()
    whole = graded(objective, [tokens], weights, whole=tokens)
    assert whole[1].keys() == {n for n, _ in objective.named_parameters()}
    rows = [tokens.rows(i, j) for i, j in pairwise(cuts)]
    the_same(whole, graded(objective, rows, weights, whole=tokens), rtol=1e-5)


RECIPES = (
    *("bert-tiny", "electra-tiny", "electra-15-tiny", "replace-mlm-tiny", "all-tokens-mlm-tiny"),
    *("corrective-tiny", "teams-tiny", "amos-tiny", "adversarial-tiny", "electric-tiny"),
    *("two-stage-tiny", "unigram-tiny"),
)
WEIGHTS = {"generator": 1.0, "rtd": 50.0, "sentence": 1.0}
SENTENCE: dict[str, Any] = {"clean_rate": 0.4, "term_weights": WEIGHTS}
DECODER: dict[str, Any] = {"architecture": "deberta", "init": "published", "position_buckets": 16}
DECODER |= {"generator_size": 1.0, "mask_decoder": True}
CASES = [
    *((name, {}) for name in RECIPES),
    ("coco-lm-tiny", {"contrast_rows": 2}),
    ("electra-tiny", {"mask_choice": "rare"}),
    ("electra-tiny", SENTENCE),
    ("electra-tiny", {"disallow_correct": True}),
    ("electra-tiny", DECODER),
    ("bert-tiny", DECODER),
]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("name", "fields"), CASES, ids=str)
def test_lists_of_a_fixed_length(
    monkeypatch: pytest.MonkeyPatch, name: str, fields: dict[str, Any], training: bool
) -> None:
    objective: Any = built(name, **fields).objective.train(training)
    tokens = ragged_batch(seed=3)
    draws = draws_of(tokens, seed=3)
    chosen = len(at_of(objective.corruptor.chooser, tokens, draws))
    assert chosen > 3
    counts = {n: int(c) for n, c in counts_of(objective, tokens, draws).items()}
    weights = dict.fromkeys(counts, 1.0)
    plain = graded(objective, [tokens], weights, whole=tokens)
    for whole in (chosen, chosen + 29):  # lists without a filler, and with many
        monkeypatch.setattr(choosing, "WHOLE", whole)
        plan = objective.plan(tokens, draws, fixed=True)
        assert len(plan.at_M) % whole == 0
        assert int(plan.valid_M.sum()) == chosen
        assert {n: int(c) for n, c in plan.counts.items()} == counts
        filled = graded(objective, [tokens], weights, whole=tokens, fixed=True)
        the_same(plain, filled, rtol=1e-4)


@given(st.integers(1, 2000), st.floats(0, 1), st.floats(0.01, 0.99))
def test_lists_have_few_lengths_and_lose_nothing(size: int, share: float, usual: float) -> None:
    """However many are chosen of a batch of this size: one length for every number up to the usual
    one, a quarter more for each step beyond."""
    chosen_T = torch.rand(size, generator=torch.Generator().manual_seed(size)) < share
    at_M, valid_M = positions(chosen_T, fixed_for=usual)
    assert valid_M is not None
    assert torch.equal(at_M[: int(valid_M.sum())], chosen_T.nonzero().squeeze(1))
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
