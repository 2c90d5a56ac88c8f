"""Log-probabilities over the vocabulary, computed with little memory.

Shape suffixes: N tokens graded, C a chunk of them, V vocabulary, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

# The number of tokens whose logits over the vocabulary exist at the same time: with 30 522 words
# they take 125 MB in bfloat16, and their probabilities 250 MB.
CHUNK = 2048


class _TokenCE(torch.autograd.Function):
    """Cross-entropy from probabilities, which are computed once, here or by the code that sampled
    from them. The gradient needs nothing else."""

    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, target_N: Tensor, p_NV: Tensor) -> Tensor:
        ctx.save_for_backward(p_NV, target_N)
        ctx.dtype = logits_NV.dtype
        if torch.compiler.is_compiling():
            # The same, by way of the softmax: so its kernel finds it. The compiler does not join
            # passes over the same logits that are far apart in the graph.
            highest_N = logits_NV.gather(-1, likeliest(p_NV)[:, None]).squeeze(-1)
        else:
            highest_N = logits_NV.amax(-1)
        behind_N = highest_N.float() - logits_NV.gather(-1, target_N[:, None]).squeeze(-1).float()
        # The highest probability is at least 1 / V, but that of the target may be 0 in float32.
        return behind_N - p_NV.amax(-1).log()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        p_NV, target_N = ctx.saved_tensors
        gradient_N1 = grads[0][:, None]
        gradient_NV = p_NV * gradient_N1
        if torch.compiler.is_compiling():
            # The same numbers in one kernel; scatter_add_ would write float32 and read it again.
            word_V = torch.arange(p_NV.shape[1], device=p_NV.device)
            here_NV = word_V == target_N[:, None]
            gradient_NV = torch.where(here_NV, gradient_NV - gradient_N1, gradient_NV)
        else:
            gradient_NV.scatter_add_(-1, target_N[:, None], -gradient_N1)
        return gradient_NV.to(ctx.dtype), None, None


def token_ce(logits_NV: Tensor, target_N: Tensor, p_NV: Tensor | None = None) -> Tensor:
    """[N] cross-entropy in nats, float32. p_NV: softmax(logits) in float32, if it is already
    known."""
    if p_NV is None:
        p_NV = logits_NV.detach().softmax(-1, dtype=torch.float32)
    loss_N = _TokenCE.apply(logits_NV, target_N, p_NV)
    assert isinstance(loss_N, Tensor)
    return loss_N


def likeliest(score_NV: Tensor) -> Tensor:
    """The token with the highest logit (or probability), [N]. It is computed in float32, because on
    a CPU the argmax of bfloat16 takes nine times as long."""
    return score_NV.float().argmax(-1)


def log_probability(head: nn.Module, states_ND: Tensor, target_N: Tensor) -> tuple[Tensor, Tensor]:
    """[N] log softmax(head(states))[target] in float32 with gradient, and [N] whether target is the
    most probable one.

    It works in chunks, whose logits are computed again in the backward pass, so that memory does
    not grow with the number of tokens.
    """

    def chunk(states_CD: Tensor, target_C: Tensor) -> tuple[Tensor, Tensor]:
        logits_CV = head(states_CD)
        return -token_ce(logits_CV, target_C), likeliest(logits_CV.detach()) == target_C

    parts: list[Any] = []
    for start in range(0, max(len(target_N), 1), CHUNK):
        some = states_ND[start : start + CHUNK], target_N[start : start + CHUNK]
        again = torch.is_grad_enabled() and len(target_N) > CHUNK
        parts.append(
            checkpoint(chunk, *some, use_reentrant=False, preserve_rng_state=False)
            if again
            else chunk(*some)
        )
    log_p_N, right_N = (torch.cat(list(x)) for x in zip(*parts, strict=True))
    return log_p_N, right_N
