"""The other systems of the study: examples by hand, gradients that must and must not flow, and what
holds for each of them."""

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from stubs import (
    BASIC,
    At,
    FixedHead,
    HeadAt,
    Ids,
    StubHead,
    at_places,
    chooser,
    generator,
    outcome,
    part,
    total,
)
from torch import Tensor, nn

from batches import built, corrupted, counts_of, draws_of, pack, ragged_batch, terms_of, value
from electrify.corruption.choosing import Plan, count
from electrify.corruption.corruptor import Corrupted, substitute
from electrify.corruption.generator import Generated, Generator
from electrify.corruption.masking import Frequency
from electrify.draws import Draws
from electrify.objectives.adversarial import Adversarial, baseline, reward
from electrify.objectives.all_tokens import AllTokensMLM
from electrify.objectives.electra import Electra
from electrify.objectives.electric import log_odds
from electrify.objectives.metrics import detection_summary
from electrify.objectives.mlm import MLM
from electrify.terms import Loss, Terms
from electrify.tokens import Tokens
from electrify.train.start import discriminator_names


def test_electra_15_grades_the_chosen_tokens_only() -> None:
    objective = Electra(generator(), part(Ids()), part(FixedHead([2.0, -1.0])), loss_on="chosen")
    terms, counts = outcome(objective)
    # Labels 1 (replaced) and 0: softplus(-2) + softplus(-1) = .126928 + .313262.
    assert total(terms["rtd"]) == (pytest.approx(0.440190, abs=1e-6), 2)
    assert int(counts["rtd"]) == 2
    assert value(terms["rtd_loss_replaced"].sum) == pytest.approx(0.126928, abs=1e-6)
    watched = Electra(generator(), part(Ids()), part(ByToken()), loss_on="chosen").eval()
    found, _ = outcome(watched)
    assert [found[f"rtd{which}_detection"].sum.sum(1).tolist() for which in ("", "_chosen")] == [
        [3, 1],
        [1, 1],
    ]


def test_frequency_never_asks_the_context() -> None:
    """All counts on 7: every chosen token becomes 7; specials have counts and are never drawn."""
    corruptor = Frequency(chooser(), BASIC, 8, counts_V=torch.tensor([9, 9, 9, 9, 9, 0, 0, 1]))
    encoder, head = Ids(), FixedHead([0.0, 2.0, -1.0, 0.5, 100.0])
    terms, counts = outcome(Electra(corruptor, part(encoder), part(head)))
    assert encoder.saw_T.tolist() == [2, 7, 7, 3, 0]
    # Labels 0 1 1 0: softplus of 0, -2, 1 and .5 = .693147 + .126928 + 1.313262 + .974077
    assert value(terms["rtd"].sum) == pytest.approx(3.107414, abs=1e-6)
    assert "generator" not in terms
    assert counts.keys() == {"rtd"}


def test_replace_mlm_reads_samples_and_predicts_the_original() -> None:
    believed = at_places(5, {(1, 5): math.log(8.0), (2, 6): math.log(8.0)})  # 8 / 15
    encoder = At()
    terms, _ = outcome(MLM(generator(), part(encoder), part(HeadAt(believed))))
    assert encoder.saw_T.tolist() == [2, 7, 6, 3, 0]
    assert value(terms["mlm"].sum) == pytest.approx(2 * math.log(15 / 8), abs=1e-5)
    assert value(terms["generator"].sum) == 50.0
    assert [int(terms[f"mlm_loss_{kind}"].count) for kind in ("replaced", "original")] == [1, 1]


class Logits(nn.Module):
    """A head over the vocabulary that believes the same everywhere."""

    def __init__(self, logits_V: Tensor) -> None:
        super().__init__()
        self.logits_V = nn.Parameter(logits_V)

    def forward(self, x_ND: Tensor) -> Tensor:
        return self.logits_V.expand(len(x_ND), -1)

    def read(self, encoder: Any, tokens: Any, at_M: Tensor) -> Tensor:
        return encoder(tokens)[at_M]


def test_all_tokens_by_hand() -> None:
    """Gate 1/2 everywhere, 1/8 for every word: a copy has 1/2 + 1/16, the replaced token 1/16."""
    head, gate = Logits(torch.zeros(8)), FixedHead([0.0] * 5)
    terms, _ = outcome(AllTokensMLM(generator(), part(Ids()), part(head), part(gate)))
    wanted = -3 * math.log(9 / 16) - math.log(1 / 16)
    assert total(terms["all_tokens"]) == (pytest.approx(wanted, abs=1e-5), 4)
    assert value(terms["all_tokens_loss_replaced"].sum) == pytest.approx(math.log(16), abs=1e-5)
    assert value(terms["softmax_loss_replaced"].sum) == pytest.approx(math.log(8), abs=1e-5)


