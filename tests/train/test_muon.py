"""Muon for the matrices of the blocks: its update and its cost."""

from pathlib import Path
from typing import Any

import pytest
import torch
from running import recipe
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from batches import built
from electrify.flop_counts import muon_flops, recipe_flops
from electrify.model.encoder import kinds_of, matrices_of
from electrify.recipe import override
from electrify.text.corpus import Corpus
from electrify.train.optim import make_optimizer, parameter_groups
from electrify.train.run import pretrain
from small import SMALL, records

LR, DECAY, BETAS, EPS = 0.01, 0.1, (0.9, 0.98), 1e-6


def optimizer_of(named: dict[str, nn.Parameter], stacked: dict[str, int]) -> torch.optim.Optimizer:
    rates = dict.fromkeys(named, LR)
    groups = parameter_groups(named, rates=rates, weight_decay=DECAY, stacked=stacked)
    return make_optimizer("muon", groups, betas=BETAS, eps=EPS)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_queries_keys_and_values_apart_and_adamw_for_the_rest() -> None:
    """Five updates, to the bit those of torch's Muon for each of the three matrices and those of
    AdamW for the bias."""
    values = {"qkv": drawn(24, 8), "up": drawn(20, 8, seed=1), "bias": drawn(24, seed=2)}
    named = {n: nn.Parameter(v.clone()) for n, v in values.items()}
    own = optimizer_of(named, {"qkv": 3, "up": 1})
    parts: list[Tensor] = [nn.Parameter(v.clone()) for v in (*values["qkv"].chunk(3), values["up"])]
    bias = nn.Parameter(values["bias"].clone())
    muon = torch.optim.Muon(parts, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW([bias], betas=BETAS, eps=EPS, weight_decay=0.0, fused=True)
    for step in range(5):
        gradients = {
            n: drawn(*v.shape, seed=10 * step + i) for i, (n, v) in enumerate(values.items())
        }
        for n, p in named.items():
            p.grad = gradients[n].clone()
        for part, its in zip(parts, (*gradients["qkv"].chunk(3), gradients["up"]), strict=True):
            part.grad = its.clone()
        bias.grad = gradients["bias"].clone()
        for optimizer in (own, muon, adamw):
            for group in optimizer.param_groups:
                group["lr"] = LR / (step + 1)
            optimizer.step()
        assert torch.equal(named["qkv"], torch.cat(parts[:3]))
        assert torch.equal(named["up"], parts[3])
        assert torch.equal(named["bias"], bias)


@pytest.mark.parametrize(
    ("recipe", "of_a_block"),
    [
        ("electra-tiny", {"qkv": 3, "out": 1, "up": 1, "down": 1}),
        ("bert-modernbert-tiny", {"qkv": 3, "out": 1, "up": 2, "down": 1}),
        ("electra-deberta-tiny", {"qkv": 3, "out": 1, "up": 1, "down": 1}),
    ],
)
def test_only_the_matrices_of_the_blocks(recipe: str, of_a_block: dict[str, int]) -> None:
    """And of each what is stacked in it: u and gate in ModernBERT's feed-forward layers."""
    objective = built(recipe).objective
    blocks: Any = objective.encoder.blocks
    found = matrices_of(objective)
    kept = {n.removeprefix("encoder.blocks."): k for n, k in found.items() if n.startswith("enc")}
    assert kept == {
        f"{i}.{name}.weight": k for i in range(len(blocks)) for name, k in of_a_block.items()
    }
    assert all(".blocks." in name for name in found)
    assert {n for n, kind in kinds_of(objective).items() if kind == "matrices"} == set(found)


def test_the_cost_by_hand_and_by_torchs_counter() -> None:
    """In each of 4 layers four matrices of 128 x 128 and two of 128 x 512. An iteration is two
    products of the matrix and one of [128, 128]."""
    sizes = {"num_hidden_layers": 4, "hidden_size": 128, "intermediate_size": 512}
    objective = built("bert-tiny", **sizes).objective
    square, wide = 2 * 3 * 128**3, 2 * (2 * 128 * 128 * 512 + 128**3)
    by_hand = 4 * 5 * (4 * square + 2 * wide)
    assert muon_flops(objective) == by_hand
    named = dict(objective.named_parameters())
    optimizer = optimizer_of(named, matrices_of(objective))
    for p in named.values():
        p.grad = torch.ones_like(p)
    with FlopCounterMode(display=False) as counter:
        optimizer.step()
    assert counter.get_total_flops() == by_hand


def test_it_is_counted_in_every_update(small_data: Path, tmp_path: Path) -> None:
    """In the log as in the plan, by the convention `hardware` alone, and not for a generator that
    is frozen."""
    config = recipe("corrective-tiny", mlm_share=0.5, optim="muon")
    pretrain(small_data, output_dir=tmp_path / "run", recipe=config)
    size = Corpus(small_data, "train").manifest.vocab_size

    def cost(convention: Any = "hardware", **fields: Any) -> float:
        found = override(config, fields)
        return recipe_flops(found, vocab_size=size, convention=convention).train

    assert records(tmp_path / "run", "train")[-1]["flops"] == pytest.approx(cost(), rel=1e-9)
    objective = built("corrective-tiny", **SMALL | {"bf16": None}).objective
    assert cost() - cost(optim="adamw") == pytest.approx(12 * muon_flops(objective))
    assert cost("paper") == cost("paper", optim="adamw")
    objective.corruptor.requires_grad_(False)
    assert muon_flops(objective) < muon_flops(built("corrective-tiny", **SMALL).objective)
