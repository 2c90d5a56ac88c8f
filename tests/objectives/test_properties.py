"""What holds for every system of the study and its variants, whatever the text and the numbers, and
which loss reaches which parameter."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from stubs import outcome, whole

from batches import (
    SPECIAL,
    built,
    counts_of,
    draws_of,
    gradients,
    pack,
    packed_batches,
    ragged_batch,
    terms_of,
    tiny,
    value,
)
from electrify.objectives.corrective import Correction, correction_loss
from electrify.objectives.electric import noise_logit
from electrify.objectives.objective import binary_ce
from electrify.terms import weighted
from electrify.tokens import Tokens
from systems import SYSTEMS
from variants import VARIANTS

EVERY: dict[str, tuple[str, dict[str, Any]]] = {name: (f"{name}-tiny", {}) for name in SYSTEMS}
EVERY |= VARIANTS
EMPTY = pack([[], []], row_length=32)


@cache
def objective_of(name: str) -> Any:
    recipe, fields = EVERY[name]
    return built(recipe, **{"mask_rate": 0.4} | fields).objective


@cache
def towers() -> Any:
    return built("electric-tiny", init="bert").objective.corruptor


@pytest.mark.parametrize("name", EVERY)
@given(tokens=packed_batches(), seed=st.integers(0, 2**40), fixed=st.booleans())
@example(tokens=EMPTY, seed=0, fixed=False)
@example(tokens=EMPTY, seed=0, fixed=True)
@settings(max_examples=4, deadline=None)
def test_any_text(name: str, tokens: Tokens, seed: int, fixed: bool) -> None:
    """Empty rows and batches, sequences of one token or of specials only: losses are finite and not
    negative (but for REINFORCE), counts are known before, weights name them, and rates carry no
    graph."""
    objective, draws = objective_of(name).train(), draws_of(tokens, seed=seed)
    terms, counts = outcome(objective, tokens, draws, fixed=fixed)
    assert whole(counts) == {n: int(terms[n].count) for n in counts}
    for n in counts:
        assert bool(terms[n].sum.isfinite())
        assert n == "reinforce" or value(terms[n].sum) >= 0
        assert int(counts[n]) > 0 or value(terms[n].sum) == 0
    assert not any(t.sum.requires_grad for n, t in terms.items() if n not in counts)
    objective.zero_grad(set_to_none=True)
    recipe, fields = EVERY[name]
    weights = tiny(recipe, **fields).objective.term_weights
    weighted(terms, weights, counts).backward()
    assert all(bool(p.grad.isfinite().all()) for p in objective.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", SYSTEMS)
@given(tokens=packed_batches(), seed=st.integers(0, 2**40), other=st.integers(6, 47))
@settings(max_examples=3, deadline=None)
def test_what_stands_in_padding_is_in_no_loss(
    name: str, tokens: Tokens, seed: int, other: int
) -> None:
    objective, draws = objective_of(name).eval(), draws_of(tokens, seed=seed)
    pads = ~tokens.real_T
    assume(bool(pads.any()))
    with torch.no_grad():
        one = terms_of(objective, tokens, draws)
        two = terms_of(
            objective, replace(tokens, ids_T=tokens.ids_T.masked_fill(pads, other)), draws
        )
    for n in counts_of(objective, tokens, draws):
        torch.testing.assert_close(one[n].sum, two[n].sum, rtol=1e-5, atol=1e-5)


RTD = "encoder. head."
LM = "corruptor.lm.encoder."
ALL = "corruptor."
APART = {"tie": "none"}
TEAMS = {"num_hidden_layers": 3}
CONTRAST = {"contrast_rows": 2, "term_weights": VARIANTS["contrast"][1]["term_weights"]}
SENTENCE = {"clean_rate": 0.2, "term_weights": {"generator": 1.0, "rtd": 50.0, "sentence": 1.0}}
VOTES = VARIANTS["corrective over a mixture"][1]
# Recipe, fields, and of each loss the beginnings of the names of the parameters that it reaches.
# What generator and discriminator share has the generator's name.
REACHED: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("electra", APART, {"rtd": RTD, "generator": ALL}),
    ("electra", {"tie": "tokens"}, {"rtd": f"{RTD} {LM}embeddings.words.", "generator": ALL}),
    ("electra", {"tie": "embeddings"}, {"rtd": f"{RTD} {LM}embeddings.", "generator": ALL}),
    ("electra", {"tie": "all", "generator_size": 1.0}, {"rtd": f"head. {LM}", "generator": ALL}),
    # The discriminator's loss moves its difference of the words, and not the generator's table.
    ("electra", {"tie": "gdes"}, {"rtd": RTD, "generator": ALL}),
    ("electra", APART | SENTENCE, {"sentence": "encoder. sentence_head."}),
    ("electra-15", APART, {"rtd": RTD, "generator": ALL}),
    ("two-stage", {}, {"rtd": RTD}),
    ("replace-mlm", APART, {"mlm": RTD, "generator": ALL}),
    ("all-tokens-mlm", APART, {"all_tokens": f"{RTD} copy_", "generator": ALL}),
    ("electric", APART, {"nce": RTD, "generator": ALL}),
    ("adversarial", APART, {"rtd": RTD, "reinforce": ALL, "baseline": "baseline_head."}),
    # Never the detecting head, whose belief weighs the loss of two of the three.
    ("corrective", APART | {"correction": "plain"}, {"correct": "encoder. corrector."}),
    ("corrective", APART | {"correction": "gate"}, {"correct": "encoder. corrector."}),
    ("corrective", APART | {"correction": "copy"}, {"correct": "encoder. corrector."}),
    ("corrective", APART | CONTRAST, {"contrast": "encoder. vectors."}),
    # Three blocks, of which the generator has the lowest where they are tied.
    (
        "teams",
        TEAMS,
        {
            "rtd": f"{LM}embeddings. {LM}blocks.0. {RTD}",
            "select": f"{LM}embeddings. {LM}blocks.0. encoder.blocks.1. selector. selection.",
            "generator": ALL,
        },
    ),
    (
        "teams",
        TEAMS | APART | {"tie_layers": None},
        {
            "rtd": RTD,
            "select": "encoder.em encoder.blocks.0. encoder.blocks.1. selector. selection.",
            "generator": ALL,
        },
    ),
    ("amos", APART, {"rtd": f"{RTD} {LM} corruptor.vote.", "generator": "corruptor.lm."}),
    ("amos", APART | VOTES, {"correct": f"encoder. corrector. {LM} corruptor.vote."}),
]


@pytest.mark.parametrize(("name", "fields", "reached"), REACHED, ids=str)
def test_each_loss_reaches_its_own_parameters_and_no_other(name, fields, reached):
    objective: Any = built(f"{name}-tiny", **{"mask_rate": 0.4} | fields).objective
    tokens = ragged_batch()
    terms = terms_of(objective, tokens, draws_of(tokens))
    names = [n for n, _ in objective.named_parameters()]
    for loss, beginnings in reached.items():
        objective.zero_grad(set_to_none=True)
        terms[loss].sum.backward(retain_graph=True)
        wanted = {n for n in names if n.startswith(tuple(beginnings.split()))}
        assert gradients(objective).keys() == wanted, loss


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
    kept = b.discriminator_names()
    assert {n for n in names if n.startswith(("encoder.", "head.", *heads))} == kept
    assert all(n.startswith(("corruptor.", "baseline_head.")) for n in names - kept)


@given(tokens=packed_batches(), data=st.data())
@settings(max_examples=15, deadline=None)
def test_the_towers_are_blind_to_the_token_itself(tokens: Tokens, data: st.DataObject) -> None:
    """And to other sequences."""
    real = tokens.real_T.nonzero().squeeze(1).tolist()
    assume(real)
    i = data.draw(st.sampled_from(real))
    others = [x for x in (SPECIAL.unk, 9, 30, 47) if x != int(tokens.ids_T[i])]
    changed = tokens.ids_T.index_fill(0, torch.tensor([i]), data.draw(st.sampled_from(others)))
    with torch.no_grad():
        before_TD = towers().context(tokens)
        after_TD = towers().context(replace(tokens, ids_T=changed))
    moved_T = (after_TD - before_TD).abs().amax(1) > 1e-6
    row_T = torch.arange(len(moved_T)) // tokens.row_length
    own_T = (tokens.seq_T == tokens.seq_T[i]) & (row_T == row_T[i])
    assert not bool(moved_T[i])
    assert not bool((moved_T & ~own_T & tokens.real_T).any())


logits = st.floats(-30, 30, width=32)


@settings(max_examples=25)
@given(st.lists(logits, min_size=2, max_size=30), st.floats(-40, 40, width=32), st.data())
def test_corrections_in_their_own_words(believed, detected, data):
    """Against the formulas of the docstring in float64; `copy`, which is All-Tokens MLM's, sums to
    1 over the tokens that may have stood there."""
    log_p_V = torch.tensor(believed, dtype=torch.float64).log_softmax(0)
    stands = data.draw(st.integers(0, len(believed) - 1))
    kept_V = torch.arange(len(believed)) == stands
    z_V = torch.full((len(believed),), detected, dtype=torch.float64)
    copies, new = (float(torch.sigmoid(sign * z_V[0])) for sign in (-1, 1))
    by: dict[Correction, torch.Tensor] = {
        "plain": -log_p_V,
        "gate": new * -log_p_V,
        "copy": -(copies * kept_V + new * log_p_V.exp()).log(),
    }
    for correction, want_V in by.items():
        got_V = correction_loss(-log_p_V.float(), z_V.float(), kept_V, correction)
        torch.testing.assert_close(got_V.double(), want_V, rtol=1e-4, atol=1e-4)
    assert float((-got_V).exp().sum()) == pytest.approx(1.0, abs=1e-4)


masses = arrays("float64", 5, elements=st.floats(0.05, 1.0))


@given(masses, masses, st.floats(0.05, 0.95), arrays("float64", 5, elements=st.floats(-2, 2)))
def test_noise_contrast_has_its_minimum_at_the_data(
    p_V: Any, q_V: Any, k: float, step_V: Any
) -> None:
    """Data p, noise q, a share k of noise: at exp(-E) = p the expected loss has no gradient, and
    any other energies cost more."""
    p, q = (torch.from_numpy(x / x.sum()) for x in (p_V, q_V))
    odds = torch.tensor(k / (1 - k)).log().double()

    def loss(energy: Any) -> Any:
        logit = noise_logit(energy, q.log(), odds)
        data, noise = (binary_ce(logit, torch.full((5,), label)) for label in (0.0, 1.0))
        return (1 - k) * (p * data).sum() + k * (q * noise).sum()

    best = (-p.log()).requires_grad_()
    (gradient,) = torch.autograd.grad(loss(best), [best])
    assert float(gradient.abs().max()) < 1e-6
    assert value(loss(best + torch.from_numpy(step_V))) >= value(loss(best)) - 1e-6
