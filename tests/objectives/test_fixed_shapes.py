"""A batch whose list of chosen positions is filled up to a fixed length is graded as it is without: what a compiled step needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from batches import built, draws_of, ragged_batch, text_batch
from electrify.corruption.choosing import Chooser
from electrify.draws import Draws
from electrify.objectives.terms import Terms, weighted
from electrify.tokens import Tokens

RECIPES = (
    *("bert-tiny", "electra-tiny", "electra-15-tiny", "replace-mlm-tiny", "all-tokens-mlm-tiny", "two-stage-tiny", "adversarial-tiny"),
    *("electric-tiny", "unigram-tiny", "uniform-tiny"),
)
WORDS: dict[str, Any] = {"mask_choice": "rare"}
SENTENCE: dict[str, Any] = {"clean_rate": 0.4, "term_weights": {"generator": 1.0, "rtd": 50.0, "sentence": 1.0}}
CASES = [*((name, {}) for name in RECIPES), ("electra-tiny", WORDS), ("electra-tiny", SENTENCE), ("electra-tiny", {"disallow_correct": True})]


def graded(objective: Any, tokens: Tokens, draws: Draws, weights: dict[str, float]) -> tuple[Terms, dict[str, torch.Tensor]]:
    objective.zero_grad()
    terms = objective(tokens, draws)
    weighted(terms, weights, objective.counts(tokens, draws)).backward()
    return terms, {n: p.grad.clone() for n, p in objective.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("name", "fields"), CASES, ids=str)
def test_the_same_terms_and_gradients(name: str, fields: dict[str, Any], training: bool) -> None:
    made = built(name, **fields)
    objective: Any = made.objective.train(training)
    weights = dict.fromkeys(objective.counts(ragged_batch(), draws_of(ragged_batch())), 1.0)
    for tokens in (ragged_batch(seed=3), text_batch(seed=4, rows=4, row_length=32)):
        draws = draws_of(tokens, seed=5)
        chosen = int(objective.corruptor.chooser.chosen(tokens, draws).sum())
        assert chosen > 3
        terms, gradients = graded(objective, tokens, draws, weights)
        for room in (chosen, chosen + 1, chosen + 29):
            filled, slopes = graded(objective, tokens, replace(draws, room=room), weights)
            assert terms.keys() == filled.keys()
            for k, t in terms.items():
                pairs = [(one.sum.double(), one.count.double()) for one in (filled[k], t)]
                torch.testing.assert_close(*pairs, rtol=2e-6, atol=1e-6, msg=k)  # sums of float32, in another order
            assert gradients.keys() == slopes.keys()
            for n, g in gradients.items():
                torch.testing.assert_close(slopes[n], g, rtol=1e-4, atol=1e-6, msg=n)


def test_positions_in_order_then_zeros() -> None:
    chooser = next(m for m in built("electra-tiny").objective.modules() if isinstance(m, Chooser))
    tokens = ragged_batch(seed=1)
    draws = draws_of(tokens)
    at = chooser(tokens, draws)
    assert chooser(tokens, replace(draws, room=len(at) + 3)).tolist() == [*at.tolist(), 0, 0, 0]
    assert chooser(tokens, replace(draws, room=len(at))).tolist() == at.tolist()
    assert chooser(tokens, replace(draws, room=2)).tolist() == at.tolist()[:2]


@pytest.mark.parametrize("name", [n if n in ("bert-tiny", "electra-tiny") else pytest.param(n, marks=pytest.mark.slow) for n in RECIPES])
def test_one_graph(name: str) -> None:
    """Nothing in a step waits for a number: dynamo takes each objective whole, and the graph gives the same terms."""
    objective: Any = built(name).objective
    tokens = text_batch(seed=4, rows=4, row_length=32)
    draws = replace(draws_of(tokens), room=24)
    torch.compiler.reset()
    compiled = torch.compile(objective, backend="aot_eager", fullgraph=True, dynamic=False)
    plain, graph = objective(tokens, draws), compiled(tokens, draws)
    for k, t in plain.items():
        torch.testing.assert_close(graph[k].sum.double(), t.sum.double(), msg=k)
