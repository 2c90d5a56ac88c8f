"""The pure losses that objectives share. Shape suffixes: N tokens graded, T flat tokens, S
sequences, K = 2 S vectors, D hidden width."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def binary_ce(logits_N: Tensor, target_N: Tensor) -> Tensor:
    """[N] binary cross-entropy in nats, float32."""
    return F.binary_cross_entropy_with_logits(logits_N.float(), target_N.float(), reduction="none")


def copy_log_probability(log_p_T: Tensor, copy_T: Tensor, same_T: Tensor) -> Tensor:
    """[T] log of c * 1[token = input] + (1 - c) * p(token), with c = sigmoid(copy) and same_T true
    where the token asked for is the input."""
    new_T = F.logsigmoid(-copy_T) + log_p_T
    return torch.where(same_T, torch.logaddexp(F.logsigmoid(copy_T), new_T), new_T)


def partner_ce(
    vectors_KD: Tensor, group_S: Tensor, valid_S: Tensor | None, *, temperature: float
) -> tuple[Tensor, Tensor]:
    """[K] cross-entropy, in nats, of finding the partner of each vector, and whether it is the most
    alike (COCO-LM, 2102.08473 section 3.2).

    The list holds a vector for every sequence, then another one for each, its partner. A vector is
    compared, by cosine / temperature, with all others of the same group. valid_S: which entries are
    sequences.
    """
    if not len(vectors_KD):  # a part of a validation may be padding alone
        return vectors_KD.float().sum(-1), torch.zeros(0, dtype=torch.bool, device=group_S.device)
    unit_KD = F.normalize(vectors_KD.float(), dim=-1)
    if valid_S is not None:  # fillers are a group of their own
        group_S = torch.where(valid_S, group_S, -1)
    group_K = group_S.repeat(2)
    itself_KK = torch.eye(len(group_K), dtype=torch.bool, device=group_K.device)
    apart_KK = (group_K[:, None] != group_K[None, :]) | itself_KK
    with torch.autocast(unit_KD.device.type, enabled=False):  # cosines need more than bfloat16
        alike_KK = (unit_KD @ unit_KD.T / temperature).masked_fill(
            apart_KK, torch.finfo(torch.float32).min
        )
    partner_K = torch.arange(len(group_K), device=group_K.device).roll(len(group_S))
    loss_K = F.cross_entropy(alike_KK, partner_K, reduction="none")
    return loss_K, alike_KK.argmax(-1) == partner_K
