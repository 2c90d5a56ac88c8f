"""What objectives have in common: the same weights give the same numbers where one is a part of
another, and in the parts of a run in which one is a masked language model."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from batches import VOCAB, built, corrupted, counts_of, draws_of, ragged_batch, terms_of, value
from electrify.build import Built
from electrify.draws import Draws
from electrify.recipe import first_update
from electrify.terms import weighted
from electrify.tokens import Tokens

WEIGHTS = {"generator": 1.0, "rtd": 50.0, "correct": 1.0}


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


def at_progress(progress: float, tokens: Tokens) -> Draws:
    return replace(draws_of(tokens), progress=torch.tensor(progress, dtype=torch.float32))


@pytest.mark.parametrize("correction", ["plain", "gate", "copy", "none"])
def test_what_corrective_has_in_common_with_other_objectives(correction: str) -> None:
    """The same weights: the detection is Electra's, and the plain correction is Replace MLM's."""
    begins = {"mlm_share": 0.4} if correction == "none" else {}
    one = built("corrective-tiny", mask_rate=0.4, correction=correction, **begins)
    tokens = ragged_batch()
    late = at_progress(0.7, tokens)
    terms = terms_of(one.objective, tokens, late)
    electra = same_weights("electra-tiny", one)
    replace_mlm = same_weights("replace-mlm-tiny", one)
    corrective: Any = one.objective
    replace_mlm.discriminator.head.load_state_dict(corrective.corrector.state_dict())
    judged = terms_of(electra.objective, tokens, late)
    for name in ("rtd", "generator"):
        assert value(terms[name].sum) == value(judged[name].sum)
    predicted = terms_of(replace_mlm.objective, tokens, late)
    same = value(terms["correct"].sum) == pytest.approx(value(predicted["mlm"].sum), rel=1e-6)
    assert same == (correction == "plain")
    nothing = int(terms["correct"].count) == 0
    assert nothing == ("correct_accuracy" not in terms) == (correction == "none")


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
    now, then = (terms_of(b.objective, tokens, late) for b in (one, plain))
    assert now.keys() == then.keys()
    assert all(torch.equal(now[n].sum, t.sum) for n, t in then.items())


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
@pytest.mark.parametrize("when", ["mlm_share", "mlm_end_share"])
def test_the_update_at_which_it_changes(when: str, share: float, max_steps: int) -> None:
    """What the plan does and what the loop, the log and FLOPs are told is one update."""
    objective: Any = built("corrective-tiny", **{when: share}).objective
    tokens = ragged_batch()
    first = first_update(objective.periods()[-1].start, max_steps)
    for step in (first - 1, first):
        plan = objective.plan(tokens, at_progress(step / max_steps, tokens))
        assert plan.masked == ((step < first) == (when == "mlm_share"))


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
