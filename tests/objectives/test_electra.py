from __future__ import annotations

import pytest
import torch
from stubs import FixedHead, FixedLM, Ids, part
from torch import nn

from batches import built, counts_of, draws_of, pack, ragged_batch, terms_of, value
from electrify.build import Built
from electrify.corruption.choosing import Chooser
from electrify.corruption.generator import Generator
from electrify.corruption.masking import MaskMix
from electrify.corruption.sampling import Sampling
from electrify.objectives.electra import Electra
from electrify.terms import weighted
from electrify.tokens import SpecialIds

BASIC = SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)


def by_hand(mix: tuple[float, ...] = (1.0, 0.0, 0.0)) -> tuple[Electra, FixedLM, Ids, FixedHead]:
    """The generator is sure of 7 at position 1 (the original is 5) and of 6 at position 2 (which is
    right)."""
    logits = torch.zeros(5, 8)
    logits[1, 7] = logits[2, 6] = 50.0
    lm, encoder, head = FixedLM(logits), Ids(), FixedHead([0.0, 2.0, -1.0, 0.5, 100.0])
    corruptor = Generator(
        MaskMix(Chooser(BASIC, 8, rate=0.9), BASIC, 8, mix=mix), part(lm), sampling=Sampling()
    )
    return Electra(corruptor, part(encoder), part(head)), lm, encoder, head


def test_by_hand() -> None:
    tokens = pack([[[2, 5, 6, 3]]], row_length=5)
    objective, lm, encoder, head = by_hand()
    terms = terms_of(objective, tokens, draws_of(tokens))
    assert lm.saw_T.tolist() == [2, 4, 4, 3, 0]
    assert encoder.saw_T.tolist() == [2, 7, 6, 3, 0]
    # Generator: 50 where it is surely wrong, 0 where it is surely right.
    assert (value(terms["generator"].sum), int(terms["generator"].count)) == (50.0, 2)
    assert (value(terms["generator_accuracy"].sum), int(terms["generator_accuracy"].count)) == (
        1.0,
        2,
    )
    # Discriminator, labels 0 1 0 0: softplus of 0, -2, -1 and .5 = .693147 + .126928 + .313262 +
    # .974077; the pad's 100 counts nowhere.
    assert value(terms["rtd"].sum) == pytest.approx(2.107414, abs=1e-6)
    assert int(terms["rtd"].count) == 4
    assert (value(terms["replaced"].sum), int(terms["replaced"].count)) == (1.0, 4)
    counts = counts_of(objective, tokens, draws_of(tokens))
    assert {n: int(c) for n, c in counts.items()} == {"generator": 2, "rtd": 4}
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
    tokens = pack([[[2, 5, 6, 3]]], row_length=5)
    objective, lm, encoder, _ = by_hand((0.0, 1.0, 0.0))
    terms = terms_of(objective, tokens, draws_of(tokens))
    assert lm.saw_T.tolist() == [2, 5, 6, 3, 0]
    assert encoder.saw_T.tolist() == [2, 7, 6, 3, 0]
    assert value(terms["generator_loss_kept"].sum) == 50.0


# --------------------------------------------------------------- which loss reaches which parameter


def reached(b: Built, weights: dict[str, float]) -> set[int]:
    """ids of the parameters with a gradient that is not zero everywhere."""
    tokens = ragged_batch()
    b.objective.zero_grad(set_to_none=True)
    weighted(
        terms_of(b.objective, tokens, draws_of(tokens)),
        weights,
        counts_of(b.objective, tokens, draws_of(tokens)),
    ).backward()  # type: ignore[operator]
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
    by_rtd, by_generator = (
        reached(b, {"generator": 0.0, "rtd": 1.0}),
        reached(b, {"generator": 1.0, "rtd": 0.0}),
    )
    assert by_rtd >= own_d, "every parameter of the discriminator learns from its loss"
    assert by_generator >= own_g - shared
    assert not by_rtd & (own_g - shared), "the discriminator's loss stops at the samples"
    assert not by_generator & own_d
    if tie == "none":
        assert not shared
        assert not by_rtd & by_generator
    else:
        assert id(d.encoder.embeddings.words.weight) in by_rtd & by_generator, (
            "both losses train the shared table: intended"
        )
    if tie == "embeddings":
        assert of(d.encoder.embeddings) <= by_rtd & by_generator


def test_all_tied_both_losses_train_every_block() -> None:
    b = built("electra-tiny", tie="all", generator_size=1.0, mask_rate=0.4)
    g, d = b.exports["generator"], b.discriminator
    by_rtd, by_generator = (
        reached(b, {"generator": 0.0, "rtd": 1.0}),
        reached(b, {"generator": 1.0, "rtd": 0.0}),
    )
    assert of(d.encoder) <= by_rtd & by_generator
    assert not by_rtd & (of(g.head) - of(d.encoder))
    assert not by_generator & of(d.head)
