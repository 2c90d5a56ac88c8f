"""Every objective on each architecture besides ELECTRA's: it builds, takes an update, and computes
the same however its lists are made."""

from typing import Any

import pytest
import torch

from batches import VOCABULARY, draws_of, loss_of, ragged_batch, text_batch, tiny, value
from counted import exactly
from electrify.build import build
from electrify.rules import check
from systems import SYSTEMS

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "modernbert": {"architecture": "modernbert", "local_attention": 8},
    "deberta": {"architecture": "deberta", "position_buckets": 16},
}
WIDE: dict[str, Any] = {"generator_size": 1.0, "generator_num_hidden_layers": 1}
WHOLE: dict[str, Any] = {"generator_size": 1.0}
OWN: dict[str, dict[str, Any]] = {
    "bert": {},
    "unigram": {},
    "uniform": {},
    "amos": WHOLE | {"generator_num_hidden_layers": 3},
    "two-stage": WHOLE,
    "electric": WHOLE,
    "fast-electra": WHOLE,
    "coco-lm": WIDE | {"contrast_rows": 3},
}
# Those whose detecting head has one row, for which ModernBERT's library has no class.
ONE_ROW = ("coco-lm", "coco-lm-rtd")
SHARING: list[dict[str, Any]] = [
    {"tie": "none", "generator_size": 0.5},
    {"tie": "tokens", **WIDE},
    {"tie": "gdes", **WIDE},
    {"tie": "all", "generator_size": 1.0},
    {"tie": "lower", "tie_layers": 1, **WIDE},
]


@pytest.fixture(params=ARCHITECTURES)
def own(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The options that choose an architecture."""
    return ARCHITECTURES[request.param]


def options(name: str, own: dict[str, Any]) -> dict[str, Any]:
    """What a recipe is given beside its name."""
    dense = name in ONE_ROW and own["architecture"] == "modernbert"
    return own | OWN.get(name, WIDE) | ({"rtd_head": "dense"} if dense else {})


def update(config: Any) -> None:
    """A step of the optimiser lowers the loss of its batch, and reaches every parameter. Not in
    adversarial training, where a step of one network changes what the other is paid for."""
    check(config)
    objective: Any = build(config, VOCABULARY).objective
    tokens = text_batch(seed=0, rows=3, row_length=32)
    frozen = config.corruption.generator_training == "frozen"

    def loss() -> torch.Tensor:
        return loss_of(objective, tokens, draws_of(tokens), config.objective.term_weights)

    before = loss()
    before.backward()
    generator = {id(p) for p in objective.corruptor.parameters()} if frozen else set()
    for name, p in objective.named_parameters():
        assert (p.grad is None) == (id(p) in generator), name
        assert p.grad is None or bool(p.grad.isfinite().all()), name
    torch.optim.SGD(objective.parameters(), lr=1e-5).step()
    assert config.objective.objective == "adversarial" or value(loss()) < value(before)


@pytest.mark.parametrize("name", SYSTEMS)
def test_an_update_of_each(name: str, own: dict[str, Any]) -> None:
    """From the initial values of ours for some, from the published ones for the others."""
    init = "local" if SYSTEMS.index(name) % 2 else "published"
    update(tiny(f"{name}-tiny", **options(name, own) | {"init": init}))


@pytest.mark.parametrize("fields", SHARING, ids=lambda f: f["tie"])
def test_whatever_is_shared(fields: dict[str, Any], own: dict[str, Any]) -> None:
    update(tiny("electra-tiny", **own | fields))


# By how much our count of the batch below is above torch's, on every encoder: the baseline of the
# reward has no gradient to its input, and of the contrast neither the head is counted, which reads
# one state of each of 10 views, nor their cosines.
KNOWN = {"adversarial": 2 * 32 * 10, "coco-lm": -3 * 2 * (10 * 32 * 32 + 10 * 10 * 32)}


# What an objective runs is counted on ELECTRA's blocks (test_flops.py), what a block costs in
# test_blocks.py.
DAILY = ("electra", "all-tokens-mlm", "amos", "adversarial", "electric", "coco-lm")


@pytest.mark.parametrize(
    "name", [n if n in DAILY else pytest.param(n, marks=pytest.mark.slow) for n in SYSTEMS]
)
def test_hardware_is_what_torch_counts(name: str, own: dict[str, Any]) -> None:
    """To the operation, forward and backward, where no window is narrower than a row."""
    fields = options(name, own) | ({"contrast_rows": 2} if name == "coco-lm" else {})
    if own["architecture"] == "modernbert":
        fields |= {"local_attention": 64}
    theirs, ours = exactly(f"{name}-tiny", row_length=32, fields=fields)
    known = KNOWN.get(name, 0)
    if name == "amos" and own["architecture"] != "modernbert":
        # The input of a segment gets no gradient from its first block, but for a norm before it.
        known = len(ragged_batch().ids_T) * 2 * (2 * 3 * 32 * 32)
    assert ours - theirs == known
