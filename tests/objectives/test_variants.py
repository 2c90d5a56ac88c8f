"""Variants that no recipe names: examples by hand, and what holds for any text."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stubs import FixedHead, Ids, part
from test_study import BASIC, TEXT, Logits, chooser, generator

from batches import (
    VOCABULARY,
    at_of,
    built,
    corrupted,
    counts_of,
    draws_of,
    one_update,
    pack,
    packed_batches,
    ragged_batch,
    terms_of,
    text_batch,
    tiny,
    value,
)
from electrify.build import build
from electrify.corruption.frequency import NEVER, Frequency
from electrify.errors import UserError
from electrify.objectives.all_tokens import AllTokensMLM
from electrify.objectives.electra import Electra
from electrify.objectives.electric import Electric
from electrify.objectives.mlm import MLM
from electrify.recipe import Recipe, override
from electrify.rules import check
from electrify.terms import weighted
from electrify.tokens import Tokens
from variants import VARIANTS

OBJECTIVES: dict[str, Any] = {
    name: built(recipe, **{"mask_rate": 0.4} | fields).objective
    for name, (recipe, fields) in VARIANTS.items()
}
WEIGHTS = {
    name: tiny(recipe, **fields).objective.term_weights
    for name, (recipe, fields) in VARIANTS.items()
}


def frequency(counts: list[int]) -> Frequency:
    return Frequency(chooser(), BASIC, 8, counts_V=torch.tensor(counts))


# ---------------------------------------------------------------- by hand


def test_a_correct_draw_counts_as_replaced() -> None:
    """The generator draws 7 for 5 and 6 for 6: both labels are 1; plain ELECTRA has 1 and 0."""
    tokens = pack(TEXT, row_length=5)
    logits = [0.0, 2.0, -1.0, 0.5, 100.0]
    plain, fake = (
        terms_of(
            Electra(generator(), part(Ids()), part(FixedHead(logits)), correct_as_replaced=flag),
            tokens,
            draws_of(tokens),
        )
        for flag in (False, True)
    )
    # Labels 0 1 0 0: softplus of 0, -2, -1, .5; labels 0 1 1 0: softplus of 0, -2, 1, .5.
    assert value(plain["rtd"].sum) == pytest.approx(
        0.693147 + 0.126928 + 0.313262 + 0.974077, abs=1e-5
    )
    assert value(fake["rtd"].sum) == pytest.approx(
        0.693147 + 0.126928 + 1.313262 + 0.974077, abs=1e-5
    )
    assert value(plain["replaced"].sum) == value(fake["replaced"].sum) == 1, (
        "the share replaced is the text's"
    )


def test_labels_of_correct_draws_are_those_of_electric() -> None:
    """Every chosen position and nothing else, in validation, too."""
    objective = OBJECTIVES["correct as replaced"].eval()
    tokens = ragged_batch()
    terms = terms_of(objective, tokens, draws_of(tokens))
    chosen = len(at_of(objective.corruptor.chooser, tokens, draws_of(tokens)))
    assert int(terms["rtd_detection"].sum[1].sum()) == chosen > int(terms["replaced"].sum)


def test_all_tokens_without_the_gate_by_hand() -> None:
    """1/8 for every word at every token, whether it is a copy or not."""
    tokens = pack(TEXT, row_length=5)
    terms = terms_of(
        AllTokensMLM(generator(), part(Ids()), part(Logits(torch.zeros(8))), None),
        tokens,
        draws_of(tokens),
    )
    assert value(terms["all_tokens"].sum) == pytest.approx(4 * math.log(8), abs=1e-5)
    assert int(terms["all_tokens"].count) == 4
    assert "copy_detection" not in terms


def test_the_gate_shut_is_no_gate() -> None:
    """sigmoid(-50) = 0: what is left is the softmax."""
    tokens = pack(TEXT, row_length=5)
    head = Logits(torch.arange(8.0))
    shut = terms_of(
        AllTokensMLM(generator(), part(Ids()), part(head), part(FixedHead([-50.0] * 5))),
        tokens,
        draws_of(tokens),
    )
    none = terms_of(
        AllTokensMLM(generator(), part(Ids()), part(head), None), tokens, draws_of(tokens)
    )
    torch.testing.assert_close(shut["all_tokens"].sum, none["all_tokens"].sum)


def test_all_tokens_over_unigram_by_hand() -> None:
    """Both words become 7; a gate of 1/2 and 1/8 for every word: a copy has 9/16, a replaced token
    1/16."""
    tokens = pack(TEXT, row_length=5)
    objective = AllTokensMLM(
        frequency([9, 9, 9, 9, 9, 0, 0, 1]),
        part(Ids()),
        part(Logits(torch.zeros(8))),
        part(FixedHead([0.0] * 5)),
    )
    terms = terms_of(objective, tokens, draws_of(tokens))
    assert value(terms["all_tokens"].sum) == pytest.approx(
        -2 * math.log(9 / 16) - 2 * math.log(1 / 16), abs=1e-5
    )
    assert counts_of(objective, tokens, draws_of(tokens)).keys() == {"all_tokens"}
    assert "generator" not in terms


def test_replace_mlm_over_frequencies_by_hand() -> None:
    """The model reads 7 at both words and is asked for 5 and 6."""
    tokens, encoder = pack(TEXT, row_length=5), Ids()
    objective = MLM(
        frequency([0, 0, 0, 0, 0, 0, 0, 1]), part(encoder), part(Logits(torch.arange(8.0)))
    )
    terms = terms_of(objective, tokens, draws_of(tokens))
    assert encoder.saw_T.tolist() == [2, 7, 7, 3, 0]
    total = math.log(sum(math.exp(x) for x in range(8)))
    assert value(terms["mlm"].sum) == pytest.approx(2 * total - 5 - 6, abs=1e-5)
    assert [int(terms[f"mlm_loss_{kind}"].count) for kind in ("replaced", "original")] == [2, 0]
    assert counts_of(objective, tokens, draws_of(tokens)).keys() == {"mlm"}


def test_electric_over_unigram_by_hand() -> None:
    """Counts 1 and 3 of 5 and 7: q is 1/4 and 3/4. Both words are drawn as 7, k = n = 2, so n - k
    counts as 1; energies 1 and -1."""
    tokens = pack(TEXT, row_length=5)
    noise = frequency([9, 9, 9, 9, 9, 1, 0, 3])
    every = (draws_of(tokens, seed=seed) for seed in itertools.count())
    draws = next(
        d for d in every if corrupted(noise, tokens, d).tokens.ids_T.tolist() == [2, 7, 7, 3, 0]
    )
    objective = Electric(noise, part(Ids()), part(FixedHead([100.0, 1.0, -1.0, 100.0, 100.0])))
    terms = terms_of(objective, tokens, draws)
    logits = [e + math.log(3 / 4) + math.log(2 / 1) for e in (1.0, -1.0)]
    assert value(terms["nce"].sum) == pytest.approx(
        sum(math.log1p(math.exp(-x)) for x in logits), abs=1e-5
    )
    assert int(terms["nce"].count) == 2, "words only: neither [CLS] nor [SEP]"
    assert counts_of(objective, tokens, draws).keys() == {"nce"}


def test_log_q_is_the_distribution_that_is_drawn_from() -> None:
    """log q sums to one over the ordinary tokens; of the others, which are never drawn, it is
    finite all the same."""
    log_q_V = frequency([9, 9, 9, 9, 9, 1, 0, 3]).log_q_V
    assert isinstance(log_q_V, torch.Tensor)
    assert log_q_V.exp()[[5, 7]].tolist() == pytest.approx([0.25, 0.75])
    assert log_q_V[[0, 1, 2, 3, 4, 6]].tolist() == pytest.approx([NEVER] * 6)
    assert bool(log_q_V.isfinite().all())


def test_a_word_that_the_noise_never_draws_teaches_nothing() -> None:
    """It can only be data: whatever its energy (in reason), loss and gradient are 0 and finite. 6
    has no count, [UNK] is never drawn."""
    tokens = pack([[[2, 6, 1, 5, 5, 5, 3]]], row_length=8)
    noise = frequency([9, 9, 9, 9, 9, 1, 0, 3])
    noise.chooser.rate = 0.2  # one of the tokens
    draws = next(
        d
        for seed in itertools.count()
        if corrupted(noise, tokens, d := draws_of(tokens, seed=seed)).at_M.tolist() == [3]
    )
    head = FixedHead([0.0, 20.0, -20.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    terms = terms_of(Electric(noise, part(Ids()), part(head)), tokens, draws)
    terms["nce"].sum.backward()
    assert head.logits_T.grad is not None
    assert head.logits_T.grad[1:3].tolist() == pytest.approx([0, 0], abs=1e-20)
    assert bool(head.logits_T.grad[3:6].all())


# ---------------------------------------------------------------- whatever the text


@pytest.mark.parametrize("name", VARIANTS)
@given(tokens=packed_batches(), seed=st.integers(0, 2**40))
@settings(max_examples=15, deadline=None)
def test_any_text(name: str, tokens: Tokens, seed: int) -> None:
    """Empty rows, sequences of one token or of specials only: losses and gradients are finite,
    counts are known before."""
    objective, draws = OBJECTIVES[name].train(), draws_of(tokens, seed=seed)
    terms, counts = terms_of(objective, tokens, draws), counts_of(objective, tokens, draws)
    assert {n: int(c) for n, c in counts.items()} == {n: int(terms[n].count) for n in counts}
    for n in counts:
        assert bool(terms[n].sum.isfinite())
        assert value(terms[n].sum) >= 0
    objective.zero_grad(set_to_none=True)
    weighted(terms, WEIGHTS[name], counts).backward()
    assert all(bool(p.grad.isfinite().all()) for p in objective.parameters() if p.grad is not None)


# ---------------------------------------------------------------- every combination


FROZEN: dict[str, Any] = {
    "generator_training": "frozen",
    "generator_steps": 1,
    "discriminator_start": "random",
    "tie": "none",
}


# One recipe for each objective and for each corruptor of those that several have.
BASES: dict[str, tuple[str, dict[str, Any]]] = {
    name: (f"{name}-tiny", {})
    for name in (
        *("bert", "electra", "replace-mlm", "all-tokens-mlm", "corrective", "teams", "amos"),
        *("adversarial", "electric", "unigram"),
    )
} | {
    "frozen": ("electra-tiny", FROZEN),
    "frozen, corrective": ("corrective-tiny", FROZEN),
    "mixture, corrective": VARIANTS["corrective over a mixture"],
    "unigram, corrective": ("corrective-tiny", {"corruptor": "unigram"}),
}
# What any of them may be given beside its own; weights are those of the losses that it then has.
BESIDE: dict[str, dict[str, Any]] = {
    "clip": {"clip": "apart"},
    "rate": {
        "generator_learning_rate": 1e-3,
        "generator_warmup_steps": 3,
        "generator_weight_decay": 0.1,
    },
    "masks": {"mask_rate": 0.3, "mask_rate_end": 0.15},
    "temperature": {
        "temperature": 2.0,
        "temperature_end": 1.0,
        "temperature_schedule": "exponential",
    },
    "spans": {"mask_unit": "span", "span_length": 2},
    "bias": {"init_rtd_bias": "replaced"},
    "dry": {"generator_dropout": 0.0, "tie": "tokens", "dropout": 0.1},
    "depth": {"init_scale": "depth"},
    "lower": {
        "tie": "lower",
        "tie_layers": 1,
        "generator_size": 1.0,
        "generator_num_hidden_layers": 1,
    },
    "gdes": {"tie": "gdes"},
    "linear": {"rtd_head": "linear"},
    "mlm": {"mlm_share": 0.4},
    "gate": {"correction": "gate"},
    "none": {"correction": "none", "mlm_share": 0.4},
    "end": {"mlm_end_share": 0.2},
    "contrast": {"contrast_rows": 2},
    "chosen": {"loss_on": "chosen"},
}
PAIRS = [(), *((one,) for one in BESIDE), *itertools.combinations(BESIDE, 2)]


def with_options(base: str, names: tuple[str, ...]) -> Recipe:
    """A tiny recipe with the weights that its losses ask for. Raises UserError if its options do
    not go together."""
    recipe, own = BASES[base]
    fields = own | {k: v for name in names for k, v in BESIDE[name].items()}
    config = tiny(recipe, **fields | {"train_batch_size": 2, "max_steps": 20, "term_weights": {}})
    if "contrast" in names:
        weights = config.objective.term_weights | {"contrast": 1.0}
        config = override(config, {"term_weights": weights})
    check(config)
    return config


@pytest.mark.parametrize("base", BASES)
def test_options_together_train_or_are_refused(base: str, tmp_path: Path) -> None:
    """Every option and every pair of options is accepted or refused in one sentence. Of the
    accepted ones each option alone, and a few of the pairs, take an update of the loop."""
    accepted, said = list[tuple[str, ...]](), set[str]()
    for names in PAIRS:
        try:
            with_options(base, names)
        except UserError as e:
            said.add(str(e))
        else:
            accepted.append(names)
    assert () in accepted
    assert len(accepted) > 10, "most options go with something"
    assert said, "and some do not"
    assert all("\n" not in sentence and len(sentence) > 30 for sentence in said)
    pairs = [names for names in accepted if len(names) == 2]
    trained = [names for names in accepted if len(names) < 2]
    trained += pairs[:: max(1, len(pairs) // 4)]
    for names in trained:
        config = with_options(base, names)
        found = one_update(config, tmp_path)
        odd = {name: number for name, number in found.items() if not math.isfinite(number)}
        assert not odd, names
        silent = {"rtd", "contrast"} if config.objective.mlm_share else set()
        assert found.keys() >= config.objective.term_weights.keys() - silent, names


# ---------------------------------------------------------------- mask mixes


MIXES = [(0.8, 0.1, 0.1), (1, 0, 0), (0.8, 0, 0.2), (0.8, 0.2, 0), (0, 0.2, 0.8), (0, 0, 1)]


@pytest.mark.parametrize("recipe", ["bert-tiny", "electra-tiny", "replace-mlm-tiny"])
@pytest.mark.parametrize("mix", MIXES, ids=str)
def test_mixes_of_berts_table_8(mix: tuple[float, float, float], recipe: str) -> None:
    """1810.04805, appendix C.2: every mix trains, and what the model is shown has its shares."""
    config = tiny(recipe, mask_mix=list(mix), mask_rate=0.4)
    check(config)
    objective: Any = build(config, VOCABULARY).objective
    tokens = text_batch(seed=0, rows=16, row_length=32)
    terms = terms_of(objective, tokens, draws_of(tokens))
    loss = weighted(
        terms, config.objective.term_weights, counts_of(objective, tokens, draws_of(tokens))
    )
    loss.backward()
    assert bool(loss.isfinite())
    z = corrupted(objective.corruptor, tokens, draws_of(tokens))
    masked = float((z.plan.shown_M == 4).float().mean())
    assert masked == pytest.approx(mix[0], abs=0.1)
    assert mix[0] or not masked
    kept = float((z.plan.shown_M == z.was_M).float().mean())
    assert kept == pytest.approx(
        mix[1] + mix[2] / 42, abs=0.1
    )  # a random token may be the original: 42 ordinary ones
