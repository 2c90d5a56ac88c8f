"""GeGLU by its own function on a CPU, against the formula."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from electrify.model.blocks import geglu


def formula(both_TX: Tensor) -> Tensor:
    u, gate = both_TX.chunk(2, dim=-1)
    return F.gelu(u) * gate


def test_by_hand() -> None:
    """gelu(u) = u (1 + erf(u / sqrt 2)) / 2; the first half of a row is u, the second its gate."""
    both = torch.tensor([[1.0, -2.0, 3.0, 0.5]])
    expected = [3 * 0.5 * (1 + math.erf(math.sqrt(0.5))), 0.5 * -(1 + math.erf(-math.sqrt(2)))]
    torch.testing.assert_close(geglu(both), torch.tensor([expected]))


def test_the_gradient_is_that_of_the_function() -> None:
    both = torch.randn(3, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.autograd.gradcheck(geglu, both.requires_grad_())


@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-6), (torch.bfloat16, 2**-7)])
def test_as_the_formula(dtype: torch.dtype, within: float) -> None:
    rng = torch.Generator().manual_seed(1)
    both, grad = torch.randn(130, 64, generator=rng), torch.randn(130, 32, generator=rng)
    found, plain = (both.to(dtype).requires_grad_() for _ in range(2))
    ours, theirs = geglu(found), formula(plain)
    ours.backward(grad.to(dtype))
    theirs.backward(grad.to(dtype))
    assert found.grad is not None
    torch.testing.assert_close(ours, theirs, atol=within, rtol=within)
    torch.testing.assert_close(found.grad, plain.grad, atol=within, rtol=within)
    assert found.grad.dtype == dtype


def test_its_input_stays() -> None:
    both = torch.randn(4, 8, requires_grad=True)
    before = both.detach().clone()
    geglu(both).sum().backward()
    assert torch.equal(both, before)
