"""The mixture of language models: its logits, its draws, and the gradient that comes back from the
encoder that is kept, against autograd on whole one-hots.

Shape suffixes: T flat tokens, M chosen positions, K read-outs, V vocabulary, D hidden width, E
embedding width.
"""

from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from batches import (
    VOCAB,
    built,
    corrupted,
    draws_of,
    gradients,
    ragged_batch,
    terms_of,
    text_batch,
)
from electrify.build import Built
from electrify.corruption.generator import TAU, Mixed, Mixture
from electrify.objectives.objective import Objective

TOKENS = text_batch(seed=4, rows=4, row_length=32)


def amos(**fields: Any) -> Built:
    """Weights far from their initial values, where the read-outs differ."""
    made = built("amos-tiny", **{"mask_rate": 0.4, "init": "bert", "tie": "none"} | fields)
    rng = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, p in made.objective.named_parameters():
            if "norm" not in name:
                p.copy_(torch.randn(p.shape, generator=rng) * (0.3 if p.ndim == 2 else 0.1))
    return made


def mixture_of(made: Built) -> Mixture:
    corruptor = made.objective.corruptor
    assert isinstance(corruptor, Mixture)
    return corruptor


def drawn(made: Built) -> Mixed:
    return corrupted(made.objective.corruptor, TOKENS, draws_of(TOKENS))


def straight_through(
    vote_D: Tensor, states_MKD: Tensor, logits_MKV: Tensor, table_VE: Tensor, tau: float
) -> Tensor:
    """[M, E] the expected word vectors, with the gradient of plain autograd."""
    weight_MK = (states_MKD @ vote_D).softmax(-1)
    mixed_MV = (weight_MK[:, :, None] * logits_MKV.detach()).sum(1)
    return (mixed_MV / tau).softmax(-1) @ table_VE.detach()


HOW: list[dict[str, Any]] = [
    {},
    {"temperature": 2.0},
    {"disallow_correct": True},
    {"tie": "gdes"},
    {"embedding_size": 16, "generator_hidden_size": 24},
]


@pytest.mark.parametrize("fields", HOW, ids=str)
def test_the_gradient_of_the_detector_against_whole_one_hots(fields: dict[str, Any]) -> None:
    """At v and at the states, with the sign turned: as if the drawn word were a one-hot with the
    gradient of the softmax."""
    made = amos(**fields)
    objective, c = cast(Any, made.objective), mixture_of(made)
    plan = objective.plan(TOKENS, draws_of(TOKENS))
    states = [x.detach().requires_grad_() for x in c.states(c.mask(TOKENS, plan).tokens, plan.at_M)]
    c.states = lambda tokens, at_M: states  # type: ignore[method-assign]
    leaves = [c.vote.weight, *states]
    ours = torch.autograd.grad(rtd(objective, plan, c(TOKENS, plan)), leaves)

    z = c(TOKENS, plan)
    logits_MKV = torch.stack([c.lm.head(x) for x in states], 1)
    sharp = TAU * fields.get("temperature", 1.0)
    if "disallow_correct" in fields:
        logits_MKV = logits_MKV.masked_fill(
            nn.functional.one_hot(z.was_M, VOCAB).bool()[:, None], -1e4
        )
    words: Any = objective.encoder.embeddings.words
    whole_ME = straight_through(
        c.vote.weight[0], torch.stack(states, 1), logits_MKV, words.weight, sharp
    )
    other = Mixed(**vars(z) | {"rows_ME": whole_ME - whole_ME.detach()})
    theirs = torch.autograd.grad(rtd(objective, plan, other), leaves)
    for mine, their in zip(ours, theirs, strict=True):
        assert mine.any()
        torch.testing.assert_close(mine, -their, rtol=1e-3, atol=2e-6)


def rtd(objective: Any, plan: Any, z: Mixed) -> Tensor:
    """The detector's loss on this text."""
    given: Any = lambda tokens, plan: z  # noqa: E731
    there, objective.corruptor.forward = objective.corruptor.forward, given
    try:
        return objective(TOKENS, plan).losses["rtd"].term().sum
    finally:
        objective.corruptor.forward = there


