"""Attention for encoders from transformers in fine-tuning: selects the fastest implementation that
a model class supports.

On a CPU in bfloat16 transformers' own plain attention adds a float32 mask to bfloat16 scores, so
everything after it is float32; with contexts of 200 tokens this takes two thirds of a step. The
same products in bfloat16 take half the time, and with short texts less than the fused kernel
(research/log.md). Long rows are read with the fused kernel, which keeps no table of scores.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from ..model.attention import LONG_ROW
from ..model.dropout import dropout as drop

PLAIN = "electrify_plain"


def plain_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention in the dtype of the query, with transformers' interface. query, key, value: [B, H,
    L, W] each; returns [B, L, H, W].

    If there are fewer key heads than query heads, each key head serves several query heads.
    attention_mask: is added to the scores, [B, 1, L, L].
    """
    # A model that rotates queries and keys in float32 leaves the values in the dtype of autocast.
    key, value = key.to(query.dtype), value.to(query.dtype)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if key.shape[1] != query.shape[1]:
        key, value = (
            x.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for x in (key, value)
        )
    # Under autocast, the softmax would be computed in float32.
    with torch.autocast(query.device.type, enabled=False):
        mask = attention_mask
        if mask is not None:
            mask = mask.to(query.dtype).clamp(min=torch.finfo(query.dtype).min)
        # With dropout, the fused kernel keeps the weights, too.
        if key.shape[2] >= LONG_ROW and not (dropout and module.training):
            found = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
            return found.transpose(1, 2).contiguous(), None
        scores_BHLL = (query * scale) @ key.transpose(2, 3)
        if mask is not None:
            scores_BHLL = scores_BHLL + mask
        weights_BHLL = drop(scores_BHLL.softmax(-1), dropout, module.training)
        return (weights_BHLL @ value).transpose(1, 2).contiguous(), None


def implementation_for(model_class: Any, config: Any, device: torch.device) -> str:
    """The best `attn_implementation` for a model class; "eager" for classes with an attention of
    their own (DeBERTa, XLNet, Gemma 2)."""
    special = (
        not model_class._supports_attention_backend
        or not model_class._supports_sdpa
        or getattr(config, "attn_logit_softcapping", None)
    )
    if special:
        return "eager"
    return PLAIN if device.type == "cpu" else "sdpa"


AttentionInterface.register(PLAIN, plain_attention)
AttentionMaskInterface.register(PLAIN, eager_mask)
