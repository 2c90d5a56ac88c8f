"""Variants that no recipe names: examples by hand, and options that do or do not go together."""

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from stubs import BASIC, TEXT, FixedHead, Ids, chooser, generator, outcome, part, total
from test_study import Logits

from batches import corrupted, draws_of, pack, run_of, terms_of, tiny, value
from electrify.corruption.masking import NEVER, Frequency
from electrify.errors import UserError
from electrify.objectives.all_tokens import AllTokensMLM
from electrify.objectives.electra import Electra
from electrify.objectives.electric import Electric
from electrify.objectives.mlm import MLM
from electrify.recipe import Recipe, override
from electrify.rules import check
from variants import VARIANTS


def frequency(counts: list[int]) -> Frequency:
    return Frequency(chooser(), BASIC, 8, counts_V=torch.tensor(counts))


def test_a_correct_draw_counts_as_replaced() -> None:
    """The generator draws 7 for 5 and 6 for 6: both labels are 1; plain ELECTRA has 1 and 0."""
    parts = generator(), part(Ids()), part(FixedHead([0.0, 2.0, -1.0, 0.5, 100.0]))
    # Labels 0 1 0 0: softplus of 0, -2, -1, .5; labels 0 1 1 0: softplus of 0, -2, 1, .5.
    for flag, of_the_second in ((False, 0.313262), (True, 1.313262)):
        terms, _ = outcome(Electra(*parts, correct_as_replaced=flag))
        wanted = 0.693147 + 0.126928 + of_the_second + 0.974077
        assert value(terms["rtd"].sum) == pytest.approx(wanted, abs=1e-5)
        assert value(terms["replaced"].sum) == 1, "the share replaced is the text's"


def test_all_tokens_without_the_gate_by_hand() -> None:
    """1/8 for every word at every token, whether it is a copy or not."""
    head = part(Logits(torch.zeros(8)))
    terms, _ = outcome(AllTokensMLM(generator(), part(Ids()), head, None))
    assert total(terms["all_tokens"]) == (pytest.approx(4 * math.log(8), abs=1e-5), 4)
    assert "copy_detection" not in terms


def test_all_tokens_over_unigram_by_hand() -> None:
    """Both words become 7; a gate of 1/2 and 1/8 for every word: a copy has 9/16, a replaced token
    1/16."""
    heads = part(Logits(torch.zeros(8))), part(FixedHead([0.0] * 5))
    noise = frequency([9, 9, 9, 9, 9, 0, 0, 1])
    terms, counts = outcome(AllTokensMLM(noise, part(Ids()), *heads))
    wanted = -2 * math.log(9 / 16) - 2 * math.log(1 / 16)
    assert value(terms["all_tokens"].sum) == pytest.approx(wanted, abs=1e-5)
    assert counts.keys() == {"all_tokens"}
    assert "generator" not in terms


def test_replace_mlm_over_frequencies_by_hand() -> None:
    """The model reads 7 at both words and is asked for 5 and 6."""
    encoder, noise = Ids(), frequency([0, 0, 0, 0, 0, 0, 0, 1])
    terms, counts = outcome(MLM(noise, part(encoder), part(Logits(torch.arange(8.0)))))
    assert encoder.saw_T.tolist() == [2, 7, 7, 3, 0]
    log_z = math.log(sum(math.exp(x) for x in range(8)))
    assert value(terms["mlm"].sum) == pytest.approx(2 * log_z - 5 - 6, abs=1e-5)
    assert [int(terms[f"mlm_loss_{kind}"].count) for kind in ("replaced", "original")] == [2, 0]
    assert counts.keys() == {"mlm"}


def test_electric_over_unigram_by_hand() -> None:
    """Counts 1 and 3 of 5 and 7: q is 1/4 and 3/4. Both words are drawn as 7, k = n = 2, so n - k
    counts as 1; energies 1 and -1."""
    noise, wanted = frequency([9, 9, 9, 9, 9, 1, 0, 3]), [2, 7, 7, 3, 0]
    every = (draws_of(TEXT, seed=seed) for seed in itertools.count())
    draws = next(d for d in every if corrupted(noise, TEXT, d).tokens.ids_T.tolist() == wanted)
    objective = Electric(noise, part(Ids()), part(FixedHead([100.0, 1.0, -1.0, 100.0, 100.0])))
    terms, counts = outcome(objective, draws=draws)
    logits = [e + math.log(3 / 4) + math.log(2 / 1) for e in (1.0, -1.0)]
    loss = pytest.approx(sum(math.log1p(math.exp(-x)) for x in logits), abs=1e-5)
    assert total(terms["nce"]) == (loss, 2), "words only: neither [CLS] nor [SEP]"
    assert counts.keys() == {"nce"}


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
    every = (draws_of(tokens, seed=seed) for seed in itertools.count())
    draws = next(d for d in every if corrupted(noise, tokens, d).at_M.tolist() == [3])
    head = FixedHead([0.0, 20.0, -20.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    terms = terms_of(Electric(noise, part(Ids()), part(head)), tokens, draws)
    terms["nce"].sum.backward()
    assert head.logits_T.grad is not None
    assert head.logits_T.grad[1:3].tolist() == pytest.approx([0, 0], abs=1e-20)
    assert bool(head.logits_T.grad[3:6].all())


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


QUICK = ("bert", "electra", "corrective", "teams", "frozen")


@pytest.mark.parametrize(
    "base", [b if b in QUICK else pytest.param(b, marks=pytest.mark.slow) for b in BASES]
)
def test_options_together_train_or_are_refused(base: str, tmp_path: Path) -> None:
    """Every option and every pair of options is accepted or refused in one sentence. Of the
    accepted ones, each option alone takes an update of the loop."""
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
    for names in (names for names in accepted if len(names) < 2):
        config = with_options(base, names)
        run = run_of(config, tmp_path)
        run.update(run.batch(0))
        found = run.state.sums.means()
        odd = {name: number for name, number in found.items() if not math.isfinite(number)}
        assert not odd, names
        silent = {"rtd", "contrast"} if config.objective.mlm_share else set()
        assert found.keys() >= config.objective.term_weights.keys() - silent, names
