"""What Hugging Face's library has no class for, as classes in its manner: DeBERTaV3's network that
detects, and DeBERTa's masked language model with its mask decoder. They read the folders that
Microsoft publishes, and ours.

Shape suffixes: B sequences, L length, D hidden width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu
from transformers import DebertaV2ForMaskedLM, DebertaV2Model
from transformers.modeling_outputs import BaseModelOutput, TokenClassifierOutput
from transformers.models.deberta_v2.modeling_deberta_v2 import DebertaV2PreTrainedModel

from ..model.heads import DECODER_RUNS


class DebertaV2Detector(DebertaV2PreTrainedModel):
    """The encoder with linear(gelu(dense(LayerNorm(h + h_CLS)))), under Microsoft's names
    (2111.09543, public code), and two labels a token: `original`, whose logit is 0, and
    `replaced`."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        width = config.hidden_size
        self.deberta = DebertaV2Model(config)
        layers = {
            "LayerNorm": nn.LayerNorm(width, eps=config.layer_norm_eps),
            "dense": nn.Linear(width, width),
            "classifier": nn.Linear(width, 1),
        }
        self.mask_predictions = nn.ModuleDict(layers)
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> TokenClassifierOutput:
        """[B, L] and [B, L], padded on either side."""
        states_BLD = self.deberta(input_ids, attention_mask=attention_mask).last_hidden_state
        first_B = attention_mask.long().argmax(1)
        at_B1D = first_B[:, None, None].expand(-1, 1, states_BLD.shape[-1])
        cls_B1D = states_BLD.gather(1, at_B1D)
        head = self.mask_predictions
        dense_BLD = gelu(head["dense"](head["LayerNorm"](states_BLD + cls_B1D)))
        logits_BL = head["classifier"](dense_BLD).squeeze(-1)
        both_BLC: Any = torch.stack([torch.zeros_like(logits_BL), logits_BL], -1)
        return TokenClassifierOutput(logits=both_BLC)


class DecodedStates(DebertaV2Model):
    """The library's encoder, whose last layer runs twice over the states below it, first with these
    and the table of absolute positions as queries, then with the result (2006.03654 section 3.2,
    public code)."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        embeddings: Any = self.embeddings
        embeddings.position_embeddings = nn.Embedding(
            config.max_position_embeddings, config.hidden_size
        )
        self.post_init()

    def forward(  # type: ignore[override]
        self, input_ids: Tensor, attention_mask: Tensor, **how: Any
    ) -> BaseModelOutput:
        """[B, L] and [B, L], padded on either side."""
        encoder: Any = self.encoder
        positions: Any = self.embeddings.position_embeddings
        how |= {"output_hidden_states": True, "return_dict": True}
        usual: Any = super().forward(input_ids, attention_mask, **how)
        below_BLD = usual.hidden_states[-2]
        pos_BL = (attention_mask.long().cumsum(1) - 1).clamp(min=0)
        query_BLD = below_BLD + positions(pos_BL)
        for _ in range(DECODER_RUNS):
            query_BLD, *_ = encoder.layer[-1](
                below_BLD,
                encoder.get_attention_mask(attention_mask),
                query_states=query_BLD,
                relative_pos=encoder.get_rel_pos(below_BLD),
                rel_embeddings=encoder.get_rel_embedding(),
            )
        return BaseModelOutput(last_hidden_state=query_BLD)


class DebertaV2Decoded(DebertaV2ForMaskedLM):
    """The library's class on these states. Its head has the form of `legacy: false`, whatever the
    configuration says."""

    def __init__(self, config: Any) -> None:
        config.legacy = False
        super().__init__(config)
        self.deberta = DecodedStates(config)
        self.post_init()