def test_the_sentence_head_by_hand() -> None:
    """Two sequences, the second left whole in effect (its draws are right): labels 1 and 0."""
    tokens = pack([[[2, 5, 3], [2, 6, 3]]], row_length=7)
    corruptor = generator(at_places(7, {(1, 7): 50.0, (4, 6): 50.0}))
    heads = {"sentence_head": part(FixedHead([2.0] * 7))}
    objective = Electra(corruptor, part(Ids()), part(FixedHead([0.0] * 7)), **heads)
    terms, counts = outcome(objective, tokens)
    assert total(terms["sentence"]) == (pytest.approx(0.126928 + 2.126928, abs=1e-5), 2)
    assert int(counts["sentence"]) == 2
    assert value(terms["sentence_accuracy"].sum) == 1


def test_electric_takes_the_odds_of_each_sequence() -> None:
    tokens = pack([[[2, 5, 6, 7, 3], [2, 5, 3]]], row_length=9)
    words = (tokens.ids_T > 4) & tokens.real_T
    noise = Plan(torch.tensor([1, 6]), words, torch.zeros(()))
    found = log_odds(Corrupted(tokens, tokens.ids_T, noise))
    assert found[1].item() == pytest.approx(math.log(1 / 2))  # one of three
    assert found[6].item() == pytest.approx(0.0)  # one of one: n - k counts as 1


def test_the_gate_is_watched_as_a_detector() -> None:
    """It is shut at the replaced token alone, and finds it."""
    head, gate = Logits(torch.zeros(8)), FixedHead([2.0, -2.0, 2.0, 2.0, -9.0])
    objective = AllTokensMLM(generator(), part(Ids()), part(head), part(gate)).eval()
    terms, _ = outcome(objective)
    found = detection_summary(terms["copy_detection"].sum)
    assert (found["auc"], found["precision"], found["recall"]) == (1.0, 1.0, 1.0)


class Drawn(nn.Module):
    """A generator whose draws a test decides: logits of its own at both words of TEXT."""

    def __init__(self, logits_MV: Tensor) -> None:
        super().__init__()
        self.logits_MV = nn.Parameter(logits_MV)
        self.now_M, self.chooser = torch.tensor([5, 6]), chooser()

    def plan(self, tokens: Tokens, draws: Draws, *, fixed: bool = False) -> Plan:
        plan = replace(self.chooser.plan(tokens, draws, fixed=fixed), shown_M=torch.full((2,), 4))
        assert plan.at_M.tolist() == [1, 2]
        return plan.counting(generator=count(plan))

    def forward(self, tokens: Tokens, plan: Plan) -> Generated:
        own = {"mask_id": 4, "states_MD": self.logits_MV[:, :3], "p_MV": None}
        changed = substitute(tokens, plan, self.now_M)
        return Generated(changed, tokens.ids_T, plan, self.logits_MV, **own)

    def likelihood(self, z: Generated) -> dict[str, Loss]:
        return Generator.likelihood(part(self), z)

    def rates(self, z: Generated, losses: dict[str, Loss]) -> Terms:
        return Generator.rates(part(self), z, losses)


class ByToken(StubHead):
    """A discriminator's logit for each id."""

    def __init__(self) -> None:
        super().__init__()
        self.logits_V = nn.Parameter(torch.linspace(-2, 2, 8))

    def forward(self, x_T1: Tensor) -> Tensor:
        return self.logits_V[x_T1[:, 0].long()]


def test_reinforce_is_the_exact_gradient_of_the_expected_reward() -> None:
    """Every pair of draws weighted by its probability; the baseline, whatever it says, drops out of
    the expectation."""
    corruptor = Drawn(torch.randn(2, 8, generator=torch.Generator().manual_seed(1)))
    heads = part(ByToken()), part(FixedHead([0.7, -1.1]))
    objective = Adversarial(part(corruptor), part(Ids()), *heads)
    p_MV = corruptor.logits_MV.detach().softmax(-1)
    found = torch.zeros(2, 8)
    for a, b in itertools.product(range(8), repeat=2):
        corruptor.now_M = torch.tensor([a, b])
        loss = outcome(objective)[0]["reinforce"].sum
        (gradient,) = torch.autograd.grad(loss, [corruptor.logits_MV])
        found += p_MV[0, a] * p_MV[1, b] * gradient
    logits_V, was = torch.linspace(-2, 2, 8), torch.tensor([5, 6])
    paid_MV = torch.stack([reward(logits_V, torch.arange(8) != w) for w in was])
    expected = (corruptor.logits_MV.softmax(-1) * paid_MV).sum()
    (exact,) = torch.autograd.grad(expected, [corruptor.logits_MV])
    torch.testing.assert_close(found, -exact, rtol=1e-4, atol=1e-6)


