"""What numbers cannot work together: some of the rules of each kind, whose one sentence names the
field. And every shipped recipe: its listed costs, and a step of training."""

from typing import Any

import pytest
import torch

from batches import VOCABULARY, counts_of, draws_of, terms_of, text_batch
from electrify.build import build
from electrify.errors import UserError
from electrify.flop_counts import recipe_flops
from electrify.methods import RECIPES
from electrify.recipe import load, names, override, stages_of
from electrify.rules import check
from electrify.terms import weighted
from electrify.train.optim import make_optimizer, parameter_groups
from electrify.values import plain_yaml

CASES = [
    # the encoder
    ("init", "electra-deberta-tiny init=bert"),
    ("hidden_size", "electra-tiny num_attention_heads=3"),
    ("generator_hidden_size", "bert-tiny generator_hidden_size=64"),
    ("tie_layers", "bert-tiny tie_layers=1"),
    # the generator
    ("tie", "electra-tiny tie=all"),
    ("tie", "electra-tiny tie=lower tie_layers=1"),
    ("tie_layers", "teams-tiny tie_layers=3"),
    # the corruption
    ("mask_mix", "electra-tiny mask_mix=0.5,0.5,0.5"),
    ("corruptor", "electra-tiny corruptor=mask"),
    ("temperature", "unigram-tiny temperature=2.0"),
    ("temperature_end", "electra-tiny temperature_schedule=exponential"),
    ("generator_training", "two-stage-tiny tie=embeddings"),
    ("tie", "electric-tiny tie=all generator_size=1.0"),
    ("read_outs", "amos-tiny read_outs=2,1,3"),
    # the objective
    ("rtd_head", "electra-tiny rtd_head=v3"),
    ("mask_decoder", "unigram-tiny architecture=deberta mask_decoder=true"),
    ("mlm_share", "corrective-tiny corruptor=uniform mlm_share=0.4"),
    ("init_rtd_bias", "electra-15-tiny init_rtd_bias=replaced"),
    ("crop_share", "corrective-tiny crop_share=0.5"),
    # the weights
    ("term_weights", "electra-tiny term_weights=generator=1,rtd=50,sentence=1"),
    ("contrast_rows", "corrective-tiny contrast_rows=8"),
    (
        "contrast_rows",
        "corrective-tiny contrast_rows=1 term_weights=generator=1,rtd=1,correct=1,contrast=1",
    ),
    ("mlm_share", "corrective-tiny mlm_share=0.4 term_weights=generator=1,rtd=50,correct=0"),
    ("correction", "corrective-tiny correction=gate term_weights=generator=1,rtd=0,correct=1"),
    ("init_rtd_bias", "electra-tiny init_rtd_bias=replaced init_discriminator=folder"),
    ("term_weights", "electra-tiny term_weights=rtd=50"),
    ("term_weights", "electra-tiny term_weights=generator=0,rtd=0"),
    # training
    ("clip", "electra-tiny clip=apart max_grad_norm=0.0"),
    ("fsdp", "electra-tiny fsdp=full_shard torch_compile=true"),
    ("generator_learning_rate", "bert-tiny generator_learning_rate=0.001"),
    ("fsdp", "electra-tiny fsdp=full_shard optim=muon"),
    ("decay_share", "bert-tiny decay_share=0.4"),
    # starts
    ("init_generator", "bert-tiny init_generator=folder"),
    ("generator_training", "two-stage-tiny generator_steps=0"),
    ("extend_positions", "bert-modernbert-tiny extend_positions=1024"),
    ("generator_steps", "electra-tiny generator_steps=10"),
    # lengths
    ("max_seq_length", "electra-tiny max_seq_length=1024"),
    ("batch_size_schedule", "electra-tiny batch_size_schedule=4=0.5,8=0.5"),
    ("mlm_share", "corrective-tiny mlm_share=0.95 max_steps=10"),
    # fields without effect
    ("generator_size", "bert-tiny generator_size=0.5"),
    ("mask_mix", "unigram-tiny mask_mix=1,0,0"),
    ("adam_beta2", "bert-tiny adam_beta2=0.98 adam_beta2_tokens=100000.0"),
]


