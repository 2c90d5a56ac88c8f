"""Encoders and their parts: packed rows, the dtype of the states, dropout, the gated layer, rotary
positions. What heads and blocks compute is compared with the library's classes (tests/parity)."""

import ctypes
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from batches import built, gradients, pack, packed_batches, ragged_batch, sequences_of, text_batch
from electrify.model.attention import Rotary
from electrify.model.blocks import geglu
from electrify.model.embeddings import dropout, keep_mask
from electrify.model.encoder import Encoder
from electrify.model.init import init_bert
from electrify.tokens import Tokens, mapped


def encoder(*, std: float = 0.3, **fields: float) -> Encoder:
    """Weights large enough that everything depends on everything."""
    made = built("bert-tiny", embedding_size=24, **fields).discriminator.encoder
    rng = torch.Generator().manual_seed(0)
    init_bert(made, rng, std=std)
    with torch.no_grad():
        for p in made.parameters():
            if p.ndim == 1:
                p.add_(0.1 * torch.randn(p.shape, generator=rng))
    return made.eval()


@given(packed_batches())
@settings(max_examples=25, deadline=None)
def test_packed_equals_unpacked(tokens: Tokens) -> None:
    """Values, and the gradient of every parameter."""
    e = encoder()
    alone = [[tokens.ids_T[cut].tolist()] for _, _, cut in sequences_of(tokens)]
    assume(alone)
    found = []
    for batch in (tokens, pack(alone, row_length=32)):
        states_ND = e(batch)[batch.real_T]
        e.zero_grad()
        ((states_ND * torch.arange(32.0)).sum(-1) ** 2).mul(1e-3).sum().backward()
        found.append((states_ND, gradients(e)))
    (one, here), (other, there) = found
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert here.keys() == there.keys()
    for n, g in here.items():
        scale = float(g.abs().max().clamp(min=1))
        torch.testing.assert_close(there[n], g, rtol=1e-4, atol=1e-5 * scale, msg=n)


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
    assert {p.dtype for p in e.parameters()} == {torch.float32}
    assert {p.grad.dtype for p in e.parameters() if p.grad is not None} == {torch.float32}
    assert gradients(e).keys() == {n for n, _ in e.named_parameters()}


@pytest.mark.parametrize("rates", [{"dropout": 0.5}, {"attention_dropout": 0.5}], ids=str)
def test_dropout_in_training_only(rates: dict[str, float]) -> None:
    e, tokens = encoder(**rates), ragged_batch()
    torch.testing.assert_close(e(tokens), encoder()(tokens))
    e.train()
    found = []
    for seed in (0, 1, 0):
        torch.manual_seed(seed)
        found.append(e(tokens))
    assert not torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2]), "the seed decides it"


TYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("p", [0.1, 0.9])
def test_each_element_is_dropped_with_its_probability(dtype: torch.dtype, p: float) -> None:
    torch.manual_seed(0)
    n = 400_003
    mask = keep_mask(torch.Size((n,)), dtype, p).double()
    assert set(mask.tolist()) == {0.0, 1.0}
    deviation = math.sqrt(p * (1 - p) / n)
    assert abs(float(mask.mean()) - (1 - p)) < 4 * deviation
    for step in (1, 2, 3, 4, 8):  # elements that share a number of the generator, and neighbours
        together = float((mask[step:] * mask[:-step]).mean())
        assert abs(together - (1 - p) ** 2) < 5 * deviation


@pytest.mark.parametrize("dtype", TYPES)
def test_value_and_gradient(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.arange(1.0, 1001.0).to(dtype).requires_grad_()
    y = dropout(x, 0.2, training=True)
    assert dropout(torch.ones(0, 4), 0.2, training=True).shape == (0, 4)
    there = y != 0
    assert 700 < int(there.sum()) < 900
    torch.testing.assert_close(y[there], (x[there].float() / 0.8).to(dtype))
    y.float().sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, there * torch.tensor(1 / 0.8, dtype=dtype))


@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-6), (torch.bfloat16, 2**-7)])
def test_geglu_and_its_gradient(dtype: torch.dtype, within: float) -> None:
    """The first half of a row is u, the second its gate: gelu(u) * gate. The input stays."""
    rng = torch.Generator().manual_seed(1)
    both, grad = torch.randn(130, 64, generator=rng), torch.randn(130, 32, generator=rng)
    found, plain = (both.to(dtype).requires_grad_() for _ in range(2))
    u, gate = plain.chunk(2, dim=-1)
    ours, theirs = geglu(found), F.gelu(u) * gate
    ours.backward(grad.to(dtype))
    theirs.backward(grad.to(dtype))
    assert found.grad is not None
    torch.testing.assert_close(ours, theirs, atol=within, rtol=within)
    torch.testing.assert_close(found.grad, plain.grad, atol=within, rtol=within)
    assert found.grad.dtype == dtype
    assert torch.equal(found, both.to(dtype))


