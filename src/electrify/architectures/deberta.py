"""The encoder of DeBERTaV3: post-norm blocks whose attention compares content and distance apart,
with one table of distances for all blocks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..model.attention import Direction
from ..model.blocks import DisentangledBlock
from ..model.embeddings import WordEmbeddings, Words, own_tables
from ..model.encoder import Encoder
from ..model.heads import ClsBinaryHead, Head, HeadKind, LinearHead
from ..model.init import BERT_STD, TOKEN_SCALE, init_scaled_outputs, init_words
from ..model.init_relative import contexts_of, init_local_relative, init_relative
from ..model.mask_decoder import DecodedLMHead
from ..model.relative import RelativeContexts
from ..model.shape import Shape
from ..special import SpecialIds
from . import labels
from .architecture import Architecture, InitialValues
from .deberta_keys import POSITIONS, encoder_rows, lm_head_rows, two_label_rows
from .deberta_shape import DebertaShape
from .keys import KeyTable

SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
)
# What the library can compute and our encoder cannot: a configuration says otherwise, or says
# nothing and means otherwise.
FIXED = {
    "hidden_act": "gelu",
    "relative_attention": True,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
    "type_vocab_size": 0,
}
# The same, where a configuration that says nothing means what ours computes.
UNSAID = {"conv_kernel_size": 0, "is_decoder": False, "tie_word_embeddings": True}
BOTH_TERMS = ["c2p", "p2c"]


class Deberta(Architecture):
    """DeBERTaV3's encoder (2111.09543; the attention of 2006.03654, with buckets)."""

    name = "deberta"
    shape_type = DebertaShape
    model_type = "deberta-v2"
    classes: ClassVar = {
        "token": "DebertaV2ForMaskedLM",
        "binary": "DebertaV2ForTokenClassification",
    }
    head_prefixes: ClassVar = {"token": "lm_predictions.", "binary": "classifier."}
    config_keys = SIZES
    input_names = ("input_ids", "attention_mask")
    counts_padding = False
    binary_code = labels.CODE
    binary_tuning = labels.TUNING

    # ---------------------------------------------------------------- the network

    def embeddings(
        self, shape: Shape, *, dropout: float, words: Words | None = None
    ) -> WordEmbeddings:
        return WordEmbeddings(shape, dropout=dropout, words=words, bias=True)

    def encoder(
        self,
        shape: Shape,
        embeddings: nn.Module,
        *,
        dropout: float,
        attention_dropout: float,
        direction: Direction = "both",
        lower: Encoder | None = None,
        tied: int = 0,
    ) -> Encoder:
        assert isinstance(shape, DebertaShape)
        contexts = RelativeContexts(
            width=shape.hidden_size,
            buckets=shape.position_buckets,
            longest=shape.max_position_embeddings,
            eps=shape.layer_norm_eps,
            direction=direction,
            dropout=attention_dropout,
        )
        own = range(shape.num_hidden_layers - tied)
        return Encoder(
            shape,
            embeddings=embeddings,
            blocks=[
                *(lower.blocks[:tied] if lower is not None else ()),
                *(DisentangledBlock(shape, dropout=dropout) for _ in own),
            ],
            # Blocks that two encoders share read one table.
            contexts=contexts if lower is None else contexts_of(lower),
            direction=direction,
        )

    def binary_head(self, shape: Shape) -> Head:
        """One row: the library's class has nothing else."""
        return LinearHead(shape.hidden_size)

    def rtd_head(self, shape: Shape, form: str) -> Head:
        return ClsBinaryHead(shape) if form == "v3" else super().rtd_head(shape, form)

    def masked_lm_head(self, shape: Shape, words: Words) -> Head:
        decoder = self.options["mask_decoder"]
        return DecodedLMHead(shape, words) if decoder else self.lm_head(shape, words)

    def for_config(self, config: Mapping[str, Any]) -> Architecture:
        from .deberta_variants import DebertaDecoder  # which is built on this class

        return DebertaDecoder(self.options) if config.get("mask_decoder") is True else self

    def for_head(self, head: Head) -> Architecture:
        from .deberta_variants import DebertaDecoder, DebertaV3

        match head:
            case ClsBinaryHead():
                return DebertaV3(self.options)
            case DecodedLMHead():
                return DebertaDecoder(self.options)
            case _:
                return Deberta(self.options)

    def for_classes(self, named: Collection[str]) -> Architecture:
        """Microsoft's folders name no class, and ours with its head name that of the encoder."""
        from .deberta_variants import DebertaV3

        bare = DebertaV3.classes["binary"]
        return DebertaV3(self.options) if not named or bare in named else self

    def initialise(
        self,
        objective: nn.Module,
        encoders: Sequence[Encoder],
        values: InitialValues,
        rng: torch.Generator,
    ) -> None:
        init_relative(objective, rng)
        # A shared word table is scaled and filled only once.
        tables = own_tables(e.embeddings.words for e in encoders)
        scale = 1.0
        if values.init == "local":
            scale = TOKEN_SCALE / BERT_STD
            amplitude = values.local_amplitude
            init_local_relative(tables, encoders, rng, amplitude=amplitude)
        if values.scaled:
            init_scaled_outputs(encoders)
        if values.vectors:
            for table in tables:
                init_words(table, scale * values.vectors(table.embedding_dim))

    # ---------------------------------------------------------------- in Hugging Face's library

    def hf_config(
        self,
        shape: Shape,
        kind: HeadKind,
        *,
        special: SpecialIds,
        dropout: float,
        attention_dropout: float,
    ) -> Any:
        from transformers import DebertaV2Config

        assert isinstance(shape, DebertaShape)
        config: Any = DebertaV2Config(
            **{name: getattr(shape, name) for name in SIZES},
            layer_norm_eps=shape.layer_norm_eps,
            **FIXED,
            pos_att_type=list(BOTH_TERMS),
            legacy=False,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=attention_dropout,
            pad_token_id=special.pad,
            bos_token_id=special.cls,
            eos_token_id=special.sep,
        )
        config.position_buckets = shape.position_buckets
        if kind == "binary":
            labels.label(config)
        config.architectures = [self.classes[kind]]
        config.dtype = "float32"
        return config

    def shape_of(self, config: Any) -> Shape:
        """If there are no buckets, every distance has a row of its own, which we cannot compute."""
        buckets = getattr(config, "position_buckets", -1)
        return DebertaShape(
            **{name: getattr(config, name) for name in SIZES},
            embedding_size=config.hidden_size,
            layer_norm_eps=config.layer_norm_eps,
            position_buckets=buckets if buckets > 0 else config.max_position_embeddings,
        )

    def must_compute_the_same(self, start: str, config: Any) -> None:
        odd = [
            f"{name} {getattr(config, name, None)}"
            for name, fixed in FIXED.items()
            if getattr(config, name, None) != fixed
        ]
        width = config.hidden_size
        ours = UNSAID | {
            "embedding_size": width,
            "attention_head_size": width // config.num_attention_heads,
        }
        for name, fixed in ours.items():
            said = getattr(config, name, fixed)
            odd += [f"{name} {said}"] if said != fixed else []
        terms = config.pos_att_type or []
        if sorted(terms) != BOTH_TERMS:
            odd.append(f"pos_att_type {'|'.join(map(str, terms)) or None}")
        buckets = getattr(config, "position_buckets", -1)
        if not isinstance(buckets, int) or buckets < 2 or buckets % 2:
            odd.append(f"position_buckets {buckets!r}")
        longest = config.max_relative_positions
        if longest >= 1 and longest != config.max_position_embeddings:
            odd.append(f"max_relative_positions {longest}")
        if odd:
            raise UserError(f"{start} computes what our encoder does not: {', '.join(odd)}")

    def starting_class(self, name: str) -> Any:
        if name != self.classes["token"]:
            return self.network_class(name)
        from .deberta_decoded import DebertaV2Decoded

        return DebertaV2Decoded

    def left_out(self, kind: HeadKind, missing: Collection[str]) -> str | None:
        """The table of positions that Microsoft's language models read in a mask decoder."""
        if kind != "token" or POSITIONS in missing:
            return None
        return (
            f"left out {POSITIONS}, the table of a mask decoder; with --mask-decoder true the run "
            "has one"
        )

    def as_read(self, config: Any) -> Any:
        """The published folders hold the language model's head under the names of `legacy: false`,
        but do not say so."""
        config.legacy = False
        return config

    def has_head(self, config: Any, kind: HeadKind) -> bool:
        """The class of the head that detects serves any tags, and others share its names."""
        if kind == "token":
            return True
        return self.classes[kind] in (config.architectures or ()) and labels.labelled(config)

    def table(self, shape: Shape, kind: HeadKind, *, model_type: str | None = None) -> KeyTable:
        head = two_label_rows() if kind == "binary" else lm_head_rows()
        return KeyTable(self.classes[kind], encoder_rows(shape), head)

    def head_tensors(self, head: Head) -> dict[str, Tensor]:
        """A head that detects has two labels there."""
        named = head.tensors()
        return named if head.kind == "token" else labels.two_rows(named)

    def fill_head(self, head: Head, named: Mapping[str, Tensor]) -> list[str]:
        return super().fill_head(head, named if head.kind == "token" else labels.one_row(named))

    def binary_logits(self, output: Any) -> Tensor:
        return labels.logits_of(output)
