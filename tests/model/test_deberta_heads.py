"""DeBERTaV3's head that detects, linear(gelu(dense(LayerNorm(h_t + h_CLS)))), h_CLS being the state
of the first token of the same sequence; and DeBERTa's mask decoder: the last block runs twice over
the states below it, with queries that begin as these states plus the absolute positions."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from batches import (
    VOCAB,
    VOCABULARY,
    at_of,
    built,
    draws_of,
    gradients,
    loss_of,
    pack,
    ragged_batch,
    sequences_of,
    shaken,
    tiny,
)
from counted import exactly
from electrify.build import build
from electrify.flop_counts import passes_flops
from electrify.model import costs
from electrify.model.costs import Pass
from electrify.model.embeddings import Shape
from electrify.model.encoder import Encoder
from electrify.model.heads import Asked, Asking, ClsBinaryHead, DecodedLMHead
from electrify.rules import check
from electrify.tokens import Tokens

DEBERTA: dict[str, Any] = {"architecture": "deberta", "init": "published", "generator_size": 1.0}
V3 = DEBERTA | {"position_buckets": 16, "rtd_head": "v3", "generator_num_hidden_layers": 1}
DECODER = DEBERTA | {"position_buckets": 8, "mask_decoder": True}


def cls_head(width: int) -> ClsBinaryHead:
    sizes = {"embedding_size": width, "hidden_size": width, "intermediate_size": 2}
    sizes |= {"num_hidden_layers": 1, "num_attention_heads": 1, "max_position_embeddings": 8}
    return ClsBinaryHead(Shape(**sizes, vocab_size=3, layer_norm_eps=1e-7))


def detected(head: ClsBinaryHead, states_LD: Tensor) -> Tensor:
    """One sequence, as Microsoft's public code computes it."""
    return head.out(F.gelu(head.dense(head.norm(states_LD + states_LD[:1]))))[:, 0]


@pytest.mark.parametrize("seed", range(3))
def test_detection_in_packed_rows_against_single_sequences(seed: int) -> None:
    """float64, with gradients of states and parameters."""
    head, tokens = shaken(cls_head(12).double()), ragged_batch(seed=seed)
    rng = torch.Generator().manual_seed(seed)
    size = len(tokens.ids_T)
    states_TD = torch.randn(size, 12, generator=rng, dtype=torch.float64, requires_grad=True)
    slope_T = torch.randn(size, generator=rng, dtype=torch.float64)
    parts = [slots for _, _, slots in sequences_of(tokens)]
    assert len(parts) > tokens.num_rows, "several sequences in a row"
    found_T = head(head.inputs(states_TD, tokens))
    wanted = [detected(head, states_TD[slots]) for slots in parts]
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
    cls_head(2).inputs(states_TD, tokens).sum().backward()
    assert states_TD.grad is not None
    assert states_TD.grad[:2].tolist() == [[500, 500], [1, 1]]


def updated(name: str, fields: dict[str, Any]) -> Any:
    """An objective of this recipe with the gradients of one update."""
    config = tiny(f"{name}-tiny", **fields)
    check(config)
    objective: Any = build(config, VOCABULARY).objective
    tokens = ragged_batch()
    loss_of(objective, tokens, draws_of(tokens), config.objective.term_weights).backward()
    return objective


# One of each class whose head detects; of electra-15 it reads the chosen positions alone.
@pytest.mark.parametrize("name", ["electra", "electra-15", "corrective", "teams", "adversarial"])
def test_every_objective_detects(name: str) -> None:
    """Its logits are those of the reference over the encoder's own states, and every parameter is
    reached."""
    objective, tokens = updated(name, V3), ragged_batch()
    head = objective.head
    assert isinstance(head, ClsBinaryHead)
    assert gradients(head).keys() == {n for n, _ in head.named_parameters()}
    graded = objective(tokens, objective.plan(tokens, draws_of(tokens)))
    wanted_T = torch.zeros(len(tokens.ids_T))
    for _, _, slots in sequences_of(tokens):
        wanted_T[slots] = detected(head, graded.states_TD[slots]).detach()
    asked = graded.corrupted.at_M if name == "electra-15" else tokens.real_T.nonzero().flatten()
    found = graded.logits if name == "electra-15" else graded.logits[tokens.real_T]
    torch.testing.assert_close(found.detach(), wanted_T[asked], rtol=1e-5, atol=1e-6)


def test_what_detection_costs() -> None:
    """hardware: as torch counts its products. paper: ELECTRA's head, a norm and a sum of states."""
    head, tokens = cls_head(24), ragged_batch()
    states_TD = torch.randn(len(tokens.ids_T), 24)
    with FlopCounterMode(display=False) as counter:
        head(head.inputs(states_TD, tokens))
    how: dict[str, Any] = {"row_length": 32}
    ours = passes_flops([Pass(head, 1.0, False)], convention="hardware", **how)
    assert len(tokens.ids_T) * ours == counter.get_total_flops() == len(states_TD) * 2 * (24 * 25)
    paper = passes_flops([Pass(head, 1.0, False)], convention="paper", **how)
    assert paper == 24 + 5 * 24 + (2 * 24 * 24 + 24 + 8 * 24 + 2 * 24)


def lm_of(objective: Any) -> tuple[Encoder, DecodedLMHead]:
    own = objective.corruptor.lm if hasattr(objective.corruptor, "lm") else objective
    assert isinstance(own.head, DecodedLMHead)
    return own.encoder, own.head


@torch.no_grad()
def test_decoding_in_packed_rows_is_that_of_single_sequences() -> None:
    """float64, every token of every sequence; positions begin anew in each. The numbers of single
    sequences are the library's (tests/parity)."""
    encoder, head = lm_of(
        shaken(built("electra-tiny", num_hidden_layers=2, **DECODER).objective.double())
    )
    tokens = ragged_batch()
    sequences = [tokens.ids_T[slots].tolist() for _, _, slots in sequences_of(tokens)]
    found = []
    for batch in (tokens, pack([[ids] for ids in sequences], row_length=32)):
        read_TD = head.read(encoder, batch, torch.arange(len(batch.ids_T)))
        found.append(read_TD[batch.real_T])
        assert float((found[-1] - encoder(batch)[batch.real_T]).abs().max()) > 0.1
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["electra-tiny", "bert-tiny"])
def test_only_the_chosen_positions_ask(name: str) -> None:
    """States there, and every gradient, are those of asking everywhere."""
    objective = shaken(built(name, **DECODER).objective.double())
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
def test_every_objective_trains_the_decoder(name: str) -> None:
    """Every parameter of it and of the block below it is reached."""
    encoder, head = lm_of(updated(name, DECODER))
    for module in (head.positions, encoder.blocks[-1]):
        assert gradients(module).keys() == {n for n, _ in module.named_parameters()}


@pytest.mark.parametrize(("tie", "more"), [("gdes", {}), ("lower", {"tie_layers": 2}), ("all", {})])
def test_what_generator_and_encoder_share(tie: str, more: dict[str, Any]) -> None:
    """The positions are the generator's alone, whatever both share: the discriminator reads
    none, so there is no difference table of them either."""
    objective: Any = built("electra-tiny", **DECODER | {"tie": tie} | more).objective
    names = [n for n, _ in objective.named_parameters() if "positions" in n]
    assert names == ["corruptor.lm.head.positions.weight"]


@pytest.mark.parametrize(
    ("name", "row_length", "fields"),
    [
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
