"""ELECTRA and BERT: examples by hand, and which loss reaches which parameter."""

import pytest
import torch
from stubs import TEXT, At, FixedHead, HeadAt, Ids, generator, masks, outcome, part, total, whole
from torch import nn

from batches import built, draws_of, loss_of, ragged_batch, value
from electrify.build import Built
from electrify.objectives.electra import Electra
from electrify.objectives.mlm import MLM
from electrify.terms import weighted


def test_by_hand() -> None:
    corruptor, encoder, head = generator(), Ids(), FixedHead([0.0, 2.0, -1.0, 0.5, 100.0])
    terms, counts = outcome(Electra(corruptor, part(encoder), part(head)))
    assert part(corruptor.lm).saw_T.tolist() == [2, 4, 4, 3, 0]
    assert encoder.saw_T.tolist() == [2, 7, 6, 3, 0]
    # Generator: 50 where it is surely wrong, 0 where it is surely right.
    assert total(terms["generator"]) == (50.0, 2)
    assert total(terms["generator_accuracy"]) == (1.0, 2)
    # Discriminator, labels 0 1 0 0: softplus of 0, -2, -1 and .5 = .693147 + .126928 + .313262 +
    # .974077; the pad's 100 counts nowhere.
    assert total(terms["rtd"]) == (pytest.approx(2.107414, abs=1e-6), 4)
    assert total(terms["replaced"]) == (1.0, 4)
    assert whole(counts) == {"generator": 2, "rtd": 4}
    loss = weighted(terms, {"generator": 1.0, "rtd": 50.0}, counts)
    assert value(loss) == pytest.approx(51.342675, abs=1e-4)  # 50/2 + 50 * 2.107414/4
    loss.backward()
    # 50/4 * (sigmoid(logit) - label): sigmoid(0) = .5, sigmoid(2) = .880797, sigmoid(-1) = .268941,
    # sigmoid(.5) = .622459
    assert head.logits_T.grad is not None
    assert head.logits_T.grad.tolist() == pytest.approx(
        [6.25, -1.490037, 3.361763, 7.780738, 0.0], abs=1e-5
    )


def test_the_discriminator_reads_samples_also_where_the_mix_kept() -> None:
    """Mix 0/1/0: the generator sees the original; what it then draws there still replaces it."""
    corruptor, encoder = generator(mix=(0.0, 1.0, 0.0)), Ids()
    terms, _ = outcome(Electra(corruptor, part(encoder), part(FixedHead([0.0] * 5))))
    assert part(corruptor.lm).saw_T.tolist() == [2, 5, 6, 3, 0]
    assert encoder.saw_T.tolist() == [2, 7, 6, 3, 0]
    assert value(terms["generator_loss_kept"].sum) == 50.0


def reached(b: Built, loss: str) -> set[int]:
    """ids of the parameters with a gradient that is not zero everywhere."""
    tokens = ragged_batch()
    b.objective.zero_grad(set_to_none=True)
    weights = {name: float(name == loss) for name in ("generator", "rtd")}
    loss_of(b.objective, tokens, draws_of(tokens), weights).backward()
    return {id(p) for p in b.objective.parameters() if p.grad is not None and bool(p.grad.any())}


def of(*modules: nn.Module) -> set[int]:
    return {id(p) for m in modules for p in m.parameters()}


@pytest.mark.parametrize("tie", ["none", "tokens", "embeddings"])
def test_neither_loss_touches_the_others_blocks(tie: str) -> None:
    b = built("electra-tiny", tie=tie, mask_rate=0.4)
    g, d = b.exports["generator"], b.discriminator
    own_g = of(g.encoder.blocks, g.head) | of(g.encoder.project or nn.Identity())
    own_d = of(d.encoder.blocks, d.head)
    shared = of(g.encoder, g.head) & of(d.encoder, d.head)
    by_rtd, by_generator = reached(b, "rtd"), reached(b, "generator")
    assert by_rtd >= own_d, "every parameter of the discriminator learns from its loss"
    assert by_generator >= own_g - shared
    assert not by_rtd & (own_g - shared), "the discriminator's loss stops at the samples"
    assert not by_generator & own_d
    both = by_rtd & by_generator
    if tie == "none":
        assert not shared
        assert not both
    else:
        table = d.encoder.embeddings.words.weight
        assert id(table) in both, "both losses train the shared table: intended"
    if tie == "embeddings":
        assert of(d.encoder.embeddings) <= both


def test_all_tied_both_losses_train_every_block() -> None:
    b = built("electra-tiny", tie="all", generator_size=1.0, mask_rate=0.4)
    g, d = b.exports["generator"], b.discriminator
    by_rtd, by_generator = reached(b, "rtd"), reached(b, "generator")
    assert of(d.encoder) <= by_rtd & by_generator
    assert not by_rtd & (of(g.head) - of(d.encoder))
    assert not by_generator & of(d.head)


def test_masked_language_model_by_hand() -> None:
    """[CLS] 5 6 [SEP] [PAD], vocabulary 0..6: both candidates are chosen. The model gives them 1/2
    and 1/8: ln 2 + ln 8 = .693147 + 2.079442."""
    logits = torch.full((5, 7), 9.0)  # wrong wherever nobody may ask
    one = [0.1, 0.1, 0.1, 0.1, 0.05, 0.5, 0.05]
    other = [0.125, 0.125, 0.125, 0.125, 0.125, 0.25, 0.125]
    logits[1] = torch.tensor(one).log()
    logits[2] = torch.tensor(other).log() + 3  # a shift of all logits is nothing
    encoder, head = At(), HeadAt(logits)
    terms, counts = outcome(MLM(masks(7), part(encoder), part(head), reads_mask=True))
    assert encoder.saw_T.tolist() == [2, 4, 4, 3, 0]
    rates = ("accuracy", "accuracy_masked", "loss_masked", "loss_kept", "loss_random")
    assert terms.keys() == {"mlm", *(f"mlm_{rate}" for rate in rates)}
    assert total(terms["mlm"]) == (pytest.approx(2.772589, abs=1e-6), 2)
    assert whole(counts) == {"mlm": 2}
    assert total(terms["mlm_accuracy"]) == (1.0, 2)
    loss = weighted(terms, {"mlm": 2.0}, counts)
    assert value(loss) == pytest.approx(2.772589, abs=1e-6)  # 2 * 2.772589 / 2
    loss.backward()
    # d/dlogits of 2 * CE / 2 is probability - 1[target], at the chosen positions only.
    grad = head.logits_TV.grad
    assert grad is not None
    one[5] -= 1
    other[6] -= 1
    assert grad[1].tolist() == pytest.approx(one, abs=1e-6)
    assert grad[2].tolist() == pytest.approx(other, abs=1e-6)
    assert grad[[0, 3, 4]].abs().sum() == 0


def test_kept_tokens_are_predicted_too() -> None:
    encoder, head = At(), HeadAt(torch.zeros(5, 7))
    objective = MLM(masks(7, (0.0, 1.0, 0.0)), part(encoder), part(head), reads_mask=True)
    terms, _ = outcome(objective)
    assert encoder.saw_T.tolist() == TEXT.ids_T.tolist()
    ln7 = pytest.approx(2 * 1.945910, abs=1e-5)
    assert value(terms["mlm_loss_kept"].sum) == value(terms["mlm"].sum) == ln7
    assert int(terms["mlm_loss_masked"].count) == 0
