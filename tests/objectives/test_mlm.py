from __future__ import annotations

import pytest
import torch
from stubs import At, HeadAt, part

from batches import counts_of, draws_of, pack, terms_of, value
from electrify.corruption.choosing import Chooser
from electrify.corruption.masking import MaskMix
from electrify.objectives.mlm import MLM
from electrify.terms import weighted
from electrify.tokens import SpecialIds

BASIC = SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)


def test_by_hand() -> None:
    """[CLS] 5 6 [SEP] [PAD], vocabulary 0..6: both candidates are chosen. The model gives them 1/2
    and 1/8: ln 2 + ln 8 = .693147 + 2.079442."""
    tokens = pack([[[2, 5, 6, 3]]], row_length=5)
    logits = torch.full((5, 7), 9.0)  # wrong wherever nobody may ask
    logits[1] = torch.tensor([0.1, 0.1, 0.1, 0.1, 0.05, 0.5, 0.05]).log()
    logits[2] = (
        torch.tensor([0.125, 0.125, 0.125, 0.125, 0.125, 0.25, 0.125]).log() + 3
    )  # a shift of all logits is nothing
    encoder, head = At(), HeadAt(logits)
    objective = MLM(
        MaskMix(Chooser(BASIC, 7, rate=0.9), BASIC, 7, mix=(1.0, 0.0, 0.0)),
        part(encoder),
        part(head),
        reads_mask=True,
    )
    terms = terms_of(objective, tokens, draws_of(tokens))
    assert encoder.saw_T.tolist() == [2, 4, 4, 3, 0]
    assert terms.keys() == {
        "mlm",
        "mlm_accuracy",
        "mlm_accuracy_masked",
        "mlm_loss_masked",
        "mlm_loss_kept",
        "mlm_loss_random",
    }
    assert value(terms["mlm"].sum) == pytest.approx(2.772589, abs=1e-6)
    assert int(terms["mlm"].count) == 2
    assert int(counts_of(objective, tokens, draws_of(tokens))["mlm"]) == 2
    assert (value(terms["mlm_accuracy"].sum), int(terms["mlm_accuracy"].count)) == (1.0, 2)
    loss = weighted(terms, {"mlm": 2.0}, counts_of(objective, tokens, draws_of(tokens)))
    assert value(loss) == pytest.approx(2.772589, abs=1e-6)  # 2 * 2.772589 / 2
    loss.backward()
    # d/dlogits of 2 * CE / 2 is probability - 1[target], at the chosen positions only.
    grad = head.logits_TV.grad
    assert grad is not None
    assert grad[1].tolist() == pytest.approx([0.1, 0.1, 0.1, 0.1, 0.05, -0.5, 0.05], abs=1e-6)
    assert grad[2].tolist() == pytest.approx(
        [0.125, 0.125, 0.125, 0.125, 0.125, 0.25, -0.875], abs=1e-6
    )
    assert grad[[0, 3, 4]].abs().sum() == 0


def test_kept_tokens_are_predicted_too() -> None:
    tokens = pack([[[2, 5, 6, 3]]], row_length=4)
    encoder = At()
    objective = MLM(
        MaskMix(Chooser(BASIC, 7, rate=0.9), BASIC, 7, mix=(0.0, 1.0, 0.0)),
        part(encoder),
        part(HeadAt(torch.zeros(4, 7))),
        reads_mask=True,
    )
    terms = terms_of(objective, tokens, draws_of(tokens))
    assert encoder.saw_T.tolist() == [2, 5, 6, 3]
    assert (
        value(terms["mlm_loss_kept"].sum)
        == value(terms["mlm"].sum)
        == pytest.approx(2 * 1.945910, abs=1e-5)
    )  # ln 7
    assert int(terms["mlm_loss_masked"].count) == 0