@pytest.mark.parametrize(("field", "changed"), CASES, ids=[changed for _, changed in CASES])
def test_a_rule_names_its_field(field: str, changed: str) -> None:
    name, *changes = changed.split()
    fields = dict(change.split("=", 1) for change in changes)
    recipe = override(load(name), fields)
    with pytest.raises(UserError) as e:
        check(recipe, fields)
    assert field in str(e.value).split(" ")[0].rstrip(":") or f" {field} " in f" {e.value} "
    assert "\n" not in str(e.value)


def test_a_recipe_may_carry_fields_without_effect() -> None:
    check(override(load("bert-tiny"), {"generator_size": 0.5}))


NAMES = names()
# Every objective and architecture, and the sizes of the two recipes that most others are like.
DAILY = [n for n in NAMES if n.endswith("-tiny") or n.startswith(("bert-base", "electra-small"))]
EACH = [n if n in DAILY else pytest.param(n, marks=pytest.mark.slow) for n in NAMES]
COSTS = plain_yaml((RECIPES / "costs.yaml").read_text(encoding="utf-8"), "costs.yaml")


@pytest.mark.parametrize("name", EACH)
def test_listed_costs_are_the_count(name: str) -> None:
    cost = recipe_flops(load(name), vocab_size=30522, convention="hardware")
    assert cost.parameters == int(COSTS[name]["parameters"])
    assert cost.train == pytest.approx(float(COSTS[name]["flops"]), rel=1e-4)


@pytest.mark.parametrize("name", EACH)
def test_builds_and_takes_a_step(name: str) -> None:
    """Every parameter that is not frozen gets a finite gradient and one update of the recipe's own
    optimiser; the loss of the same batch falls (where the generator is paid for raising the
    discriminator's, it need not)."""
    fields = {"num_hidden_layers": 1, "max_seq_length": 32}
    fields |= {"dropout": 0.0, "attention_dropout": 0.0}
    if load(name).model.tie == "lower":
        fields |= {"num_hidden_layers": 2, "generator_num_hidden_layers": 2, "tie_layers": 1}
    config = override(load(name), fields)
    objective: Any = build(config, VOCABULARY).objective
    tokens = text_batch(seed=0, rows=2, row_length=32)
    named = dict(objective.named_parameters())
    t = config.train
    groups = parameter_groups(named, rates=dict.fromkeys(named, 2e-5), weight_decay=t.weight_decay)
    optimizer = make_optimizer(
        t.optim, groups, betas=(t.adam_beta1, t.adam_beta2), eps=t.adam_epsilon
    )

    def loss() -> torch.Tensor:
        return weighted(
            terms_of(objective, tokens, draws_of(tokens)),
            config.objective.term_weights,
            counts_of(objective, tokens, draws_of(tokens)),
        )

    before = loss()
    before.backward()
    assert bool(before.isfinite())
    frozen = (
        {id(p) for p in objective.corruptor.parameters()}
        if config.corruption.generator_training == "frozen"
        else set()
    )
    for n, p in named.items():
        assert (p.grad is None) == (id(p) in frozen), n
        assert p.grad is None or bool(p.grad.isfinite().all()), n
    optimizer.step()
    after = loss().detach()
    assert bool(after.isfinite())
    assert float(after) < float(before.detach()) or config.objective.objective == "adversarial"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"objective_options": {"gamma": 2}}, "objective_options is for objective module:Class"),
        ({"objective": "./focal.py:Focal"}, "write module:Class"),
        ({"objective": "no_such_module:Focal"}, "PYTHONPATH"),
        ({"objective": "own_objective:Hardness"}, "the module has no 'Hardness'"),
        ({"term_weights": "rtd=50,generator=1,rtd=1"}, "term_weights should be a valid dictionary"),
    ],
)
def test_what_cannot_be_meant(fields, says):
    with pytest.raises(UserError, match=says):
        override(load("electra-tiny"), fields)


def test_a_mapping_may_have_spaces():
    weights = override(load("electra-tiny"), {"term_weights": "generator=1, rtd=20"}).term_weights
    assert weights == {"generator": 1.0, "rtd": 20.0}


def test_the_generators_stage_of_an_extended_encoder():
    """Its sizes are extended already, and it starts from no folder."""
    recipe = override(
        load("electra-modernbert-tiny"),
        {"tie": "none", "generator_training": "frozen", "term_weights": {"rtd": 50.0}}
        | {"generator_steps": 100, "discriminator_start": "random"}
        | {"init_discriminator": "folder", "extend_positions": 128},
    )
    first, _ = stages_of(recipe)
    check(first)
