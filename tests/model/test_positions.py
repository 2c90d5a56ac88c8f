"""Rotary positions against a reference in float64, written with complex numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from electrify.model import positions
from electrify.model.positions import Rotary


def reference(x_TNHW: Tensor, pos_T: Tensor, theta: float) -> Tensor:
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
    error_T = (found.double() - reference(x, pos_T, theta)).abs().flatten(1).amax(1)
    assert bool((error_T <= 2e-6 + x.abs().max() * pos_T * 2.0**-22).all()), error_T


def test_by_hand() -> None:
    """Width 4, theta 100: angles p and p / 10; the pairs are (0, 2) and (1, 3)."""
    x = torch.tensor([1.0, 1.0, 0.0, 0.0]).view(1, 1, 1, 4)
    found = Rotary(100.0, 4).turn(torch.tensor([2]), torch.float32)(x)
    angles = torch.tensor([2.0, 0.2])
    expected = torch.cat([angles.cos(), angles.sin()])
    torch.testing.assert_close(found.flatten(), expected)


def test_products_depend_on_the_distance_alone() -> None:
    rotary = Rotary(10_000.0, 16)
    q, k = torch.randn(2, 1, 1, 1, 16, generator=torch.Generator().manual_seed(1)).double()
    at = torch.tensor([3, 103])

    def product(i: int, j: int) -> float:
        turned = [rotary.turn(torch.tensor([p]), torch.float64)(x) for p, x in ((i, q), (j, k))]
        return float((turned[0] * turned[1]).sum())

    first, second = (product(int(p), int(p) + 5) for p in at)
    assert first == pytest.approx(second, abs=1e-4)
    assert abs(first - product(3, 7)) > 1e-2


def test_bfloat16_is_turned_in_float32() -> None:
    x = torch.randn(5, 2, 1, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    turn = Rotary(10_000.0, 8).turn(torch.arange(5), torch.bfloat16)
    found = turn(x)
    assert (found.dtype, turn.cos_T11W.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(found, reference(x, torch.arange(5), 1e4).float().bfloat16())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("elements", [1, 100, 1 << 18])
def test_split_is_the_plain_turn(
    dtype: torch.dtype, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit, values and gradients, however many tokens are turned at a time; gradients
    come as attention gives them, rows and heads in another order."""
    monkeypatch.setattr(positions, "ELEMENTS", elements)
    rng = torch.Generator().manual_seed(2)
    qkv, grads = torch.randn(12, 3, 2, 8, generator=rng), torch.randn(3, 2, 2, 6, 8, generator=rng)
    turn = Rotary(100.0, 8).turn(torch.arange(12), dtype)
    ours, plain = (qkv.to(dtype).requires_grad_() for _ in range(2))
    found = turn.split(ours)
    expected = (*turn(plain[:, :2]).unbind(1), plain[:, 2])
    for x, y, g_RHLW in zip(found, expected, grads.to(dtype), strict=True):
        assert torch.equal(x, y)
        for given in (x, y):
            given.view(2, 6, 2, 8).transpose(1, 2).backward(g_RHLW, retain_graph=True)
    assert ours.grad is not None
    assert plain.grad is not None
    assert torch.equal(ours.grad, plain.grad)
    assert torch.equal(ours, qkv.to(dtype))


def test_the_gradient_of_split_is_that_of_the_function() -> None:
    qkv = torch.randn(5, 3, 1, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    turn = Rotary(10.0, 4).turn(torch.arange(5), torch.float64)
    assert torch.autograd.gradcheck(turn.split, qkv.requires_grad_())
