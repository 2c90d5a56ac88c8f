"""Detection and selection by two branches of one encoder: an example by hand, the candidates, and
where gradients go."""

import math
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from stubs import At, FixedHead, at_places, generator, outcome, part, total, whole
from torch import Tensor, nn

from batches import VOCAB, built, corrupted, draws_of, ragged_batch, terms_of, text_batch, value
from electrify.objectives.selective import Selective
from electrify.terms import weighted
from electrify.tokens import Tokens

WEIGHTS = {"generator": 1.0, "rtd": 5.0, "select": 2.0}
UNTIED: dict[str, Any] = {"tie": "none", "tie_layers": None}


class Branch(At):
    """An encoder of one block whose hidden state is the flat position."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = [nn.Identity()]

    def embed(self, tokens: Tokens) -> Tensor:
        return self(tokens)

    def context(self, tokens: Tokens, x_T1: Tensor) -> None:
        return None

    def through(self, x_T1: Tensor, context: None, blocks: Any) -> Tensor:
        return x_T1

    def read(self, x_T1: Tensor) -> Tensor:
        return x_T1


class Scores(nn.Module):
    """Scores of words written down for every flat position, over the states of `Branch`."""

    def __init__(self, scores_TV: Tensor) -> None:
        super().__init__()
        self.scores_TV = nn.Parameter(scores_TV)

    def choose(self, x_N1: Tensor, ids_NK: Tensor) -> Tensor:
        self.asked_NK = ids_NK
        return self.scores_TV[x_N1[:, 0]].gather(1, ids_NK)


def by_hand() -> tuple[Selective, FixedHead, Scores]:
    """The generator puts 7 where 5 stood, and 6, which is right, at the place after it. Beside 5 it
    thinks of 7, then of 4; beside 6 of 5, then of 7."""
    drawn = {(1, 7): 60.0, (1, 4): 30.0, (2, 6): 90.0, (2, 5): 60.0, (2, 7): 30.0}
    scores = torch.full((5, 8), 100.0)  # where nobody asks
    scores[1, [5, 7, 4]] = torch.tensor([2.0, 1.0, 1.0]).log()
    scores[2, [6, 5, 7]] = torch.tensor([1.0, 3.0, 1.0]).log()
    head, selection = FixedHead([0.0, 2.0, -1.0, 0.5, 100.0]), Scores(scores)
    parts = part(Branch()), part(head), part(Branch()), part(selection)
    corruptor = generator(at_places(5, drawn))
    return Selective(corruptor, *parts, candidates=3), head, selection


def test_by_hand() -> None:
    """The original is found with 2 / 4 and with 1 / 5."""
    objective, head, selection = by_hand()
    terms, counts = outcome(objective)
    assert selection.asked_NK.tolist() == [[5, 7, 4], [6, 5, 7]]
    assert whole(counts) == {"generator": 2, "rtd": 4, "select": 2}
    # As in Electra's example: labels 0 1 0 0.
    assert value(terms["rtd"].sum) == pytest.approx(2.107414, abs=1e-6)
    assert value(terms["select"].sum) == pytest.approx(math.log(10), abs=1e-6)
    assert value(terms["select_loss_replaced"].sum) == pytest.approx(math.log(2), abs=1e-6)
    assert total(terms["select_accuracy"]) == (1.0, 2)
    assert total(terms["select_accuracy_replaced"]) == (1.0, 1)
    loss = weighted(terms, WEIGHTS, counts)
    want = value(terms["generator"].sum) / 2 + 5 * 2.107414 / 4 + 2 * math.log(10) / 2
    assert value(loss) == pytest.approx(want, abs=1e-4)
    loss.backward()
    # 5/4 * (sigmoid(logit) - label), a tenth of what it is with a weight of 50.
    assert head.logits_T.grad is not None
    assert head.logits_T.grad.tolist() == pytest.approx(
        [0.625, -0.149004, 0.336176, 0.778074, 0.0], abs=1e-5
    )
    # 2/2 * (p - 1[the original]), and nothing for a word that is not a candidate.
    assert selection.scores_TV.grad is not None
    want_TV = torch.zeros(5, 8)
    want_TV[1, [5, 7, 4]] = torch.tensor([-0.5, 0.25, 0.25])
    want_TV[2, [6, 5, 7]] = torch.tensor([-0.8, 0.6, 0.2])
    torch.testing.assert_close(selection.scores_TV.grad, want_TV)


@pytest.mark.parametrize("candidates", [2, 5, 20])
def test_the_original_first_and_different_others(candidates: int) -> None:
    objective: Any = built("teams-tiny", mask_rate=0.4, candidates=candidates).objective
    for seed in range(2):
        tokens = text_batch(seed=seed, rows=4, row_length=32)
        plan = objective.plan(tokens, draws_of(tokens, seed=seed))
        z = objective.corruptor(tokens, plan)
        asked_MK = objective.corruptor.candidates(z, plan.uniform_MJ)
        assert asked_MK.shape == (len(plan.at_M), candidates)
        assert torch.equal(asked_MK[:, 0], z.was_M)
        assert all(len(set(row)) == candidates for row in asked_MK.tolist())


def test_all_words_as_candidates_are_a_language_model() -> None:
    """Then the loss is the cross-entropy of the head that the folder has."""
    one = built("teams-tiny", mask_rate=0.4, candidates=VOCAB)
    tokens = ragged_batch()
    draws = draws_of(tokens)
    terms = terms_of(one.objective, tokens, draws)
    z = corrupted(one.objective.corruptor, tokens, draws)
    left = one.exports["selector"]
    logits_MV = left.head(left.encoder(z.tokens)[z.at_M])
    want = nn.functional.cross_entropy(logits_MV, z.was_M, reduction="sum")
    assert value(terms["select"].sum) == pytest.approx(value(want), rel=1e-5)
    fewer = built("teams-tiny", mask_rate=0.4, candidates=5)
    fewer.objective.load_state_dict(one.objective.state_dict())
    assert value(terms_of(fewer.objective, tokens, draws)["select"].sum) < 0.7 * value(want)


def reached(modules: Iterable[nn.Module]) -> list[bool]:
    """Of each module: whether all of its parameters have a gradient. Fails where some have."""
    found = []
    for module in modules:
        any_of = [p.grad is not None and bool(p.grad.any()) for p in module.parameters()]
        assert len(set(any_of)) == 1
        found.append(any_of[0])
    return found


@pytest.mark.parametrize("fields", [{}, UNTIED], ids=["lower", "none"])
def test_each_loss_reaches_its_own_layers(fields: dict[str, Any]) -> None:
    """Three blocks, of which the generator has the lowest where they are tied."""
    b = built("teams-tiny", mask_rate=0.4, num_hidden_layers=3, **fields)
    objective: Any = b.objective
    own, chosen, generator = (
        b.exports[n].encoder for n in ("discriminator", "selector", "generator")
    )
    assert list(chosen.blocks[:2]) == list(own.blocks[:2])
    assert chosen.blocks[2] is not own.blocks[2]
    assert chosen.embeddings is own.embeddings
    tied = not fields
    assert (generator.blocks[0] is own.blocks[0]) == tied
    tokens = ragged_batch()
    terms = terms_of(objective, tokens, draws_of(tokens))
    parts = [*own.blocks, chosen.blocks[2], objective.head, objective.selection.dense]
    parts += [generator.blocks[-1], objective.corruptor.lm.head.dense, own.embeddings.norm]
    want = {
        "rtd": [True, True, True, False, True, False, False, False, True],
        "select": [True, True, False, True, False, True, False, False, True],
        "generator": [tied, False, False, False, False, False, True, True, tied],
    }
    for name, reaches in want.items():
        objective.zero_grad(set_to_none=True)
        terms[name].sum.backward(retain_graph=True)
        assert reached(parts) == reaches, name
        table = own.embeddings.words.weight
        assert (table.grad is not None) == (name != "generator" or tied)
