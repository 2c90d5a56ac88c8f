"""DeBERTa's masked language model with its mask decoder, as a class in the manner of Hugging Face's
library, which has none: it reads the folders of Microsoft's generators, and ours.

Shape suffixes: B sequences, L length, D hidden width.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import DebertaV2ForMaskedLM, DebertaV2Model
from transformers.modeling_outputs import BaseModelOutput

from ..model.mask_decoder import TIMES


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
        for _ in range(TIMES):
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