def test_adversarial_by_hand() -> None:
    corruptor = Drawn(torch.zeros(2, 8))
    corruptor.now_M = torch.tensor([7, 6])  # replaced, original
    heads = part(FixedHead([0.0, 2.0, -1.0, 0.0, 0.0])), part(FixedHead([0.0, 0.0]))
    terms, _ = outcome(Adversarial(part(corruptor), part(Ids()), *heads))
    # Paid the discriminator's loss: softplus(-2) = .126928 and softplus(-1) = .313262; the baseline
    # expects log 2 of both; log p = -log 8.
    assert value(terms["reward"].sum) == pytest.approx(0.440190, abs=1e-5)
    wanted = (0.440190 - 2 * math.log(2)) * math.log(8)
    assert value(terms["reinforce"].sum) == pytest.approx(wanted, abs=1e-4)
    assert float(baseline(torch.zeros(1))) == pytest.approx(math.log(2))
    # Cross-entropy of 1/2 towards exp(-reward) is log 2 whatever the target.
    assert value(terms["baseline"].sum) == pytest.approx(2 * math.log(2), abs=1e-5)
    assert value(terms["generator_entropy"].sum) == pytest.approx(2 * math.log(8), abs=1e-5)
    assert not terms["generator"].sum.requires_grad


def test_noise_is_noise_also_where_it_equals_the_original() -> None:
    objective: Any = built("electric-tiny", mask_rate=0.5).objective.eval()
    tokens = ragged_batch()
    z = corrupted(objective.corruptor, tokens, draws_of(tokens))
    terms = terms_of(objective, tokens, draws_of(tokens))
    assert int(terms["energy_noise"].count) == len(z.at_M)
    assert int(terms["nce_detection"].sum[1].sum()) == len(z.at_M)
    assert int(terms["nce"].count) == int(z.plan.candidates_T.sum())


@pytest.mark.parametrize("name", ["electra-15", "replace-mlm", "all-tokens-mlm", "electric"])
def test_the_graders_gradient_never_reaches_the_generator_nor_the_other_way(name: str) -> None:
    """With tie none; the towers' and the generator's own loss reach them alone."""
    objective: Any = built(f"{name}-tiny", tie="none").objective
    tokens = ragged_batch()
    terms = terms_of(objective, tokens, draws_of(tokens))
    own = {id(p) for p in objective.corruptor.parameters()}
    for term in counts_of(objective, tokens, draws_of(tokens)):
        objective.zero_grad(set_to_none=True)
        terms[term].sum.backward(retain_graph=True)
        grads = {id(p): p.grad for p in objective.parameters() if p.grad is not None}
        reached = {key for key, grad in grads.items() if bool(grad.any())}
        assert reached
        assert (reached <= own) if term == "generator" else not reached & own, term


def test_disentangled_words() -> None:
    """The discriminator's loss moves its difference and not the generator's table; the generator's
    loss the reverse; values start equal."""
    b = built("electra-tiny", tie="gdes")
    words: Any = b.discriminator.encoder.embeddings.words
    table = b.exports["generator"].encoder.embeddings.words
    assert torch.equal(words.weight.detach(), table.weight.detach())
    tokens = ragged_batch()
    terms = terms_of(b.objective, tokens, draws_of(tokens))
    both, how = [table.weight, words.delta_VE], {"allow_unused": True, "retain_graph": True}
    found = [torch.autograd.grad(terms[name].sum, both, **how) for name in ("rtd", "generator")]
    moved = [[g is not None for g in grads] for grads in found]
    assert moved == [[False, True], [True, False]]


SENTENCE = {"clean_rate": 0.2, "term_weights": {"generator": 1.0, "rtd": 50.0, "sentence": 1.0}}


@pytest.mark.parametrize(
    ("name", "fields", "heads"),
    [
        ("all-tokens-mlm", {}, {"copy_head."}),
        ("electra", SENTENCE, {"sentence_head."}),
        ("adversarial", {}, set()),
    ],
)
def test_only_the_generators_parameters_take_its_learning_rate(name, fields, heads):
    """Every head on the discriminator is kept; the baseline reads the generator."""
    b = built(f"{name}-tiny", tie="none", **fields)
    names = {n for n, _ in b.objective.named_parameters()}
    kept = discriminator_names(b)
    assert {n for n in names if n.startswith(("encoder.", "head.", *heads))} == kept
    assert all(n.startswith(("corruptor.", "baseline_head.")) for n in names - kept)
