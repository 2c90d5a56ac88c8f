"""ModernBERT's encoder as its paper describes it (2412.13663, section 2.1), in float64 and token by
token: what our network and the library's are compared with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def turned(x_NHW: Tensor, theta: float) -> Tensor:
    """Pairs (c, c + C) of components as complex numbers, turned by p * theta^(-c / C)."""
    half = x_NHW.shape[-1] // 2
    frequency_C = theta ** (-torch.arange(half).double() / half)
    angle_NC = torch.outer(torch.arange(len(x_NHW)).double(), frequency_C)
    turn_N1C = torch.polar(torch.ones_like(angle_NC), angle_NC)[:, None]
    z_NHC = torch.complex(x_NHW[..., :half], x_NHW[..., half:]) * turn_N1C
    return torch.cat([z_NHC.real, z_NHC.imag], -1)


def states_by_hand(
    weights: Mapping[str, Tensor], shape: Any, ids_N: Tensor, *, lowest_normed: bool = False
) -> Tensor:
    """[N, D] of one sequence. weights: under the library's names, without `model.`. lowest_normed:
    another network, whose lowest block normalises its input once more."""
    named = {name: t.double() for name, t in weights.items()}

    def norm(x_ND: Tensor, weight_D: Tensor) -> Tensor:
        x_ND = x_ND - x_ND.mean(-1, keepdim=True)
        square_N1 = x_ND.square().mean(-1, keepdim=True)
        return x_ND / (square_N1 + shape.layer_norm_eps).sqrt() * weight_D

    x_ND = named["embeddings.tok_embeddings.weight"][ids_N]
    x_ND = norm(x_ND, named["embeddings.norm.weight"])
    size, heads = len(ids_N), shape.num_attention_heads
    for n in range(shape.num_hidden_layers):
        its = {k.removeprefix(f"layers.{n}."): t for k, t in named.items() if f"layers.{n}." in k}
        local = n % shape.global_attn_every_n_layers != 0
        h_ND = x_ND
        if n:
            h_ND = norm(x_ND, its["attn_norm.weight"])
        elif lowest_normed:
            h_ND = norm(x_ND, torch.ones(()))
        qkv = (h_ND @ its["attn.Wqkv.weight"].T).view(size, 3, heads, -1)
        theta = shape.local_rope_theta if local else shape.global_rope_theta
        q_NHW, k_NHW, v_NHW = turned(qkv[:, 0], theta), turned(qkv[:, 1], theta), qkv[:, 2]
        mixed_NHW = torch.empty_like(v_NHW)
        for i in range(size):
            seen = [j for j in range(size) if not local or 2 * abs(i - j) <= shape.local_attention]
            scores_HJ = torch.einsum("hw,jhw->hj", q_NHW[i], k_NHW[seen])
            weights_HJ = (scores_HJ / math.sqrt(q_NHW.shape[-1])).softmax(-1)
            mixed_NHW[i] = torch.einsum("hj,jhw->hw", weights_HJ, v_NHW[seen])
        x_ND = x_ND + mixed_NHW.flatten(1) @ its["attn.Wo.weight"].T
        up_NF, gate_NF = (norm(x_ND, its["mlp_norm.weight"]) @ its["mlp.Wi.weight"].T).chunk(2, -1)
        gelu_NF = up_NF * (1 + torch.erf(up_NF / math.sqrt(2))) / 2
        x_ND = x_ND + (gelu_NF * gate_NF) @ its["mlp.Wo.weight"].T
    return norm(x_ND, named["final_norm.weight"])
