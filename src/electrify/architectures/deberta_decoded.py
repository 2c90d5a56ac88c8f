"""DeBERTa's masked language model with its mask decoder, as a class in the manner of Hugging Face's
library, which has none: it reads the folders of Microsoft's generators, and ours.

Shape suffixes: B sequences, L length, D hidden width.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import DebertaV2ForMaskedLM
from transformers.modeling_outputs import MaskedLMOutput

TIMES = 2


class DebertaV2Decoded(DebertaV2ForMaskedLM):
    """The library's class, its head behind the decoder: the last layer runs twice over the states
    below it, first with these and the table of absolute positions as queries, then with the result
    (2006.03654 section 3.2, public code)."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        embeddings: Any = self.deberta.embeddings
        embeddings.position_embeddings = nn.Embedding(
            config.max_position_embeddings, config.hidden_size
        )
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> MaskedLMOutput:  # type: ignore[override]
        """[B, L] and [B, L], padded on either side."""
        deberta: Any = self.deberta
        encoder = deberta.encoder
        below_BLD = deberta(
            input_ids, attention_mask=attention_mask, output_hidden_states=True
        ).hidden_states[-2]
        pos_BL = (attention_mask.long().cumsum(1) - 1).clamp(min=0)
        query_BLD = below_BLD + deberta.embeddings.position_embeddings(pos_BL)
        for _ in range(TIMES):
            query_BLD, *_ = encoder.layer[-1](
                below_BLD,
                encoder.get_attention_mask(attention_mask),
                query_states=query_BLD,
                relative_pos=encoder.get_rel_pos(below_BLD),
                rel_embeddings=encoder.get_rel_embedding(),
            )
        words = deberta.embeddings.word_embeddings
        return MaskedLMOutput(logits=self.lm_predictions(query_BLD, words))
