import json
from typing import Any, cast

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from batches import TINY, VOCAB, built, ragged_batch, tiny
from counted import exactly, through_matmul, uncounted
from electrify.build import Built
from electrify.cli import main
from electrify.flop_counts import Convention, outline, passes_flops, published, recipe_flops
from electrify.model.costs import CHOSEN, Pass, binary_flops
from electrify.objectives.objective import Objective
from electrify.recipe import load, names, override

# What the public script prints (google-research/electra, flops_computation.py at 62e478a), to seven
# digits.
PAPER = ("--convention", "paper", "--json")
SCRIPT = {
    "elmo": 3.411439e18,
    "xlnet": 3.856582e21,
    "gpt": 3.968752e19,
    "bert_small": 1.418740e18,
    "bert_base": 6.428335e19,
    "bert_large": 1.917209e20,
    "electra_small": 1.293744e18,
    "electra_base": 6.424542e19,
    "electra_400k": 7.117606e20,
    "electra_1.75M": 3.113953e21,
    "roberta": 3.187221e21,
    "albert": 3.113924e22,
    "t5_11b": 4.581900e22,
}


def test_published_figures() -> None:
    assert published() == pytest.approx(SCRIPT | {"roberta_100k": SCRIPT["roberta"] / 5}, rel=5e-7)


@pytest.mark.parametrize(
    ("recipe", "model", "runs"),
    [
        ("electra-small", "electra_small", 1.0),
        ("electra-base", "electra_base", 1.0),
        ("electra-large", "electra_400k", 1.0),
        ("bert-small", "bert_small", 1.0),
        ("bert-base", "bert_base", 1.0),
        # The script counts the original BERT: batch 256, a million steps.
        ("bert-large", "bert_large", 464_000 * 2048 / (1_000_000 * 256)),
    ],
)
def test_recipes_cost_what_is_published(recipe: str, model: str, runs: float) -> None:
    """The networks that are built, counted by the paper's convention, against the script's own
    numbers."""
    cost = recipe_flops(load(recipe), vocab_size=30522, convention="paper")
    assert cost.train == pytest.approx(runs * published()[model], rel=1e-12)


@pytest.mark.parametrize(("recipe", "flops"), [("small", "3.7e+09"), ("base", "2.9e+10")])
def test_published_inference(recipe: str, flops: str) -> None:
    """2003.10555, Table 1: inference on a sequence of 128 tokens; the authors add a head."""
    config = override(load(f"electra-{recipe}"), {"max_seq_length": 128})
    encoder = recipe_flops(config, vocab_size=30522, convention="paper").inference
    assert f"{encoder + 128 * binary_flops(config.model.hidden_size):.1e}" == flops


def test_steps_at_equal_compute(capsys: pytest.CaptureFixture[str]) -> None:
    """2003.10555, Table 6: 1M BERT-Base and 464k BERT-Large steps for 766k and 400k of ELECTRA.
    (Small: 1.32M, where the table says 1.45M.)"""
    for size, steps, of_table in (
        ("base", 1_000_000, 1_000_000),
        ("large", 464_000, 464_000),
        ("small", 1.3222e6, 1_450_000),
    ):
        assert main(["flops", f"bert-{size}", "--equal-to", f"electra-{size}", *PAPER]) == 0
        found = json.loads(capsys.readouterr().out)["recipes"][f"bert-{size}"]
        assert found["equal_steps"] == pytest.approx(steps, rel=2e-3)
        assert found["max_steps"] == of_table


SHAPES: list[dict[str, Any]] = [
    {},
    {"embedding_size": 16},
    {"embedding_size": 48, "num_hidden_layers": 1},
    {"hidden_size": 48, "intermediate_size": 100, "num_hidden_layers": 3}
    | {"dropout": 0.1, "attention_dropout": 0.1},
    {"generator_size": 0.25, "mask_rate": 0.4, "tie": "none"},
]


def weighted(*losses: str, **fields: Any) -> dict[str, Any]:
    return {"term_weights": dict.fromkeys(losses, 1.0)} | fields


LOWER = {"tie": "lower", "tie_layers": 1, "generator_size": 1.0}
SELECTIVE = weighted("generator", "rtd", "select", objective="selective")
ALL_TOKENS = weighted("generator", "all_tokens", objective="all_tokens")
CORRECTIVE = {"objective": "corrective", "rtd_head": "linear", "correction": "copy"}
OBJECTIVES: dict[str, dict[str, Any]] = {
    "electra-15": {"loss_on": "chosen"},
    "gdes": {"tie": "gdes"},
    "lower": LOWER | {"generator_num_hidden_layers": 1},
    "spans": {"mask_unit": "span", "mask_rate": 0.4},
    "two-stage": weighted("rtd", generator_training="frozen", tie="none"),
    "uniform": weighted("rtd", corruptor="uniform"),
    "replace-mlm": weighted("generator", "mlm", objective="mlm"),
    "all-tokens-mlm": ALL_TOKENS,
    "no-gate": ALL_TOKENS | {"copy_gate": False},
    "all-tokens-unigram": weighted("all_tokens", objective="all_tokens", corruptor="unigram"),
    "replace-mlm-uniform": weighted("mlm", objective="mlm", corruptor="uniform"),
    "corrective": weighted("generator", "rtd", "correct", **CORRECTIVE),
    "corrective-unigram": weighted("rtd", "correct", objective="corrective", corruptor="unigram"),
    "selective": SELECTIVE | {"candidates": 7},
    "selective-lower": SELECTIVE | LOWER | {"num_hidden_layers": 3},
    "electric-unigram": weighted("nce", objective="electric", corruptor="unigram"),
}


