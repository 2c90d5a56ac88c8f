"""DeBERTaV3's head that detects: linear(gelu(dense(LayerNorm(h_t + h_CLS)))), h_CLS being the state
of the first token of the same sequence."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from batches import (
    VOCABULARY,
    built,
    counts_of,
    draws_of,
    ragged_batch,
    sequences_of,
    terms_of,
    tiny,
)
from electrify.build import build
from electrify.flop_counts import passes_flops
from electrify.model.costs import Pass
from electrify.model.heads import ClsBinaryHead
from electrify.model.shape import Shape
from electrify.rules import check
from electrify.terms import weighted
from electrify.tokens import Tokens

WIDE: dict[str, Any] = {"generator_size": 1.0, "generator_num_hidden_layers": 1}
V3: dict[str, Any] = {"architecture": "deberta", "position_buckets": 16, "rtd_head": "v3"}


def shape_of(width: int) -> Shape:
    return Shape(
        vocab_size=3,
        embedding_size=width,
        hidden_size=width,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=2,
        max_position_embeddings=8,
        layer_norm_eps=1e-7,
    )


def shaken(width: int = 12, dtype: torch.dtype = torch.float64) -> ClsBinaryHead:
    head = ClsBinaryHead(shape_of(width)).to(dtype)
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in head.parameters():
            p.copy_(torch.randn(p.shape, generator=rng) * 0.4 + (p.ndim == 1))
    return head


def gelu(x: float) -> float:
    return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))


def reference(head: ClsBinaryHead, states_LD: Tensor) -> Tensor:
    """One sequence, as Microsoft's public code computes it."""
    x_LD = states_LD + states_LD[:1]
    x_LD = x_LD - x_LD.mean(-1, keepdim=True)
    x_LD = x_LD / (x_LD.square().mean(-1, keepdim=True) + head.norm.eps).sqrt()
    x_LD = x_LD * head.norm.weight + head.norm.bias
    return (F.gelu(x_LD @ head.dense.weight.T + head.dense.bias) @ head.out.weight.T)[
        :, 0
    ] + head.out.bias


@pytest.mark.parametrize("seed", range(3))
def test_packed_rows_against_single_sequences(seed: int) -> None:
    """float64, with gradients of states and parameters."""
    head, tokens = shaken(), ragged_batch(seed=seed)
    rng = torch.Generator().manual_seed(seed)
    size = len(tokens.ids_T)
    states_TD = torch.randn(size, 12, generator=rng, dtype=torch.float64, requires_grad=True)
    slope_T = torch.randn(size, generator=rng, dtype=torch.float64)
    parts = [slots for _, _, slots in sequences_of(tokens)]
    assert len(parts) > tokens.num_rows, "several sequences in a row"
    found_T = head(head.inputs(states_TD, tokens))
    wanted = [reference(head, states_TD[slots]) for slots in parts]
    for slots, one in zip(parts, wanted, strict=True):
        torch.testing.assert_close(found_T[slots], one, rtol=1e-12, atol=1e-12)
    inputs = [states_TD, *head.parameters()]
    ours = torch.autograd.grad((found_T * slope_T)[tokens.real_T].sum(), inputs)
    sums = [one @ slope_T[slots] for slots, one in zip(parts, wanted, strict=True)]
    theirs = torch.autograd.grad(torch.stack(sums).sum(), inputs)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_the_gradient_of_a_first_token_is_summed_in_float32() -> None:
    """In bfloat16, a sum of 500 equal numbers would stop growing at 256 of them."""
    size = 500
    ones = torch.ones(size, dtype=torch.long)
    tokens = Tokens(ones, ones, torch.arange(size), torch.zeros_like(ones), row_length=size)
    states_TD = torch.zeros(size, 2, dtype=torch.bfloat16, requires_grad=True)
    ClsBinaryHead(shape_of(2)).inputs(states_TD, tokens).sum().backward()
    assert states_TD.grad is not None
    assert states_TD.grad[:2].tolist() == [[500, 500], [1, 1]]


# One of each class whose head detects; of electra-15 it reads the chosen positions alone.
SYSTEMS = ("electra", "electra-15", "corrective", "teams", "adversarial")


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_objective_takes_an_update(name: str) -> None:
    """Its detecting logits are those of the reference over the encoder's own states, and every
    parameter is reached."""
    config = tiny(f"{name}-tiny", **{"init": "published", **WIDE, **V3})
    check(config)
    objective: Any = build(config, VOCABULARY).objective
    assert isinstance(objective.head, ClsBinaryHead)
    tokens = ragged_batch()
    graded = objective(tokens, objective.plan(tokens, draws_of(tokens)))
    wanted_T = torch.cat(
        [reference(objective.head, graded.states_TD[slots]) for _, _, slots in sequences_of(tokens)]
    )
    real_T = tokens.real_T
    if len(graded.logits) < len(tokens.ids_T):
        chosen_M = graded.corrupted.at_M
        whole_T = torch.zeros(len(tokens.ids_T)).masked_scatter(real_T, wanted_T)
        torch.testing.assert_close(graded.logits, whole_T[chosen_M], rtol=1e-5, atol=1e-6)
    else:
        torch.testing.assert_close(graded.logits[real_T], wanted_T, rtol=1e-5, atol=1e-6)
    loss = weighted(
        terms_of(objective, tokens, draws_of(tokens)),
        config.objective.term_weights,
        counts_of(objective, tokens, draws_of(tokens)),
    )
    loss.backward()
    for part, p in objective.head.named_parameters():
        assert p.grad is not None, part
        assert bool(p.grad.abs().sum() > 0), part


@pytest.mark.parametrize("init", ["published", "local"])
def test_where_it_starts(init: str) -> None:
    """Linear weights normal .02, biases 0, the norm 1 and 0; the last bias where it is asked to."""
    head = built(
        "electra-deberta-tiny", rtd_head="v3", init=init, init_rtd_bias="replaced"
    ).discriminator.head
    assert isinstance(head, ClsBinaryHead)
    assert head.norm.weight.tolist() == [1.0] * len(head.norm.weight)
    assert not head.norm.bias.any()
    assert not head.dense.bias.any()
    assert float(head.dense.weight.detach().std()) == pytest.approx(0.02, rel=0.1)
    rate = tiny("electra-deberta-tiny").corruption.mask_rate
    assert float(head.out.bias.detach()) == pytest.approx(math.log(rate / (1 - rate)), rel=1e-5)
    assert head.norm.eps == 1e-7


def test_what_it_costs() -> None:
    """hardware: as torch counts its products. paper: ELECTRA's head, a norm and a sum of states."""
    head, tokens = shaken(24, torch.float32), ragged_batch()
    states_TD = torch.randn(len(tokens.ids_T), 24)
    with FlopCounterMode(display=False) as counter:
        head(head.inputs(states_TD, tokens))
    how: dict[str, Any] = {"row_length": 32}
    ours = passes_flops([Pass(head, 1.0, False)], convention="hardware", **how)
    assert len(tokens.ids_T) * ours == counter.get_total_flops() == len(states_TD) * 2 * (24 * 25)
    paper = passes_flops([Pass(head, 1.0, False)], convention="paper", **how)
    assert paper == 24 + 5 * 24 + (2 * 24 * 24 + 24 + 8 * 24 + 2 * 24)
