"""DeBERTa's encoder with what Hugging Face's library has no class for: DeBERTaV3's own head that
detects, and DeBERTa's mask decoder."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from torch import Tensor

from ..model.embeddings import Words
from ..model.heads import ClsBinaryHead, Head, HeadKind
from ..model.mask_decoder import DecodedLMHead
from ..model.shape import Shape
from ..special import SpecialIds
from .architecture import Architecture
from .deberta import Deberta
from .deberta_card import DECODER_NOTE, NOTE, READING
from .deberta_keys import OWN_HEAD, decoder_rows, encoder_rows, own_head_rows
from .keys import KeyTable


class DebertaV3(Deberta):
    """DeBERTa's encoder, read and exported with DeBERTaV3's own head that detects. The library has
    no class with that head: to it, the folder is one of an encoder, with weights that it ignores.
    Ours gives the two labels, as the library's class for tags does."""

    classes: ClassVar = Deberta.classes | {"binary": "DebertaV2Model"}
    head_prefixes: ClassVar = Deberta.head_prefixes | {"binary": OWN_HEAD}
    binary_code = "replaced(model(**inputs).last_hidden_state)"
    binary_reading = READING
    binary_note = NOTE
    binary_tuning = ""

    def binary_head(self, shape: Shape) -> Head:
        return ClsBinaryHead(shape)

    def network_class(self, name: str) -> Any:
        if name != self.classes["binary"]:
            return super().network_class(name)
        from .deberta_detector import DebertaV2Detector

        return DebertaV2Detector

    def has_head(self, config: Any, kind: HeadKind) -> bool:
        """Its names are its own: a folder without it lacks them."""
        return True

    def table(self, shape: Shape, kind: HeadKind, *, model_type: str | None = None) -> KeyTable:
        if kind != "binary":
            return super().table(shape, kind, model_type=model_type)
        return KeyTable(self.classes[kind], encoder_rows(shape), own_head_rows())

    def head_tensors(self, head: Head) -> dict[str, Tensor]:
        return head.tensors()

    def fill_head(self, head: Head, named: Mapping[str, Tensor]) -> list[str]:
        return Architecture.fill_head(self, head, named)


class DebertaDecoder(Deberta):
    """DeBERTa's encoder, its masked language models with a mask decoder. The library has none: its
    class reads every weight of the folder but the table of positions, and computes other logits.
    A class of ours computes those of the run."""

    token_note = DECODER_NOTE

    def masked_lm_head(self, shape: Shape, words: Words) -> Head:
        return DecodedLMHead(shape, words)

    def network_class(self, name: str) -> Any:
        if name != self.classes["token"]:
            return super().network_class(name)
        return self.starting_class(name)

    def left_out(self, kind: HeadKind, missing: Collection[str]) -> str | None:
        return None

    def hf_config(
        self,
        shape: Shape,
        kind: HeadKind,
        *,
        special: SpecialIds,
        dropout: float,
        attention_dropout: float,
    ) -> Any:
        """It says that there is a decoder; the library keeps that and does not read it."""
        config = super().hf_config(
            shape, kind, special=special, dropout=dropout, attention_dropout=attention_dropout
        )
        if kind == "token":
            config.mask_decoder = True
        return config

    def table(self, shape: Shape, kind: HeadKind, *, model_type: str | None = None) -> KeyTable:
        known = super().table(shape, kind, model_type=model_type)
        if kind != "token":
            return known
        return KeyTable(known.name, known.encoder, (*known.head, *decoder_rows()))
