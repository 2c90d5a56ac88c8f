"""Detection and correction by one encoder: an example by hand, what its losses are beside those of
other objectives, and where its gradients go."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stubs import At, FixedHead, HeadAt, at_places, generator, outcome, part, total, whole

from batches import built, counts_of, draws_of, ragged_batch, terms_of, value
from electrify.build import Built
from electrify.draws import Draws
from electrify.objectives.corrective import Correction, Corrective, corrected
from electrify.recipe import first_update
from electrify.terms import weighted
from electrify.tokens import Tokens

WEIGHTS = {"generator": 1.0, "rtd": 50.0, "correct": 1.0}
CORRECTIONS: list[Correction] = ["plain", "gate", "copy"]


def by_hand(correction: Correction) -> tuple[Corrective, FixedHead, HeadAt]:
    """The generator puts 7 where 5 stood, and 6, which is right, at the place after it. The encoder
    takes the first for replaced with .880797 and the second with .268941, and gives the originals 5
    and 6 a probability of 8 / 15."""
    corrector = HeadAt(at_places(5, {(1, 5): math.log(8.0), (2, 6): math.log(8.0)}))
    head = FixedHead([0.0, 2.0, -1.0, 0.5, 100.0])
    parts = generator(), part(At()), part(head), part(corrector)
    return Corrective(*parts, correction=correction), head, corrector


CE = math.log(15 / 8)  # .628609
# gate: .880797 * CE + .268941 * CE; copy: -log(.880797 * 8/15) for the replaced token, and
# -log(.731059 + .268941 * 8/15) for the one that is the original.
BY_HAND = {"plain": 2 * CE, "gate": 1.149738 * CE, "copy": 0.755537 + 0.134110}


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_by_hand(correction: Correction) -> None:
    objective, head, corrector = by_hand(correction)
    terms, counts = outcome(objective)
    assert whole(counts) == {"generator": 2, "rtd": 4, "correct": 2}
    assert value(terms["generator"].sum) == 50.0
    # As in Electra's example: labels 0 1 0 0.
    assert value(terms["rtd"].sum) == pytest.approx(2.107414, abs=1e-6)
    assert total(terms["correct"]) == (pytest.approx(BY_HAND[correction], abs=2e-6), 2)
    # 7 at the first place: 5 is the likeliest token there, so both are right.
    assert total(terms["correct_accuracy"]) == (2.0, 2)
    assert int(terms["correct_accuracy_replaced"].count) == 1
    loss = weighted(terms, WEIGHTS, counts)
    want = 50 / 2 + 50 * 2.107414 / 4 + BY_HAND[correction] / 2
    assert value(loss) == pytest.approx(want, abs=1e-4)
    loss.backward()
    # The detecting head learns from its own loss alone: 50/4 * (sigmoid(logit) - label).
    assert head.logits_T.grad is not None
    assert head.logits_T.grad.tolist() == pytest.approx(
        [6.25, -1.490037, 3.361763, 7.780738, 0.0], abs=1e-5
    )
    # The correcting head at the replaced token: 1/2 * (p - 1) of cross-entropy, times (1 - c) with
    # the gate; `copy` teaches there as `plain` does.
    assert corrector.logits_TV.grad is not None
    share = 0.880797 if correction == "gate" else 1.0
    assert float(corrector.logits_TV.grad[1, 5]) == pytest.approx(
        share * 0.5 * (8 / 15 - 1), abs=1e-5
    )
    # And nothing at the places that were not chosen.
    assert corrector.logits_TV.grad.any(1).tolist() == [False, True, True, False, False]


logits = st.floats(-30, 30, width=32)


@settings(max_examples=25)
@given(st.lists(logits, min_size=2, max_size=9), logits, st.data())
def test_corrections_in_their_own_words(believed, detected, data):
    """Against the formulas of the docstring in float64; `copy` sums to 1 over the tokens that may
    have stood there."""
    log_p_V = torch.tensor(believed, dtype=torch.float64).log_softmax(0)
    stands = data.draw(st.integers(0, len(believed) - 1))
    kept_V = torch.arange(len(believed)) == stands
    z_V = torch.full((len(believed),), detected, dtype=torch.float64)
    c = float(torch.sigmoid(-z_V[0]))
    ce_V = -log_p_V.float()
    by: dict[Correction, torch.Tensor] = {
        "plain": -log_p_V,
        "gate": (1 - c) * -log_p_V,
        "copy": -(c * kept_V + (1 - c) * log_p_V.exp()).log(),
    }
    for correction, want_V in by.items():
        got_V = corrected(ce_V, z_V.float(), kept_V, correction)
        torch.testing.assert_close(got_V.double(), want_V, rtol=1e-4, atol=1e-4)
    copied_V = corrected(ce_V, z_V.float(), kept_V, "copy")
    assert float((-copied_V).exp().sum()) == pytest.approx(1.0, abs=1e-4)


def same_weights(recipe: str, one: Built) -> Built:
    """Another objective, with the encoder, the generator and, where it fits, the head of this."""
    other = built(recipe, mask_rate=0.4)
    kept, lm = other.discriminator, other.exports["generator"]
    kept.encoder.load_state_dict(one.discriminator.encoder.state_dict())
    lm.encoder.load_state_dict(one.exports["generator"].encoder.state_dict())
    lm.head.load_state_dict(one.exports["generator"].head.state_dict())
    if type(kept.head) is type(one.discriminator.head):
        kept.head.load_state_dict(one.discriminator.head.state_dict())
    return other


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_what_it_has_in_common_with_other_objectives(correction: str) -> None:
    """The same weights: the detection is Electra's, and the plain correction is Replace MLM's."""
    one = built("corrective-tiny", mask_rate=0.4, correction=correction)
    tokens = ragged_batch()
    terms = terms_of(one.objective, tokens, draws_of(tokens))
    electra = same_weights("electra-tiny", one)
    replace_mlm: Any = same_weights("replace-mlm-tiny", one)
    replace_mlm.discriminator.head.load_state_dict(one.exports["corrector"].head.state_dict())
    judged = terms_of(electra.objective, tokens, draws_of(tokens))
    assert value(terms["rtd"].sum) == value(judged["rtd"].sum)
    assert value(terms["generator"].sum) == value(judged["generator"].sum)
    predicted = terms_of(replace_mlm.objective, tokens, draws_of(tokens))
    same = value(terms["correct"].sum) == pytest.approx(value(predicted["mlm"].sum), rel=1e-6)
    assert same == (correction == "plain")


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_the_correction_trains_the_encoder_and_never_the_detecting_head(correction: str) -> None:
    b = built("corrective-tiny", tie="none", mask_rate=0.4, correction=correction)
    tokens = ragged_batch()
    terms = terms_of(b.objective, tokens, draws_of(tokens))
    terms["correct"].sum.backward()
    assert b.exports["corrector"].encoder is b.discriminator.encoder
    assert all(
        p.grad is not None and p.grad.any() for p in b.discriminator.encoder.blocks.parameters()
    )
    assert all(p.grad is None for p in b.discriminator.head.parameters())
    for network in (b.exports["generator"].encoder, b.exports["generator"].head):
        assert all(p.grad is None for p in network.parameters())


def at_progress(progress: float, tokens: Tokens) -> Draws:
    return replace(draws_of(tokens), progress=torch.tensor(progress, dtype=torch.float32))


def test_first_a_masked_language_model() -> None:
    """The same numbers as an MLM of the same weights on the same masked text; nothing is detected,
    and the head that detects gets no gradient: with one of zeros it would decay."""
    one = built("corrective-tiny", mask_rate=0.4, mlm_share=0.4, tie="none")
    bert: Any = built("bert-tiny", mask_rate=0.4, mask_mix=(0.85, 0.15, 0.0))
    bert.discriminator.encoder.load_state_dict(one.discriminator.encoder.state_dict())
    bert.discriminator.head.load_state_dict(one.exports["corrector"].head.state_dict())
    tokens = ragged_batch()
    early, late = at_progress(0.3, tokens), at_progress(0.7, tokens)
    terms = terms_of(one.objective, tokens, early)
    mlm = terms_of(bert.objective, tokens, early)
    assert value(terms["correct"].sum) == pytest.approx(value(mlm["mlm"].sum), rel=1e-6)
    for name in ("mlm_accuracy_masked", "mlm_loss_masked", "mlm_loss_kept"):
        assert value(terms[name].sum) == pytest.approx(value(mlm[name].sum), rel=1e-5), name
    counts = counts_of(one.objective, tokens, early)
    assert int(counts["rtd"]) == int(terms["rtd"].count) == 0
    assert int(counts["correct"]) == int(mlm["mlm"].count)
    weighted(terms, WEIGHTS, counts).backward()
    assert all(p.grad is None for p in one.discriminator.head.parameters())
    # Later it is what it is without a beginning.
    plain: Any = built("corrective-tiny", mask_rate=0.4, tie="none")
    plain.objective.load_state_dict(one.objective.state_dict())
    now = terms_of(one.objective, tokens, late)
    then = terms_of(plain.objective, tokens, late)
    assert {n: value(t.sum) for n, t in now.items() if not t.sum.ndim} == {
        n: value(t.sum) for n, t in then.items() if not t.sum.ndim
    }


def test_at_the_end_a_masked_language_model() -> None:
    """To the bit what the beginning computes, also in the validation after the last update; without
    such an end that one detects."""
    begins = built("corrective-tiny", mask_rate=0.4, mlm_share=0.9, correction="none")
    fields = {"mask_rate": 0.4, "mlm_share": 0.1, "mlm_end_share": 0.3, "correction": "none"}
    ends = built("corrective-tiny", **fields)
    ends.objective.load_state_dict(begins.objective.state_dict())
    assert ends.exports["corrector"].encoder is ends.discriminator.encoder
    assert "corrector" not in begins.exports, "what it has learned is long ago"
    tokens = ragged_batch()
    for progress, masked in ((0.05, True), (0.5, False), (0.69, False), (0.7, True), (1.0, True)):
        found = terms_of(ends.objective, tokens, at_progress(progress, tokens))
        assert (int(found["rtd"].count) == 0) == masked, progress
        if masked:
            early = terms_of(begins.objective, tokens, at_progress(progress / 2, tokens))
            assert found.keys() == early.keys()
            assert all(torch.equal(found[n].sum, t.sum) for n, t in early.items())
    weighted(found, WEIGHTS, counts_of(ends.objective, tokens, at_progress(0.9, tokens))).backward()
    assert all(p.grad is None for p in ends.discriminator.head.parameters())
    plain = built("corrective-tiny", mask_rate=0.4)
    assert int(terms_of(plain.objective, tokens, at_progress(1.0, tokens))["rtd"].count) > 0


@pytest.mark.parametrize("share", [0.1, 0.3, 1 / 3])
@pytest.mark.parametrize("max_steps", [10, 999])
def test_the_update_at_which_it_changes(share: float, max_steps: int) -> None:
    """What the plan does and what the loop, the log and FLOPs are told is one update."""
    objective: Any = built("corrective-tiny", mlm_share=share).objective
    tokens = ragged_batch()
    _, second = objective.periods()
    first = first_update(second.start, max_steps)
    for step in (first - 1, first):
        plan = objective.plan(tokens, at_progress(step / max_steps, tokens))
        assert plan.masked == (step < first)
    objective = built("corrective-tiny", mlm_end_share=share).objective
    first = first_update(objective.periods()[-1].start, max_steps)
    for step in (first - 1, first):
        plan = objective.plan(tokens, at_progress(step / max_steps, tokens))
        assert plan.masked == (step >= first)


def test_only_detection_after_it() -> None:
    one: Any = built("corrective-tiny", mask_rate=0.4, mlm_share=0.4, correction="none")
    electra = same_weights("electra-tiny", one)
    tokens = ragged_batch()
    late = at_progress(0.7, tokens)
    terms = terms_of(one.objective, tokens, late)
    assert int(terms["correct"].count) == 0
    assert "correct_accuracy" not in terms
    assert value(terms["rtd"].sum) == value(terms_of(electra.objective, tokens, late)["rtd"].sum)
    weighted(terms, WEIGHTS, counts_of(one.objective, tokens, late)).backward()
    own = {n: p for n, p in one.objective.named_parameters() if n.startswith("corrector.")}
    assert own
    assert all(p.grad is None for p in own.values())
    assert all(p.grad is not None for p in one.discriminator.encoder.parameters()), (
        "the word table, too"
    )