@pytest.mark.parametrize("loss", ["rtd", "correct"])
def test_the_way_back_changes_nothing_for_the_discriminator(loss: str) -> None:
    """It learns what it learns without the way back, to the bit."""
    fields = {"objective": "corrective", "term_weights": {"generator": 1, "rtd": 50, "correct": 1}}
    made = amos(**fields)
    objective, c = made.objective, mixture_of(made)
    terms_of(objective, TOKENS, draws_of(TOKENS))[loss].sum.backward()
    assert "vote.weight" in gradients(c)
    mine = {n: p.clone() for n, p in gradients(made.discriminator.encoder).items()}
    objective.zero_grad()
    made.exports["generator"].encoder.zero_grad()
    states = Objective.states
    z = corrupted(c, TOKENS, draws_of(TOKENS))
    assert z.rows_ME is not None
    assert not z.rows_ME.any()
    plain: Any = lambda one: states(objective, Mixed(**vars(one) | {"rows_ME": None}))  # noqa: E731
    objective.states = plain
    terms_of(objective, TOKENS, draws_of(TOKENS))[loss].sum.backward()
    assert not gradients(c)
    theirs = gradients(made.discriminator.encoder)
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[n], theirs[n]) for n in mine)


def test_the_gradient_is_cut_between_the_read_outs() -> None:
    made = amos()
    c = mixture_of(made)
    for k, own in enumerate(({0}, {1}, {2})):
        c.zero_grad()
        drawn(made).ce_KM[k].sum().backward()
        found = gradients(c)
        blocks = {int(n.split(".")[3]) for n in found if n.startswith("lm.encoder.blocks.")}
        assert blocks == own
        assert ("lm.encoder.embeddings.positions.weight" in found) == (k == 0)
        assert "lm.head.dense.weight" in found
        assert "vote.weight" not in found


def test_each_read_out_is_the_language_model_of_that_depth() -> None:
    """The deepest is the generator that is exported. The draws are from their mixture."""
    made = amos(read_outs=(1, 3))
    c = mixture_of(made)
    z = drawn(made)
    masked = c.mask(TOKENS, z.plan)
    states = c.states(masked.tokens, z.at_M)
    weight_MK = torch.cat([c.vote(x) for x in states], -1).softmax(-1)
    torch.testing.assert_close(z.weight_MK, weight_MK)
    mixed_MV = sum(w_M[:, None] * c.lm.head(x) for w_M, x in zip(weight_MK.T, states, strict=True))
    torch.testing.assert_close(z.logits_MV, mixed_MV)
    whole_MD = c.lm.encoder(masked.tokens)[z.at_M]
    assert torch.equal(z.states_MD, whole_MD)
    assert made.exports["generator"].encoder is c.lm.encoder
    del c.lm.encoder.blocks[1:]
    logits_MV = c.lm.head(c.lm.states(masked.tokens, z.at_M))
    ce_M = nn.functional.cross_entropy(logits_MV, z.was_M, reduction="none")
    torch.testing.assert_close(z.ce_KM[0], ce_M, rtol=1e-5, atol=1e-5)


def test_one_read_out_is_the_generator() -> None:
    """To the bit: losses, draws, and all gradients but that of v, which is 0."""
    one = amos(read_outs=(3,))
    other = built("amos-tiny", corruptor="generator", mask_rate=0.4, init="bert", tie="none")
    missing, more = other.objective.load_state_dict(one.objective.state_dict(), strict=False)
    assert (missing, more) == ([], ["corruptor.vote.weight"])
    for tokens in (TOKENS, ragged_batch()):
        terms = []
        for made in (one, other):
            made.objective.zero_grad()
            terms.append(terms_of(made.objective, tokens, draws_of(tokens)))
            (terms[-1]["generator"].sum + 50 * terms[-1]["rtd"].sum).backward()
        assert all(torch.equal(terms[0][n].sum, t.sum) for n, t in terms[1].items())
        theirs = dict(other.objective.named_parameters())
        for n, p in one.objective.named_parameters():
            assert p.grad is not None
            assert (
                not p.grad.any()
                if n.endswith("vote.weight")
                else torch.equal(p.grad, theirs[n].grad)
            ), n


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """But the order of sums over the vocabulary, which the size of a matrix product decides."""
    made = amos()
    mixture, z = mixture_of(made), drawn(made)
    assert z.logits_MV is not None
    rng = torch.Generator().manual_seed(5)
    logits = [torch.randn(z.logits_MV.shape, generator=rng) for _ in mixture.depths]
    whole_MKE = mixture.slopes(logits, z.logits_MV, z)
    monkeypatch.setattr("electrify.corruption.generator.CHUNK", 7)
    assert len(z.at_M) > 14
    chunked_MKE = mixture.slopes(logits, z.logits_MV, z)
    size = float(whole_MKE.abs().max())
    torch.testing.assert_close(chunked_MKE, whole_MKE, rtol=0, atol=1e-4 * size)
