"""DeBERTaV3's network that detects, as a class in the manner of Hugging Face's library, which has
none: it reads the folders that Microsoft publishes, and ours.

Shape suffixes: B sequences, L length, D hidden width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu
from transformers import DebertaV2Model
from transformers.modeling_outputs import TokenClassifierOutput
from transformers.models.deberta_v2.modeling_deberta_v2 import DebertaV2PreTrainedModel


class MaskPredictions(nn.Module):
    """linear(gelu(dense(LayerNorm(h + h_CLS)))), under Microsoft's names (2111.09543, public
    code)."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        width = config.hidden_size
        self.LayerNorm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dense = nn.Linear(width, width)
        self.classifier = nn.Linear(width, 1)

    def forward(self, states_BLD: Tensor, cls_B1D: Tensor) -> Tensor:
        """[B, L]"""
        x_BLD = self.LayerNorm(states_BLD + cls_B1D)
        return self.classifier(gelu(self.dense(x_BLD))).squeeze(-1)


class DebertaV2Detector(DebertaV2PreTrainedModel):
    """The encoder with this head, and two labels a token: `original`, whose logit is 0, and
    `replaced`."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.deberta = DebertaV2Model(config)
        self.mask_predictions = MaskPredictions(config)
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> TokenClassifierOutput:
        """[B, L] and [B, L], padded on either side."""
        states_BLD = self.deberta(input_ids, attention_mask=attention_mask).last_hidden_state
        first_B = attention_mask.long().argmax(1)
        row_B = torch.arange(len(first_B), device=first_B.device)
        cls_B1D = states_BLD[row_B, first_B][:, None]
        logits_BL = self.mask_predictions(states_BLD, cls_B1D)
        both_BLC: Any = torch.stack([torch.zeros_like(logits_BL), logits_BL], -1)
        return TokenClassifierOutput(logits=both_BLC)
