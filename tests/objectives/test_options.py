"""Options that do or do not go together."""

import itertools
import math
from pathlib import Path
from typing import Any

import pytest

from batches import run_of, tiny
from electrify.errors import UserError
from electrify.recipe import Recipe, override
from electrify.rules import check
from variants import VARIANTS

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
RATES = {"generator_learning_rate": 1e-3, "generator_warmup_steps": 3}
WIDE = {"generator_size": 1.0, "generator_num_hidden_layers": 1}
COOLING = {"temperature_end": 1.0, "temperature_schedule": "exponential"}
BESIDE: dict[str, dict[str, Any]] = {
    "clip": {"clip": "apart"},
    "rate": {"generator_weight_decay": 0.1} | RATES,
    "masks": {"mask_rate": 0.3, "mask_rate_end": 0.15},
    "temperature": {"temperature": 2.0} | COOLING,
    "spans": {"mask_unit": "span", "span_length": 2},
    "bias": {"init_rtd_bias": "replaced"},
    "dry": {"generator_dropout": 0.0, "tie": "tokens", "dropout": 0.1},
    "depth": {"init_scale": "depth"},
    "lower": {"tie": "lower", "tie_layers": 1} | WIDE,
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
