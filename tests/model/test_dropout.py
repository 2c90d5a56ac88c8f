"""Dropout on a CPU: torch's in distribution, mean and gradient."""

from __future__ import annotations

import math

import pytest
import torch

from electrify.model.dropout import dropout, kept

TYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_each_element_is_dropped_with_its_probability(dtype: torch.dtype, p: float) -> None:
    torch.manual_seed(0)
    n = 400_003
    mask = kept(torch.Size((n,)), dtype, p).double()
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
    there = y != 0
    assert 700 < int(there.sum()) < 900
    torch.testing.assert_close(y[there], (x[there].float() / 0.8).to(dtype))
    y.float().sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, there * torch.tensor(1 / 0.8, dtype=dtype))


def test_a_seed_decides_it_and_odd_sizes_work() -> None:
    x = torch.ones(3, 5, 7, dtype=torch.bfloat16)
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(dropout(x, 0.5, training=True))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert dropout(torch.ones(0, 4), 0.5, training=True).shape == (0, 4)
    assert not dropout(x, 0.999999, training=True).any()
