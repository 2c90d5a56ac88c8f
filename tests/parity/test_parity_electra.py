"""Our encoder and heads against transformers' ElectraForPreTraining and ElectraForMaskedLM on the
same weights, in both directions, float32."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

from batches import encoder_of
from electrify.architectures import architecture_named
from electrify.architectures.exported import ExportedModel
from electrify.architectures.keys import KeyTable, to_ours, to_theirs, without_tied
from electrify.model.heads import BinaryHead, LMHead
from electrify.model.shape import Shape
from electrify.tokens import SpecialIds, Tokens

# (V, E, D, layers, heads, F, positions, eps)
SIZES = [
    (13, 8, 8, 1, 1, 8, 9, 1e-12),
    (40, 16, 16, 2, 4, 40, 16, 1e-12),
    (40, 8, 24, 3, 3, 20, 33, 1e-12),
    (101, 24, 12, 2, 2, 7, 17, 1e-12),
    (31, 6, 10, 1, 1, 12, 11, 1e-5),
    (50, 4, 64, 3, 8, 64, 12, 1e-3),
]
SHAPES = [
    Shape(
        vocab_size=v,
        embedding_size=e,
        hidden_size=d,
        num_hidden_layers=n,
        num_attention_heads=h,
        intermediate_size=f,
        max_position_embeddings=p,
        layer_norm_eps=eps,
    )
    for v, e, d, n, h, f, p, eps in SIZES
]
HEADS = {"ElectraForPreTraining": lambda shape, _: BinaryHead(shape), "ElectraForMaskedLM": LMHead}
KINDS = {"ElectraForPreTraining": "binary", "ElectraForMaskedLM": "token"}
ELECTRA = architecture_named("electra")
MODELS = {"ElectraForPreTraining": ElectraForPreTraining, "ElectraForMaskedLM": ElectraForMaskedLM}


def shaken(module: nn.Module, seed: int) -> None:
    """Random values in every parameter, so that none can be forgotten unseen; of a size that keeps
    attention from multiplying rounding."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in module.named_parameters():
            size = p.shape[-1] ** -0.5 if p.ndim == 2 else 0.3
            p.copy_(
                torch.randn(p.shape, generator=rng) * size
                + (1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0)
            )


def ours(
    shape: Shape, head: Callable[[Shape, nn.Embedding], nn.Module], *, seed: int
) -> ExportedModel:
    """Dropout is high, so that an eval mode that drops would show."""
    encoder = encoder_of(shape, dropout=0.5, attention_dropout=0.5)
    half = ExportedModel(
        encoder, head(shape, encoder.embeddings.words), architecture_named("electra")
    )  # type: ignore[arg-type]
    for part in (half.encoder, half.head):
        shaken(part, seed)
        part.eval()
    return half


def table_of(half: ExportedModel) -> KeyTable:
    return ELECTRA.table(half.encoder.shape, half.head.kind)


def theirs(shape: Shape, name: str) -> nn.Module:
    config = ELECTRA.hf_config(
        shape, KINDS[name], special=SpecialIds(0, 1, 2, 3, 4), dropout=0.5, attention_dropout=0.5
    )  # type: ignore[arg-type]
    assert isinstance(config, ElectraConfig)
    assert config.architectures == [name]
    return MODELS[name](config).eval()


def batch(shape: Shape, seed: int) -> Tokens:
    """Rows of every kind: full, short, a single token; one and two segments."""
    rng = torch.Generator().manual_seed(seed)
    length = shape.max_position_embeddings
    lengths = torch.tensor([length, length - 1, length // 2, 3, 1])
    ids_BL = torch.randint(shape.vocab_size, (5, length), generator=rng)
    pos_BL = torch.arange(length).repeat(5, 1)
    real_BL = pos_BL < lengths[:, None]
    segment_BL = ((pos_BL >= torch.tensor([2, length, 1, 1, 0])[:, None]) & real_BL).long()
    return Tokens(
        ids_BL.flatten(),
        real_BL.long().flatten(),
        pos_BL.flatten(),
        segment_BL.flatten(),
        row_length=length,
    )


def compare(half: ExportedModel, model: nn.Module, tokens: Tokens) -> None:
    """Hidden states after the last block, and logits, at real tokens."""
    named = {
        "input_ids": tokens.ids_T,
        "attention_mask": tokens.real_T.long(),
        "token_type_ids": tokens.segment_T,
    }
    with torch.no_grad():
        x_TD = half.encoder(tokens)
        out = model(
            **{k: t.view(-1, tokens.row_length) for k, t in named.items()},
            output_hidden_states=True,
        )
        logits = half.head(x_TD)
    for mine, other in ((x_TD, out.hidden_states[-1]), (logits, out.logits)):
        close(mine[tokens.real_T], other.flatten(0, 1)[tokens.real_T])


def close(a: Tensor, b: Tensor) -> None:
    assert a.shape == b.shape
    assert float(a.std()) > 1e-2, "outputs that say nothing agree about everything"
    assert float((a - b).abs().max()) <= 1e-5 * max(1.0, float(a.abs().max()))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_their_weights_in_our_modules(shape, name):
    model = theirs(shape, name)
    shaken(model, 3)
    half = ours(shape, HEADS[name], seed=4)
    table = table_of(half)
    assert table.name == name
    new = to_ours(table.rows, without_tied(table, model.state_dict()))
    with torch.no_grad():
        for n, p in half.parameters().items():
            p.copy_(new[n])
    compare(half, model, batch(shape, 5))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_our_weights_in_their_modules(shape, name):
    half, model = ours(shape, HEADS[name], seed=6), theirs(shape, name)
    table = table_of(half)
    state = to_theirs(table.rows, half.parameters())
    state |= {again: state[source] for again, source in table.tied.items()}
    model.load_state_dict(state, strict=True)
    compare(half, model, batch(shape, 7))


@pytest.mark.parametrize("name", MODELS)
def test_gradients_agree_too(name):
    """The same function has the same derivative: what fine-tuning with transformers sees is what
    training saw."""
    shape = SHAPES[2]
    half, model = ours(shape, HEADS[name], seed=8), theirs(shape, name)
    table = table_of(half)
    state = to_theirs(table.rows, half.parameters())
    model.load_state_dict(
        state | {again: state[source] for again, source in table.tied.items()}, strict=True
    )
    tokens = batch(shape, 9)
    half.head(half.encoder(tokens))[tokens.real_T].square().mean().backward()
    named = {
        "input_ids": tokens.ids_T,
        "attention_mask": tokens.real_T.long(),
        "token_type_ids": tokens.segment_T,
    }
    logits = model(**{k: t.view(-1, tokens.row_length) for k, t in named.items()}).logits.flatten(
        0, 1
    )
    logits[tokens.real_T].square().mean().backward()
    mine = to_theirs(table.rows, {n: p.grad for n, p in half.parameters().items()})  # type: ignore[misc]
    grads = {n: p.grad for n, p in model.named_parameters()}
    mine["electra.embeddings.word_embeddings.weight"][0] = (
        0  # transformers gives the [PAD] row no gradient from the input side
    )
    grads["electra.embeddings.word_embeddings.weight"][0] = 0
    largest = max(float(g.abs().max()) for g in mine.values())
    for n, g in mine.items():
        assert float((g - grads[n]).abs().max()) <= 1e-5 * max(1.0, largest), n
