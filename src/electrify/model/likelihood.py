"""Log-probabilities over the vocabulary, with the memory they need and no more.

Shape suffixes: N tokens graded, C a chunk of them, V vocabulary, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

CHUNK = 2048  # tokens whose logits over the vocabulary are alive at a time; with 30 522 words in bfloat16 that is 125 MB


class _TokenCE(torch.autograd.Function):
    """Cross-entropy that keeps the logits in their own type and writes its gradient once; torch's keeps and passes float32 copies of [N, V]."""

    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, target_N: Tensor) -> Tensor:
        log_p_NV = logits_NV.log_softmax(-1, dtype=torch.float32)
        total_N = logits_NV.amax(-1) - log_p_NV.amax(-1)  # logsumexp would take twice the time of both on a CPU
        ctx.save_for_backward(logits_NV, target_N, total_N)
        return -log_p_NV.gather(-1, target_N[:, None]).squeeze(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        logits_NV, target_N, total_N = ctx.saved_tensors
        gradient_NV = logits_NV.to(torch.float32, copy=True).sub_(total_N[:, None]).exp_()
        gradient_NV.scatter_add_(-1, target_N[:, None], gradient_NV.new_full((len(target_N), 1), -1.0))
        return gradient_NV.mul_(grads[0][:, None]).to(logits_NV.dtype), None


def token_ce(logits_NV: Tensor, target_N: Tensor) -> Tensor:
    """[N] cross-entropy in nats, float32."""
    loss_N = _TokenCE.apply(logits_NV, target_N)
    assert isinstance(loss_N, Tensor)
    return loss_N


def likeliest(logits_NV: Tensor) -> Tensor:
    """[N] the token of the highest logit. In float32: on a CPU the argmax of bfloat16 takes nine times as long."""
    return logits_NV.float().argmax(-1)


def log_probability(head: nn.Module, states_ND: Tensor, target_N: Tensor) -> tuple[Tensor, Tensor]:
    """[N] log softmax(head(states))[target] in float32 with gradient, and [N] whether target is the most probable one.

    In chunks whose logits are computed again for the backward pass, so that memory does not grow with the number of tokens.
    """

    def chunk(states_CD: Tensor, target_C: Tensor) -> tuple[Tensor, Tensor]:
        logits_CV = head(states_CD)
        return -token_ce(logits_CV, target_C), likeliest(logits_CV.detach()) == target_C

    parts: list[Any] = []
    for start in range(0, max(len(target_N), 1), CHUNK):
        some = states_ND[start : start + CHUNK], target_N[start : start + CHUNK]
        again = torch.is_grad_enabled() and len(target_N) > CHUNK
        parts.append(checkpoint(chunk, *some, use_reentrant=False, preserve_rng_state=False) if again else chunk(*some))
    log_p_N, right_N = (torch.cat(list(x)) for x in zip(*parts, strict=True))
    return log_p_N, right_N
