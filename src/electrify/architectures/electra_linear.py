"""A linear head as the two layers of the library's class, and back."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..model.heads import LinearHead

TWO_LAYERS = {"dense.weight", "dense.bias", "out.weight", "out.bias"}


def two_layers(head: LinearHead) -> dict[str, Tensor]:
    """Writes a linear head exactly as dense, gelu and output: gelu(x) - gelu(-x) = x, so the dense
    layer gets w and -w, and the output layer 1 and -1."""
    w_D = head.out.weight.detach()[0]
    b = head.out.bias.detach()
    dense_DD = w_D.new_zeros(len(w_D), len(w_D))
    bias_D = torch.zeros_like(w_D)
    out_1D = w_D.new_zeros(1, len(w_D))
    dense_DD[0] = w_D
    dense_DD[1] = -w_D
    bias_D[0:1] = b
    bias_D[1:2] = -b
    out_1D[0, 0] = 1
    out_1D[0, 1] = -1
    return {
        "dense.weight": dense_DD,
        "dense.bias": bias_D,
        "out.weight": out_1D,
        "out.bias": torch.zeros_like(b),
    }


def one_layer(named: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """The linear head from which `two_layers` made these two layers; None if they compute something
    else."""
    dense_DD = named["dense.weight"]
    bias_D = named["dense.bias"]
    head = LinearHead(len(bias_D))
    with torch.no_grad():
        head.out.weight.copy_(dense_DD[:1])
        head.out.bias.copy_(bias_D[:1])
    same = all(torch.equal(named[name], t) for name, t in two_layers(head).items())
    return {name: p.detach() for name, p in head.named_parameters()} if same else None
