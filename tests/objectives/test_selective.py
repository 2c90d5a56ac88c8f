"""Detection and selection by two branches of one encoder: an example by hand, the candidates, where
gradients go, and what is left as folders."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from stubs import At, FixedHead, FixedLM, part
from torch import Tensor, nn

from batches import (
    SPECIAL,
    VOCAB,
    built,
    corrupted,
    counts_of,
    draws_of,
    pack,
    ragged_batch,
    terms_of,
    text_batch,
    value,
)
from electrify.corruption.choosing import Chooser
from electrify.corruption.generator import Generator
from electrify.corruption.masking import MaskMix
from electrify.corruption.sampling import Sampling
from electrify.exporting.folder import write_model
from electrify.flop_counts import Convention, passes_flops
from electrify.model.heads import SelectionHead
from electrify.objectives.selective import Selective
from electrify.terms import weighted
from electrify.tokens import SpecialIds, Tokens

BASIC = SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)
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
    drawn = torch.zeros(5, 8)
    drawn[1, 7], drawn[1, 4] = 60.0, 30.0
    drawn[2, 6], drawn[2, 5], drawn[2, 7] = 90.0, 60.0, 30.0
    generator = Generator(
        MaskMix(Chooser(BASIC, 8, rate=0.9), BASIC, 8, mix=(1.0, 0.0, 0.0)),
        part(FixedLM(drawn)),
        sampling=Sampling(),
    )
    scores = torch.full((5, 8), 100.0)  # where nobody asks
    scores[1, [5, 7, 4]] = torch.tensor([2.0, 1.0, 1.0]).log()
    scores[2, [6, 5, 7]] = torch.tensor([1.0, 3.0, 1.0]).log()
    head, selection = FixedHead([0.0, 2.0, -1.0, 0.5, 100.0]), Scores(scores)
    objective = Selective(
        generator, part(Branch()), part(head), part(Branch()), part(selection), candidates=3
    )
    return objective, head, selection


def test_by_hand() -> None:
    """The original is found with 2 / 4 and with 1 / 5."""
    tokens = pack([[[2, 5, 6, 3]]], row_length=5)
    objective, head, selection = by_hand()
    terms = terms_of(objective, tokens, draws_of(tokens))
    counts = counts_of(objective, tokens, draws_of(tokens))
    assert selection.asked_NK.tolist() == [[5, 7, 4], [6, 5, 7]]
    assert {n: int(c) for n, c in counts.items()} == {"generator": 2, "rtd": 4, "select": 2}
    # As in Electra's example: labels 0 1 0 0.
    assert value(terms["rtd"].sum) == pytest.approx(2.107414, abs=1e-6)
    assert value(terms["select"].sum) == pytest.approx(math.log(10), abs=1e-6)
    assert value(terms["select_loss_replaced"].sum) == pytest.approx(math.log(2), abs=1e-6)
    assert (value(terms["select_accuracy"].sum), int(terms["select_accuracy"].count)) == (1.0, 2)
    replaced = terms["select_accuracy_replaced"]
    assert (value(replaced.sum), int(replaced.count)) == (1.0, 1)
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


# ---------------------------------------------------------------- candidates


@pytest.mark.parametrize("candidates", [2, 5, 20])
def test_the_original_first_and_different_others(candidates: int) -> None:
    objective: Any = built("teams-tiny", mask_rate=0.4, candidates=candidates).objective
    for seed in range(5):
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


# ---------------------------------------------------------------- gradients, and other objectives


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


def test_the_detection_is_electras() -> None:
    """The same weights, the same numbers to the bit."""
    one = built("teams-tiny", mask_rate=0.4)
    electra = built("electra-tiny", mask_rate=0.4, generator_size=1.0, tie="lower", tie_layers=1)
    own = dict(one.objective.named_parameters(remove_duplicate=False))
    with torch.no_grad():
        for name, p in electra.objective.named_parameters(remove_duplicate=False):
            p.copy_(own[name])
    tokens = ragged_batch()
    for training in (True, False):
        judged = terms_of(electra.objective.train(training), tokens, draws_of(tokens))
        terms = terms_of(one.objective.train(training), tokens, draws_of(tokens))
        for name in judged:
            assert torch.equal(terms[name].sum, judged[name].sum), name


# ---------------------------------------------------------------- what is left, what it costs


@pytest.mark.parametrize("fields", [{}, {"embedding_size": 16}, UNTIED | {"tie": "gdes"}], ids=str)
def test_both_folders_against_transformers(fields: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states, logits of the detection, and scores of candidates, to 1e-5."""
    one = built("teams-tiny", mask_rate=0.4, **fields)
    tokens = text_batch(seed=1, rows=3, row_length=32)
    # One sequence a row, as the library reads it.
    alone = Tokens(
        tokens.ids_T,
        torch.ones_like(tokens.seq_T),
        torch.arange(32).repeat(3),
        tokens.segment_T,
        row_length=32,
    )
    found: dict[str, Any] = {}
    for name, cls in (
        ("discriminator", "ElectraForPreTraining"),
        ("selector", "ElectraForMaskedLM"),
    ):
        model = one.exports[name]
        assert model.table().name == cls
        folder = tmp_path / name
        write_model(folder, model, special=SPECIAL, dropout=0.0, attention_dropout=0.0)
        encoder = transformers.AutoModel.from_pretrained(folder).eval()
        theirs, info = getattr(transformers, cls).from_pretrained(folder, output_loading_info=True)
        assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
        with torch.no_grad():
            inputs = model.architecture.inputs(alone)
            states_TD = encoder(**inputs).last_hidden_state.flatten(0, 1)
            found[name] = states_TD, theirs.eval()(**inputs).logits.flatten(0, 1)
            torch.testing.assert_close(states_TD, model.encoder(alone), rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        own_T = one.discriminator.head(one.discriminator.encoder(alone))
        ids_TK = torch.arange(96 * 5).view(96, 5) % VOCAB
        selector = one.exports["selector"]
        assert isinstance(selector.head, SelectionHead)
        scores_TK = selector.head.choose(selector.encoder(alone), ids_TK)
    torch.testing.assert_close(found["discriminator"][1], own_T, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        found["selector"][1].gather(1, ids_TK), scores_TK, rtol=1e-5, atol=1e-5
    )
    assert not torch.allclose(found["selector"][0], found["discriminator"][0], atol=1e-2)


@pytest.mark.parametrize("convention", ["hardware", "paper"])
def test_the_cost_beside_electras(convention: Convention) -> None:
    """One more block at every token, and at the chosen ones a dense layer and K dot products."""
    how: dict[str, Any] = {"row_length": 32, "convention": convention}

    def cost(recipe: str, **fields: Any) -> float:
        objective: Any = built(recipe, generator_size=1.0, tie="none", **fields).objective
        return passes_flops(objective.passes(), **how)

    two, three = (cost("electra-tiny", num_hidden_layers=n) for n in (2, 3))
    generator = {"generator_num_hidden_layers": 2}
    one = cost("electra-tiny", num_hidden_layers=3, **generator) - cost(
        "electra-tiny", num_hidden_layers=2, **generator
    )
    assert 2 * one == pytest.approx(three - two)
    fields = {"tie_layers": None, "num_hidden_layers": 2}
    selection = [cost("teams-tiny", candidates=k, **fields) - two - one for k in (5, 6)]
    times, share = (3, 0.15) if convention == "hardware" else (2, 0.15625)
    each = 2 * 32 if convention == "hardware" else 2 * 32 + 5
    dense = 2 * 32 * 32 if convention == "hardware" else 2 * 32 * 32 + 32 + 8 * 32 + 5 * 32
    want = [share * times * (dense + k * each) for k in (5, 6)]
    assert selection == pytest.approx(want, rel=1e-6)
