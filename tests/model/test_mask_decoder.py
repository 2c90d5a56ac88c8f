"""DeBERTa's mask decoder: the last block runs twice over the states below it, with queries that
begin as these states plus the absolute positions."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from batches import (
    VOCAB,
    VOCABULARY,
    at_of,
    built,
    counts_of,
    draws_of,
    ragged_batch,
    sequences_of,
    terms_of,
    tiny,
)
from counted import exactly
from electrify.build import build
from electrify.model import costs
from electrify.model.encoder import Encoder
from electrify.model.heads import Asked, Asking, DecodedLMHead
from electrify.rules import check
from electrify.terms import weighted

BUCKETS = 8
DECODER: dict[str, Any] = {
    "architecture": "deberta",
    "init": "published",
    "position_buckets": BUCKETS,
    "generator_size": 1.0,
    "mask_decoder": True,
}


def made(name: str = "electra-tiny", *, dtype: torch.dtype = torch.float64, **fields: Any) -> Any:
    """An objective with large random values, so that nothing can be left out unseen."""
    objective: Any = built(name, **DECODER | fields).objective.to(dtype)
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for n, p in objective.named_parameters():
            size = 0.3 if p.ndim == 1 else p.shape[-1] ** -0.5
            p.copy_(torch.randn(p.shape, generator=rng) * size + ("norm" in n))
    return objective


def lm_of(objective: Any) -> tuple[Encoder, DecodedLMHead]:
    own = objective.corruptor.lm if hasattr(objective.corruptor, "lm") else objective
    assert isinstance(own.head, DecodedLMHead)
    return own.encoder, own.head


Rows = list[Tensor]


def normed(x: Tensor, norm: Any) -> Tensor:
    deviation = x - x.sum() / len(x)
    return (
        deviation / (deviation.square().sum() / len(x) + norm.eps).sqrt() * norm.weight + norm.bias
    )


def gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def bucket(distance: int, longest: int) -> int:
    half = BUCKETS // 2
    if abs(distance) <= half:
        return distance
    far = math.log(abs(distance) / half) / math.log((longest - 1) / half) * (half - 1)
    return int(math.copysign(math.ceil(far) + half, distance))


def attended(block: Any, asking: Rows, asked: Rows, table: Rows, longest: int) -> Rows:
    """What attention mixes for each query: 2006.03654 section 3.1, pair by pair."""
    width = len(asked[0])
    w, b = block.qkv.weight, block.qkv.bias
    q, k, v = (slice(part * width, (part + 1) * width) for part in range(3))
    size = width // block.heads
    mixed = []
    for i, one in enumerate(asking):
        result = torch.zeros_like(one)
        for h in range(block.heads):
            own = slice(h * size, (h + 1) * size)
            query = (w[q] @ one + b[q])[own]
            scores = []
            for j, other in enumerate(asked):
                at = min(max(bucket(i - j, longest) + BUCKETS, 0), 2 * BUCKETS - 1)
                key = (w[k] @ other + b[k])[own]
                key_there = (w[k] @ table[at] + b[k])[own]
                query_there = (w[q] @ table[at] + b[q])[own]
                score = query @ key + query @ key_there + key @ query_there
                scores.append(
                    score / torch.tensor(3.0 * size).sqrt().double()
                )  # as the public code
            odds = [score.exp() for score in scores]
            for j, other in enumerate(asked):
                result[own] += odds[j] / sum(odds) * (w[v] @ other + b[v])[own]
        mixed.append(result)
    return mixed


def through(block: Any, asking: Rows, asked: Rows, table: Rows, longest: int) -> Rows:
    out = []
    for one, mix in zip(asking, attended(block, asking, asked, table, longest), strict=True):
        x = normed(one + block.out.weight @ mix + block.out.bias, block.norm1)
        f = block.down.weight @ gelu(block.up.weight @ x + block.up.bias) + block.down.bias
        out.append(normed(x + f, block.norm2))
    return out


def reference(encoder: Any, head: DecodedLMHead, ids: list[int]) -> Tensor:
    """[L, D] what the head reads of one sequence, in plain loops."""
    longest = encoder.shape.max_position_embeddings
    table = [normed(row, encoder.contexts.norm) for row in encoder.contexts.table.weight]
    words = encoder.embeddings.words.weight
    states = [normed(words[n], encoder.embeddings.norm) for n in ids]
    *lower, last = encoder.blocks
    for block in lower:
        states = through(block, states, states, table, longest)
    asking = [x + head.positions.weight[place] for place, x in enumerate(states)]
    for _ in range(2):
        asking = through(last, asking, states, table, longest)
    return torch.stack(asking)


@torch.no_grad()
def test_packed_rows_against_plain_loops() -> None:
    """float64, every token of every sequence; positions begin anew in each."""
    encoder, head = lm_of(made(num_hidden_layers=2))
    tokens = ragged_batch()
    parts = [slots for _, _, slots in sequences_of(tokens)]
    assert len(parts) > tokens.num_rows, "several sequences in a row"
    found_TD = head.read(encoder, tokens, torch.arange(len(tokens.ids_T)))
    for slots in parts:
        wanted_LD = reference(encoder, head, tokens.ids_T[slots].tolist())
        torch.testing.assert_close(found_TD[slots], wanted_LD, rtol=1e-10, atol=1e-10)
    ordinary_TD = encoder(tokens)
    assert float((found_TD - ordinary_TD)[tokens.real_T].abs().max()) > 0.1


@pytest.mark.parametrize("name", ["electra-tiny", "bert-tiny"])
def test_only_the_chosen_positions_ask(name: str) -> None:
    """States there, and every gradient, are those of asking everywhere."""
    objective = made(name)
    encoder, head = lm_of(objective)
    tokens = ragged_batch()
    at_M = at_of(objective.corruptor.chooser, tokens, draws_of(tokens))
    every_T = torch.arange(len(tokens.ids_T))
    parameters = [*encoder.parameters(), *head.positions.parameters()]
    some_MD, all_TD = head.read(encoder, tokens, at_M), head.read(encoder, tokens, every_T)
    torch.testing.assert_close(some_MD, all_TD[at_M], rtol=1e-12, atol=1e-12)
    slope_MD = torch.randn(some_MD.shape, dtype=torch.float64)
    ours, theirs = (
        torch.autograd.grad((x_MD * slope_MD).sum(), parameters) for x_MD in (some_MD, all_TD[at_M])
    )
    for p, q in zip(ours, theirs, strict=True):
        assert bool(p.any())
        torch.testing.assert_close(p, q, rtol=1e-10, atol=1e-10)
    touched = ours[-1].abs().sum(1).nonzero().flatten().tolist()
    assert touched == sorted({int(n) for n in tokens.pos_T[at_M]})


@pytest.mark.parametrize("name", ["bert", "electra", "replace-mlm", "all-tokens-mlm", "teams"])
def test_every_objective_takes_an_update(name: str) -> None:
    """Every parameter of the decoder and of the block below it is reached."""
    config = tiny(f"{name}-tiny", **DECODER)
    check(config)
    objective: Any = build(config, VOCABULARY).objective
    encoder, head = lm_of(objective)
    tokens = ragged_batch()
    terms = terms_of(objective, tokens, draws_of(tokens))
    counts = counts_of(objective, tokens, draws_of(tokens))
    weighted(terms, config.objective.term_weights, counts).backward()
    for part in (head.positions, encoder.blocks[-1]):
        for n, p in part.named_parameters():
            assert p.grad is not None, n
            assert bool(p.grad.any()), n


@pytest.mark.parametrize(("tie", "more"), [("gdes", {}), ("lower", {"tie_layers": 2}), ("all", {})])
def test_what_generator_and_encoder_share(tie: str, more: dict[str, Any]) -> None:
    """The positions are the generator's alone, whatever both share: the discriminator reads
    none, so there is no difference table of them either."""
    objective: Any = built("electra-tiny", **DECODER | {"tie": tie} | more).objective
    _, head = lm_of(objective)
    kept = {id(p) for part in (objective.encoder, objective.head) for p in part.parameters()}
    assert id(head.positions.weight) not in kept
    names = [n for n, _ in objective.named_parameters() if "positions" in n]
    assert names == ["corruptor.lm.head.positions.weight"]


@pytest.mark.parametrize(
    ("name", "row_length", "fields"),
    [
        ("electra-tiny", 32, {"generator_num_hidden_layers": 1, "tie": "gdes"}),
        ("electra-tiny", 32, {"tie": "none", "generator_size": 0.5, "dropout": 0.1}),
        ("bert-tiny", 40, {"num_hidden_layers": 3, "intermediate_size": 100}),
    ],
    ids=str,
)
def test_hardware_is_what_torch_counts(name: str, row_length: int, fields: dict[str, Any]) -> None:
    """To the last operation, forward and backward."""
    theirs, ours = exactly(name, row_length=row_length, fields=DECODER | fields)
    assert ours == theirs


def test_the_paper_s_convention() -> None:
    """The parts of a block add up to it, and the decoder takes the second of its two parts, and the
    products of attention, twice."""
    encoder, _ = lm_of(built("bert-tiny", **DECODER).objective)
    d, f, length, h = 32, 40, 24, 4
    sizes = encoder.sizes(length)
    keys = 2 * (2 * d * d + d)
    scores = 2 * d * length + h * length * (5 + 4 + 1) + 8 * d * length + 2 * h * length
    pairs = scores + 2 * d * length
    query = 2 * d * d + d + 2 * d * d + d + 4 * d + d + 5
    query += 4 * d * f + f + 8 * f + d + 4 * d + d + 5 * d
    assert costs.keys_flops(sizes) == keys
    assert costs.relative_pairs_flops(sizes) == pairs
    assert costs.relative_query_flops(sizes) == query
    words = 2 * d * VOCAB + 5 * d + 4 * d
    below = words + keys + pairs + query
    assert Asked(encoder).paper_flops(length) == below + keys + 2 * pairs
    assert Asking(encoder).paper_flops(length) == 2 * d * length + d + 2 * query