@pytest.mark.parametrize("fields", SHAPES, ids=str)
@pytest.mark.parametrize("recipe", ["electra-tiny", "bert-tiny"])
def test_hardware_is_what_torch_counts(recipe, fields):
    """To the last operation."""
    theirs, ours = exactly(recipe, row_length=40, fields=fields)
    assert ours == theirs


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_says_what_it_runs(name: str) -> None:
    theirs, ours = exactly(
        "electra-tiny",
        row_length=32,
        fields={"embedding_size": 16, "hidden_size": 48, "generator_size": 0.25} | OBJECTIVES[name],
    )
    assert ours == theirs


@pytest.mark.parametrize("fields", [{}, {"embedding_size": 16, "tie": "gdes"}], ids=str)
def test_a_mixture_says_what_it_runs(fields: dict[str, Any]) -> None:
    """All read-outs, and the way back; but the input of a segment gets no gradient from its first
    block, as is counted: 2 * 3 D D for a token of each cut."""
    theirs, ours = exactly("amos-tiny", row_length=32, fields={"mask_rate": 0.4} | fields)
    width = tiny("amos-tiny", **fields).model.generator_numbers()["hidden_size"]
    assert ours - theirs == len(ragged_batch().ids_T) * 2 * (2 * 3 * width * width)
    generator = passes_of("amos-tiny", corruptor="generator", **fields)
    assert passes_of("amos-tiny", read_outs=(3,), **fields) > generator


def passes_of(recipe: str, **fields: Any) -> float:
    objective = cast(Objective, built(recipe, **fields).objective)
    return passes_flops(objective.passes(), row_length=32, convention="hardware")


@pytest.mark.parametrize("name", [name for name in names() if name.endswith("-tiny")])
def test_every_matrix_of_a_run_is_counted(name: str) -> None:
    """A part that its author forgot would look cheap in a comparison at equal FLOPs."""
    objective = outline(load(name), vocab_size=VOCAB).objective
    assert uncounted(objective) == []


@pytest.mark.parametrize("convention", ["hardware", "paper"])
def test_an_objective_of_ones_own_says_what_it_costs(convention: Convention) -> None:
    def cost(cls: str) -> float:
        own = tiny("electra-tiny", objective=f"own_objective:{cls}")
        return recipe_flops(own, vocab_size=VOCAB, convention=convention).token

    width = TINY["hidden_size"]
    times = 3 if convention == "hardware" else 2
    gru = times * 2 * 6 * width * width - (1 if convention == "paper" else 0) * times
    assert cost("Recurrent") - cost("Detector") == pytest.approx(gru, rel=1e-9)


@pytest.mark.parametrize("name", ["all-tokens-mlm", "electric"])
def test_what_is_computed_a_second_time_counts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits over the vocabulary at every token are computed again for the gradient where a pass
    has more tokens than a chunk: as torch counts."""
    monkeypatch.setattr("electrify.model.heads.CHUNK", 48)
    monkeypatch.setattr("electrify.objectives.mlm.CHUNK", 48)
    monkeypatch.setattr("electrify.corruption.two_tower.CHUNK", 48)
    theirs, ours = exactly(f"{name}-tiny", row_length=32, fields={})
    assert ours == theirs
    assert exactly(f"{name}-tiny", row_length=32, fields={}, rows=1)[1] < theirs


def test_a_frozen_network_has_no_backward_pass() -> None:
    b, tokens = built("electra-tiny", embedding_size=16), ragged_batch()
    encoder = b.discriminator.encoder
    through_matmul(encoder)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        encoder(tokens)
    once = passes_flops([Pass(encoder, 1.0, False)], row_length=32, convention="hardware")
    assert len(tokens.ids_T) * once == counter.get_total_flops()
    factors: dict[Convention, int] = {"hardware": 3, "paper": 2}
    for convention, times in factors.items():
        frozen, trained = (
            passes_flops([Pass(encoder, 1.0, t)], row_length=32, convention=convention)
            for t in (False, True)
        )
        assert trained == times * frozen


def test_the_paper_has_its_own_share_of_output_softmaxes() -> None:
    head = built("bert-tiny").discriminator.head

    def cost(share: float, convention: Convention) -> float:
        return passes_flops([Pass(head, share, True)], row_length=32, convention=convention)

    assert cost(0.1, "paper") == cost(0.4, "paper") == CHOSEN * cost(1.0, "paper")
    assert cost(0.4, "hardware") == pytest.approx(4 * cost(0.1, "hardware"))


@pytest.mark.parametrize(
    "name", ["bert-base", "all-tokens-mlm-base-equal-flops", "electric-base-equal-flops"]
)
def test_recipes_of_equal_flops(name: str) -> None:
    """By the convention that the paper's own step counts follow."""
    recipes = (load(name), load("electra-base"))
    one, other = (recipe_flops(r, vocab_size=30522, convention="paper").train for r in recipes)
    assert one == pytest.approx(other, rel=5e-3)


def test_two_stages_pay_for_the_first() -> None:
    fields = OBJECTIVES["two-stage"] | {"max_steps": 10}
    recipes = [tiny("electra-tiny", generator_steps=n, **fields) for n in (0, 5)]
    alone, both = (recipe_flops(r, vocab_size=VOCAB, convention="hardware") for r in recipes)
    b: Built = built("electra-tiny", **fields)
    half = b.exports["generator"]
    stage = [Pass(half.encoder, 1.0, True), Pass(half.head, 0.15, True)]
    rows = 5 * alone.train_batch_size * alone.max_seq_length
    assert both.train - alone.train == pytest.approx(
        rows * passes_flops(stage, row_length=32, convention="hardware")
    )
    assert both.step == alone.step
