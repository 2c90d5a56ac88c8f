"""Every objective on five tokens whose networks answer what is written here: its losses, what is
watched, and its gradients, computed by hand.

The text is [CLS] 5 6 [SEP] [PAD]. The generator puts 7 where 5 stood, and 6, which is right, at the
place after it.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from stubs import (
    TEXT,
    At,
    Ids,
    Written,
    at_places,
    frequency,
    generator,
    masks,
    outcome,
    part,
    total,
    whole,
)
from torch import Tensor

from batches import built, corrupted, draws_of, pack, ragged_batch, terms_of, value
from electrify.corruption.choosing import Plan
from electrify.corruption.corruptor import Corrupted
from electrify.corruption.masking import NEVER
from electrify.draws import Draws
from electrify.objectives.adversarial import Adversarial, reward
from electrify.objectives.corrective import Correction, Corrective
from electrify.objectives.electra import Electra
from electrify.objectives.electric import Electric, log_odds
from electrify.objectives.mlm import MLM, AllTokensMLM
from electrify.objectives.objective import Step, detection_summary
from electrify.objectives.selective import Selective
from electrify.terms import weighted
from electrify.tokens import Tokens

LN = math.log
Sums = dict[str, tuple[float, int]]


def softplus(x: float) -> float:
    return math.log1p(math.exp(x))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


@dataclass(frozen=True)
class Example:
    objective: Callable[[], Any]
    losses: Sums
    """Sum and count of every loss, and so how many tokens it divides by."""
    watched: Sums = field(default_factory=dict)
    reads: tuple[int, ...] = (2, 7, 6, 3, 0)
    """What the encoder reads."""
    weights: dict[str, float] = field(default_factory=dict)
    """All 1 by default."""
    slopes: dict[str, Any] = field(default_factory=dict)
    """Gradients of the weighted loss, by the name of the head."""
    tokens: Tokens = TEXT
    draws: Callable[[Any], Draws | None] = lambda objective: None


# 50 where the generator is surely wrong, 0 where it is surely right.
SURE = {"generator": (50, 2)}
# The logits of a head that detects; the pad's counts nowhere. Labels 0 1 0 0.
SAYS = [0.0, 2.0, -1.0, 0.5, 100.0]
FOUND = softplus(0) + softplus(-2) + softplus(-1) + softplus(0.5)
BOTH_NEW = FOUND - softplus(-1) + softplus(1)  # labels 0 1 1 0
# Of the detecting head with weight 50: 50/4 * (sigmoid(logit) - label).
SLOPE = [12.5 * (sigmoid(x) - y) for x, y in zip(SAYS[:4], [0, 1, 0, 0], strict=True)] + [0.0]


def electra(corruptor: Any = None, logits: list[float] = SAYS, **how: Any) -> Electra:
    return Electra(corruptor or generator(), part(At()), part(Written(logits)), **how)


def sentence() -> Electra:
    """Two sequences, the second left whole in effect (its draw is right): labels 1 and 0."""
    corruptor = generator(at_places(7, {(1, 7): 50.0, (4, 6): 50.0}))
    return electra(corruptor, [0.0] * 7, sentence_head=part(Written([2.0] * 7)))


def all_tokens(gate: list[float] | None) -> AllTokensMLM:
    """1/8 for every word."""
    copy = None if gate is None else part(Written(gate))
    return AllTokensMLM(generator(), part(At()), part(Written(torch.zeros(5, 8))), copy)


# A masked language model gives 5 a probability of 1/2, and 6, after a shift of all logits, of 1/8.
ONE = torch.tensor([0.1, 0.1, 0.1, 0.1, 0.05, 0.5, 0.05])
OTHER = torch.tensor([0.125, 0.125, 0.125, 0.125, 0.125, 0.25, 0.125])


def mlm() -> MLM:
    logits_TV = torch.full((5, 7), 9.0)  # wrong wherever nobody may ask
    logits_TV[1], logits_TV[2] = ONE.log(), OTHER.log() + 3
    return MLM(masks(7), part(At()), part(Written(logits_TV)))


def mlm_slope() -> Tensor:
    """2/2 * (probability - 1[target]) at the chosen positions only."""
    slope_TV = torch.zeros(5, 7)
    slope_TV[1], slope_TV[2] = ONE, OTHER
    slope_TV[1, 5] -= 1
    slope_TV[2, 6] -= 1
    return slope_TV


def kept() -> MLM:
    mask, head = masks(7, (0.0, 1.0, 0.0)), part(Written(torch.zeros(5, 7)))
    return MLM(mask, part(At()), head)


def believed() -> Any:
    """A head that gives the originals 8/15 each, and every other word 1/15."""
    return part(Written(at_places(5, {(1, 5): LN(8.0), (2, 6): LN(8.0)})))


def corrective(correction: Correction) -> Example:
    """It takes the first word for replaced with .880797 and the second with .268941. `gate` weighs
    with these, `copy` teaches at the replaced token as `plain` does."""
    p, first, second = 8 / 15, sigmoid(2), sigmoid(-1)
    loss, *shares = {
        "plain": (-2 * LN(p), 1.0, 1.0),
        "gate": (-(first + second) * LN(p), first, second),
        "copy": (
            -LN(first * p) - LN(1 - second + second * p),
            *(1.0, second * p / (1 - second + second * p)),
        ),
    }[correction]
    slope_TV = torch.zeros(5, 8)
    for place, word, share in zip((1, 2), (5, 6), shares, strict=True):
        slope_TV[place] = 0.5 * share / 15
        slope_TV[place, word] = 0.5 * share * (p - 1)

    def made() -> Corrective:
        parts = generator(), part(At()), part(Written(SAYS)), believed()
        return Corrective(*parts, correction=correction)

    return Example(
        made,
        SURE | {"rtd": (FOUND, 4), "correct": (loss, 2)},
        {"correct_accuracy": (2, 2), "correct_accuracy_replaced": (1, 1)},
        weights={"generator": 1, "rtd": 50, "correct": 1},
        slopes={"head": SLOPE, "corrector": slope_TV},
    )


def selective() -> Selective:
    """Beside 5 the generator thinks of 7, then of 4; beside 6 of 5, then of 7. The originals are
    found with 2 / 4 and with 1 / 5."""
    drawn = {(1, 7): 60.0, (1, 4): 30.0, (2, 6): 90.0, (2, 5): 60.0, (2, 7): 30.0}
    scores_TV = torch.full((5, 8), 100.0)  # where nobody asks
    scores_TV[1, [5, 7, 4]] = torch.tensor([2.0, 1.0, 1.0]).log()
    scores_TV[2, [6, 5, 7]] = torch.tensor([1.0, 3.0, 1.0]).log()
    selection = part(Written(scores_TV))
    selection.candidates = 3
    parts = part(At()), part(Written(SAYS)), part(At()), selection
    return Selective(generator(at_places(5, drawn)), *parts)


def selective_slope() -> Tensor:
    """2/2 * (p - 1[the original]), and nothing for a word that is not a candidate."""
    slope_TV = torch.zeros(5, 8)
    slope_TV[1, [5, 7, 4]] = torch.tensor([-0.5, 0.25, 0.25])
    slope_TV[2, [6, 5, 7]] = torch.tensor([-0.8, 0.6, 0.2])
    return slope_TV


def drawing(*text: int) -> Callable[[Any], Draws]:
    """The first draws with which a corruptor writes this."""

    def first(objective: Any) -> Draws:
        every, c = (draws_of(TEXT, seed=seed) for seed in itertools.count()), objective.corruptor
        return next(d for d in every if tuple(corrupted(c, TEXT, d).tokens.ids_T.tolist()) == text)

    return first


PAID = softplus(-2) + softplus(-1)


def adversarial() -> Adversarial:
    """The baseline expects log 4/3 and log 2 of the words; log p of each draw is -log 8."""
    heads = part(Written([0.0, 2.0, -1.0, 0.0, 0.0])), part(Written([0.0, LN(3), 0.0]))
    return Adversarial(generator(torch.zeros(5, 8)), part(At()), *heads)


def electric() -> Electric:
    """Counts 1 and 3 of 5 and 7: q is 1/4 and 3/4."""
    noise, energies = frequency([9, 9, 9, 9, 9, 1, 0, 3]), [100.0, 1.0, -1.0, 100.0, 100.0]
    return Electric(noise, part(At()), part(Written(energies)))


EXAMPLES = {
    "electra": Example(
        electra,
        SURE | {"rtd": (FOUND, 4)},
        {"generator_accuracy": (1, 2), "replaced": (1, 4)},
        weights={"generator": 1, "rtd": 50},
        slopes={"head": SLOPE},
    ),
    "chosen tokens only": Example(
        lambda: electra(loss_on="chosen"),
        SURE | {"rtd": (softplus(-2) + softplus(-1), 2)},
        {"rtd_loss_replaced": (softplus(-2), 1)},
    ),
    "a correct draw counts as replaced": Example(
        lambda: electra(correct_as_replaced=True),
        SURE | {"rtd": (BOTH_NEW, 4)},
        {"replaced": (1, 4)},
    ),
    "word frequencies": Example(  # all on 7; specials have counts and are never drawn
        lambda: electra(frequency([9, 9, 9, 9, 9, 0, 0, 1])),
        {"rtd": (BOTH_NEW, 4)},
        reads=(2, 7, 7, 3, 0),
    ),
    "sentence head": Example(
        sentence,
        SURE | {"rtd": (6 * LN(2), 6), "sentence": (softplus(-2) + softplus(2), 2)},
        {"sentence_accuracy": (1, 2)},
        reads=(2, 7, 3, 2, 6, 3, 0),
        tokens=pack([[[2, 5, 3], [2, 6, 3]]], row_length=7),
    ),
    "masked language model": Example(
        mlm,
        {"mlm": (LN(2) + LN(8), 2)},
        {"mlm_accuracy": (1, 2), "mlm_loss_masked": (LN(16), 2)},
        reads=(2, 4, 4, 3, 0),
        weights={"mlm": 2},
        slopes={"head": mlm_slope()},
    ),
    "kept tokens are predicted too": Example(
        kept,
        {"mlm": (2 * LN(7), 2)},
        {"mlm_loss_kept": (2 * LN(7), 2), "mlm_loss_masked": (0, 0)},
        reads=(2, 5, 6, 3, 0),
    ),
    "replace mlm": Example(
        lambda: MLM(generator(), part(At()), believed()),
        SURE | {"mlm": (2 * LN(15 / 8), 2)},
        {"mlm_loss_replaced": (LN(15 / 8), 1), "mlm_loss_original": (LN(15 / 8), 1)},
    ),
    "all tokens": Example(  # gate 1/2: a copy has 1/2 + 1/16, a replaced token 1/16
        lambda: all_tokens([0.0] * 5),
        SURE | {"all_tokens": (3 * LN(16 / 9) + LN(16), 4)},
        {"all_tokens_loss_replaced": (LN(16), 1), "softmax_loss_replaced": (LN(8), 1)},
    ),
    "all tokens without the gate": Example(
        lambda: all_tokens(None), SURE | {"all_tokens": (4 * LN(8), 4)}
    ),
    **{f"corrective, {how}": corrective(how) for how in ("plain", "gate", "copy")},
    "selective": Example(
        selective,
        {"generator": (60, 2), "rtd": (FOUND, 4), "select": (LN(2) + LN(5), 2)},
        {
            "select_loss_replaced": (LN(2), 1),
            "select_accuracy": (1, 2),
            "select_accuracy_replaced": (1, 1),
        },
        weights={"generator": 1, "rtd": 5, "select": 2},
        slopes={"head": [x / 10 for x in SLOPE], "selection": selective_slope()},
    ),
    "adversarial": Example(
        adversarial,
        {
            "rtd": (2 * LN(2) + PAID, 4),
            "reinforce": ((PAID - LN(4 / 3) - LN(2)) * LN(8), 2),
            # Cross-entropy towards exp(-reward): of 3/4 towards sigmoid(2), and of 1/2.
            "baseline": (LN(4) - sigmoid(2) * LN(3) + LN(2), 2),
        },
        {"reward": (PAID, 2), "generator_entropy": (2 * LN(8), 2)},
        draws=drawing(2, 7, 6, 3, 0),
    ),
    # Both words are drawn as 7, k = n = 2, so n - k counts as 1; energies 1 and -1.
    "electric over frequencies": Example(
        electric,
        {"nce": (softplus(-1 - LN(3 / 4 * 2)) + softplus(1 - LN(3 / 4 * 2)), 2)},
        reads=(2, 7, 7, 3, 0),
        draws=drawing(2, 7, 7, 3, 0),
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_by_hand(name: str) -> None:
    e = EXAMPLES[name]
    objective = e.objective()
    terms, counts = outcome(objective, e.tokens, e.draws(objective))
    assert whole(counts) == {loss: count for loss, (_, count) in e.losses.items()}
    assert tuple(objective.encoder.saw_T.tolist()) == e.reads
    for term, (wanted, count) in (e.losses | e.watched).items():
        assert total(terms[term]) == (pytest.approx(wanted, rel=2e-6, abs=2e-6), count), term
    weights = e.weights or dict.fromkeys(e.losses, 1.0)
    loss = weighted(terms, weights, counts)
    parts = [weights[name] * total / count for name, (total, count) in e.losses.items()]
    assert value(loss) == pytest.approx(sum(parts), rel=1e-5)
    loss.backward()
    for head, slope in e.slopes.items():
        found = getattr(objective, head).logits.grad
        torch.testing.assert_close(found, torch.as_tensor(slope), rtol=1e-5, atol=1e-6)


def test_what_is_asked_of_the_networks() -> None:
    """The generator reads the masked text; the original is the first candidate."""
    selects: Any = selective()
    outcome(selects)
    assert selects.corruptor.lm.encoder.saw_T.tolist() == [2, 4, 4, 3, 0]
    assert selects.selection.asked_NK.tolist() == [[5, 7, 4], [6, 5, 7]]


def test_what_a_validation_watches_of_detectors() -> None:
    """Of all tokens where the loss is over the chosen ones, which are apart; and the gate, which is
    shut at the replaced token alone, and finds it."""
    watched, _ = outcome(electra(loss_on="chosen").eval())
    found = [watched[f"rtd{which}_detection"].sum.sum(1).tolist() for which in ("", "_chosen")]
    assert found == [[3, 1], [1, 1]]
    terms, _ = outcome(all_tokens([2.0, -2.0, 2.0, 2.0, -9.0]).eval())
    seen = detection_summary(terms["copy_detection"].sum)
    assert (seen["auc"], seen["precision"], seen["recall"]) == (1.0, 1.0, 1.0)


def test_reinforce_is_the_exact_gradient_of_the_expected_reward() -> None:
    """Every pair of draws weighted by its probability; the baseline, whatever it says, drops out of
    the expectation."""
    logits_TV = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
    logits_V, was = torch.linspace(-2, 2, 8), torch.tensor([5, 6])
    heads = part(Written(logits_V)), part(Written([0.0, 0.7, -1.1]))
    objective: Any = Adversarial(generator(logits_TV), part(Ids()), *heads)
    plan = objective.plan(TEXT, draws_of(TEXT))
    own_TV = objective.corruptor.lm.head.logits
    p_MV = logits_TV[1:3].double().softmax(-1)
    middle_MV = p_MV.cumsum(-1) - p_MV / 2  # each draws its word
    found_TV = torch.zeros(5, 8)
    for a, b in itertools.product(range(8), repeat=2):
        drawn = replace(plan, uniform_M=torch.stack([middle_MV[0, a], middle_MV[1, b]]))
        terms = Step(objective)(TEXT, drawn)
        (slope_TV,) = torch.autograd.grad(terms["reinforce"].sum, [own_TV])
        found_TV += float(p_MV[0, a] * p_MV[1, b]) * slope_TV
    assert not terms["generator"].sum.requires_grad
    paid_MV = torch.stack([reward(logits_V, torch.arange(8) != w) for w in was])
    expected = (own_TV[1:3].softmax(-1) * paid_MV).sum()
    (exact_TV,) = torch.autograd.grad(expected, [own_TV])
    torch.testing.assert_close(found_TV, -exact_TV, rtol=1e-4, atol=1e-6)


def test_electric_takes_the_odds_of_each_sequence() -> None:
    tokens = pack([[[2, 5, 6, 7, 3], [2, 5, 3]]], row_length=9)
    words = (tokens.ids_T > 4) & tokens.real_T
    noise = Plan(torch.tensor([1, 6]), words, torch.zeros(()))
    found = log_odds(Corrupted(tokens, tokens.ids_T, noise))
    assert found[1].item() == pytest.approx(LN(1 / 2))  # one of three
    assert found[6].item() == pytest.approx(0.0)  # one of one: n - k counts as 1


def test_noise_is_noise_also_where_it_equals_the_original() -> None:
    objective: Any = built("electric-tiny", mask_rate=0.5).objective.eval()
    tokens = ragged_batch()
    z = corrupted(objective.corruptor, tokens, draws_of(tokens))
    terms = terms_of(objective, tokens, draws_of(tokens))
    assert int(terms["energy_noise"].count) == len(z.at_M)
    assert int(terms["nce_detection"].sum[1].sum()) == len(z.at_M)
    assert int(terms["nce"].count) == int(z.plan.candidates_T.sum())


def test_a_word_that_the_noise_never_draws_teaches_nothing() -> None:
    """It can only be data: whatever its energy (in reason), loss and gradient are 0 and finite. 6
    has no count, [UNK] is never drawn. log q sums to one over the other words."""
    tokens = pack([[[2, 6, 1, 5, 5, 5, 3]]], row_length=8)
    noise: Any = frequency([9, 9, 9, 9, 9, 1, 0, 3])
    assert noise.log_q_V.exp()[[5, 7]].tolist() == pytest.approx([0.25, 0.75])
    assert noise.log_q_V[[0, 1, 2, 3, 4, 6]].tolist() == pytest.approx([NEVER] * 6)
    noise.chooser.rate = 0.2  # one of the tokens
    every = (draws_of(tokens, seed=seed) for seed in itertools.count())
    draws = next(d for d in every if corrupted(noise, tokens, d).at_M.tolist() == [3])
    head = Written([0.0, 20.0, -20.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    terms_of(Electric(noise, part(At()), part(head)), tokens, draws)["nce"].sum.backward()
    assert head.logits.grad is not None
    assert head.logits.grad[1:3].tolist() == pytest.approx([0, 0], abs=1e-20)
    assert bool(head.logits.grad[3:6].all())
