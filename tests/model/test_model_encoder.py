import pytest
import torch
from hypothesis import given, settings

from batches import VOCAB, encoder_of, pack, packed_batches, ragged_batch, sequences_of, text_batch
from electrify.model.attention import Backend
from electrify.model.encoder import Encoder
from electrify.model.init import init_bert
from electrify.model.shape import Shape
from electrify.tokens import Tokens

SHAPE = Shape(
    vocab_size=VOCAB,
    embedding_size=12,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=24,
    max_position_embeddings=40,
)


def encoder(
    *,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    backend: Backend = "auto",
    std: float = 0.3,
) -> Encoder:
    """Weights large enough that everything depends on everything."""
    made = encoder_of(SHAPE, dropout=dropout, attention_dropout=attention_dropout, backend=backend)
    rng = torch.Generator().manual_seed(0)
    init_bert(made, rng, std=std)
    with torch.no_grad():
        for p in made.parameters():
            if p.ndim == 1:
                p.add_(0.1 * torch.randn(p.shape, generator=rng))
    return made.eval()


@given(packed_batches())
@settings(max_examples=25)
def test_packed_equals_unpacked(tokens: Tokens) -> None:
    e = encoder()
    packed = e(tokens)
    found = list(sequences_of(tokens))
    if not found:
        return
    alone = pack([[tokens.ids_T[cut].tolist()] for _, _, cut in found], row_length=32)
    unpacked = e(alone)
    for i, (_, _, cut) in enumerate(found):
        length = cut.stop - cut.start
        torch.testing.assert_close(
            packed[cut], unpacked[i * 32 : i * 32 + length], rtol=1e-5, atol=1e-5
        )


def test_packed_equals_unpacked_in_gradients() -> None:
    e, tokens = encoder(), ragged_batch()
    alone = pack(
        [[tokens.ids_T[cut].tolist()] for _, _, cut in sequences_of(tokens)], row_length=32
    )
    weight = torch.arange(16.0)
    grads = []
    for batch in (tokens, alone):
        e.zero_grad()
        ((e(batch) * weight).sum(-1) ** 2 * batch.real_T).mul(1e-3).sum().backward()
        grads.append([p.grad.clone() for p in e.parameters() if p.grad is not None])
    assert len(grads[0]) == len(list(e.parameters()))
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(
            one, other, rtol=1e-4, atol=1e-5 * float(one.abs().max().clamp(min=1))
        )


@pytest.mark.parametrize("backend", ["matmul", "sdpa"])
@pytest.mark.parametrize("bf16", [False, True])
def test_padding_content_never_reaches_real_tokens(backend: Backend, bf16: bool) -> None:
    e, tokens = encoder(backend=backend), ragged_batch()
    pad = ~tokens.real_T
    noise = torch.arange(len(pad))
    other = Tokens(
        torch.where(pad, noise % VOCAB, tokens.ids_T),
        tokens.seq_T,
        torch.where(pad, noise % 40, tokens.pos_T),
        torch.where(pad, noise % 2, tokens.segment_T),
        row_length=32,
    )
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        one, two = e(tokens), e(other)
    assert torch.equal(one[tokens.real_T], two[tokens.real_T]), "to the bit"
    assert not torch.equal(one[pad], two[pad]), "the test does change something"


def test_a_changed_token_reaches_its_own_sequence_and_no_other() -> None:
    e, tokens = encoder(), text_batch(seed=1, rows=2, row_length=32)
    cuts = list(sequences_of(tokens))
    assert len(cuts) > 3
    for _, _, cut in cuts:
        ids = tokens.ids_T.clone()
        ids[cut.start + 1] = 6 + (ids[cut.start + 1] - 5) % (VOCAB - 6)
        moved = (e(tokens.with_ids(ids)) - e(tokens)).abs().amax(-1) > 0
        assert moved.nonzero().flatten().tolist() == list(range(cut.start, cut.stop))


def test_autocast_carries_bfloat16_and_keeps_parameters_float32() -> None:
    e, tokens = encoder(std=0.1), ragged_batch()
    exact = e(tokens)
    with torch.autocast("cpu", torch.bfloat16):
        assert e.embed(tokens).dtype == torch.bfloat16
        out = e(tokens)
    assert exact.dtype == torch.float32
    assert out.dtype == torch.bfloat16
    difference = (out.float() - exact)[tokens.real_T].detach().abs()
    assert float(difference.max()) < 0.15
    assert float(difference.mean()) < 0.02
    out.float().pow(2).sum().backward()
    assert all(
        p.dtype == torch.float32 and p.grad is not None and p.grad.dtype == torch.float32
        for p in e.parameters()
    )


@pytest.mark.parametrize("rates", [{"dropout": 0.5}, {"attention_dropout": 0.5}], ids=str)
def test_dropout_in_training_only(rates: dict[str, float]) -> None:
    e, plain, tokens = encoder(**rates), encoder(), ragged_batch()
    torch.testing.assert_close(e(tokens), plain(tokens))
    e.train()
    torch.manual_seed(0)
    one, two = e(tokens), e(tokens)
    torch.manual_seed(0)
    again = e(tokens)
    assert not torch.equal(one, two)
    assert torch.equal(one, again), "the seed decides it"