CUDA, META = 1, 14  # c10::DeviceType


@contextmanager
def fake_cuda() -> Iterator[None]:
    """CUDA tensors without data. A torch without CUDA has no guard for their device, which indexing
    asks for; that of `meta` tensors also does nothing."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    registry = "_ZN3c104impl26device_guard_impl_registryE"
    guards = (ctypes.c_void_p * (META + 1)).in_dll(library, registry)
    own = guards[CUDA]
    if own is None:
        guards[CUDA] = guards[META]
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            yield
    finally:
        guards[CUDA] = own


@pytest.mark.parametrize("recipe", ["bert-tiny", "bert-modernbert-tiny", "bert-deberta-tiny"])
def test_the_residual_stream_keeps_its_dtype(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's autocast returns float32 from a norm, the CPU's does not."""
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    encoder = built(recipe).discriminator.encoder
    tokens = text_batch(seed=0, rows=2, row_length=32)
    seen: list[torch.dtype] = []
    for module in (*encoder.blocks, encoder):
        module.register_forward_hook(lambda module, given, states: seen.append(states.dtype))
    with fake_cuda(), torch.autocast("cuda", torch.bfloat16):
        for module in encoder.modules():
            for name, p in module.named_parameters(recurse=False):
                setattr(module, name, nn.Parameter(torch.empty_like(p, device="cuda:0")))
            for name, b in module.named_buffers(recurse=False):
                setattr(module, name, torch.empty_like(b, device="cuda:0"))
        encoder(mapped(tokens, lambda t: t.to("cuda:0")))
    assert seen == [torch.bfloat16] * (len(encoder.blocks) + 1)


def as_complex(x_TNHW: Tensor, pos_T: Tensor, theta: float) -> Tensor:
    """Component c as a complex number, times exp(i p theta^(-2c / W))."""
    half = x_TNHW.shape[-1] // 2
    w_C = torch.tensor([theta ** (-c / half) for c in range(half)], dtype=torch.float64)
    turn_TC = torch.polar(torch.ones(len(pos_T), half).double(), pos_T.double()[:, None] * w_C)
    z = torch.complex(x_TNHW[..., :half].double(), x_TNHW[..., half:].double())
    z = z * turn_TC[:, None, None]
    return torch.cat([z.real, z.imag], -1)


@pytest.mark.parametrize("theta", [10_000.0, 160_000.0, 7.0])
@pytest.mark.parametrize("width", [2, 8, 64])
def test_as_complex_numbers(theta: float, width: int) -> None:
    """Angles are float32: at position p they are exact to p * 2^-23."""
    pos_T = torch.tensor([0, 1, 2, 3, 64, 129, 1023, 8191])
    x = torch.randn(8, 2, 3, width, generator=torch.Generator().manual_seed(0))
    found = Rotary(theta, width).turn(pos_T, torch.float32)(x)
    assert found.dtype == torch.float32
    assert torch.equal(found[0], x[0])
    error_T = (found.double() - as_complex(x, pos_T, theta)).abs().flatten(1).amax(1)
    assert bool((error_T <= 2e-6 + x.abs().max() * pos_T * 2.0**-22).all()), error_T


def test_bfloat16_is_turned_in_float32() -> None:
    x = torch.randn(5, 2, 1, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    turn = Rotary(10_000.0, 8).turn(torch.arange(5), torch.bfloat16)
    found = turn(x)
    assert (found.dtype, turn.cos_T11W.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(found, as_complex(x, torch.arange(5), 1e4).float().bfloat16())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("elements", [1, 100, 1 << 18])
def test_split_is_the_plain_turn(dtype, elements, monkeypatch):
    """To the last bit, values and gradients, however many tokens are turned at a time; gradients
    come as attention gives them, rows and heads in another order."""
    monkeypatch.setattr("electrify.model.attention.ELEMENTS", elements)
    rng = torch.Generator().manual_seed(2)
    qkv, grads = torch.randn(12, 3, 2, 8, generator=rng), torch.randn(3, 2, 2, 6, 8, generator=rng)
    turn = Rotary(100.0, 8).turn(torch.arange(12), dtype)
    ours, plain = (qkv.to(dtype).requires_grad_() for _ in range(2))
    found = turn.split(ours)
    expected = (*turn(plain[:, :2]).unbind(1), plain[:, 2])
    for x, y, g_RHLW in zip(found, expected, grads.to(dtype), strict=True):
        assert torch.equal(x, y)
        for one in (x, y):
            one.view(2, 6, 2, 8).transpose(1, 2).backward(g_RHLW, retain_graph=True)
    assert ours.grad is not None
    assert plain.grad is not None
    assert torch.equal(ours.grad, plain.grad)
    assert torch.equal(ours, qkv.to(dtype))
