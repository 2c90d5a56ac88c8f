"""The encoder of DeBERTaV3: post-norm blocks whose attention compares content and distance apart,
with one table of distances for all blocks. Also with what Hugging Face's library has no class for:
DeBERTaV3's own head that detects, and DeBERTa's mask decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import nn

from ..model.attention import Direction
from ..model.blocks import DisentangledBlock
from ..model.embeddings import Shape, WordEmbeddings, Words, own_tables
from ..model.encoder import Contexts, Encoder
from ..model.heads import ClsBinaryHead, DecodedLMHead, Head, HeadKind, LinearHead
from ..model.init import (
    BERT_STD,
    TOKEN_SCALE,
    init_local_relative,
    init_relative,
    init_scaled_outputs,
)
from ..model.relative import RelativeContexts
from ..values import Count, SpecialIds
from .architecture import (
    Architecture,
    InitialValues,
    KeyRow,
    KeyTable,
    TwoLabels,
    Usage,
    labelled,
    rows_of_blocks,
    rows_of_layers,
    rows_of_lm_head,
    rows_of_weights,
)


@dataclass(frozen=True, kw_only=True)
class DebertaShape(Shape):
    """Its sizes, and the number that its attention needs. It has no segments, and its embeddings
    are as wide as its blocks."""

    type_vocab_size: Count = 1
    layer_norm_eps: float = 1e-7
    position_buckets: Count
    """Buckets of the distances on either side of a token."""

    @property
    def telling_length(self) -> int:
        """Long enough for some distances to share a bucket."""
        return max(super().telling_length, self.position_buckets + 3)


POSITIONS = "deberta.embeddings.position_embeddings"
"""The table of absolute positions that a mask decoder reads, in Microsoft's language models."""
UNREAD = {
    f"{POSITIONS}.weight": "the table of a mask decoder; with --mask-decoder true the run has one"
}
ENCODER = "DebertaV2Model"
NUMBERS = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    *("intermediate_size", "max_position_embeddings", "layer_norm_eps"),
)
# Written into every configuration, because one that says nothing means otherwise.
FIXED = {
    "hidden_act": "gelu",
    "relative_attention": True,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
    "type_vocab_size": 0,
}
BOTH_TERMS = ["c2p", "p2c"]


def encoder_rows(shape: Shape) -> tuple[KeyRow, ...]:
    tables = {
        "encoder.embeddings.words": "deberta.embeddings.word_embeddings",
        "encoder.contexts.table": "deberta.encoder.rel_embeddings",
    }
    norms = {
        "encoder.embeddings.norm": "deberta.embeddings.LayerNorm",
        "encoder.contexts.norm": "deberta.encoder.LayerNorm",
    }
    blocks = rows_of_blocks(shape, "deberta", attention="{}_proj")
    return (*rows_of_weights(tables), *rows_of_layers(norms), *blocks)


class Deberta(TwoLabels):
    """DeBERTaV3's encoder (2111.09543; the attention of 2006.03654, with buckets)."""

    shape_type = DebertaShape
    config_class = "DebertaV2Config"
    classes: ClassVar = {
        "token": "DebertaV2ForMaskedLM",
        "binary": "DebertaV2ForTokenClassification",
    }
    fixed: ClassVar = FIXED | {"conv_kernel_size": 0}
    unsaid: ClassVar = {"share_att_key": False, "norm_rel_ebd": "none"}
    noted = ("position_buckets",)
    input_names = ("input_ids", "attention_mask")
    counts_padding = False

    # ---------------------------------------------------------------- the network

    def embeddings(
        self, shape: Shape, *, dropout: float, words: Words | None = None
    ) -> WordEmbeddings:
        return WordEmbeddings(shape, dropout=dropout, words=words, bias=True)

    def contexts(
        self, shape: DebertaShape, *, direction: Direction, dropout: float, lower: Encoder | None
    ) -> Contexts:
        """Blocks that two encoders share read one table."""
        if lower is not None:
            return lower.contexts
        return RelativeContexts(
            width=shape.hidden_size,
            buckets=shape.position_buckets,
            longest=shape.max_position_embeddings,
            eps=shape.layer_norm_eps,
            direction=direction,
            dropout=dropout,
        )

    def block(self, shape: Shape, n: int, dropout: float) -> DisentangledBlock:
        return DisentangledBlock(shape, dropout=dropout)

    def binary_head(self, shape: Shape) -> Head:
        """One row: the library's class has nothing else."""
        return LinearHead(shape.hidden_size)

    def rtd_head(self, shape: Shape, form: str) -> Head:
        return ClsBinaryHead(shape) if form == "v3" else super().rtd_head(shape, form)

    def masked_lm_head(self, shape: Shape, words: Words) -> Head:
        decoder = self.options["mask_decoder"]
        return DecodedLMHead(shape, words) if decoder else self.lm_head(shape, words)

    def for_head(self, head: Head) -> Architecture:
        beyond = isinstance(head, ClsBinaryHead | DecodedLMHead)
        return DebertaOwnHeads(self.options) if beyond else Deberta(self.options)

    def for_folder(self, config: Any) -> Architecture:
        """Microsoft's folders name no class, and ours with its head name that of the encoder."""
        detects = ENCODER in (config.architectures or [ENCODER])
        decodes = getattr(config, "mask_decoder", None) is True
        return DebertaOwnHeads(self.options) if detects or decodes else self

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
        values.fill(tables, scale=scale)

    # ---------------------------------------------------------------- in Hugging Face's library

    def config_values(
        self, shape: DebertaShape, special: SpecialIds, dropout: float, attention_dropout: float
    ) -> dict[str, Any]:
        return {
            **{name: getattr(shape, name) for name in NUMBERS},
            **FIXED,
            "pos_att_type": list(BOTH_TERMS),
            "legacy": False,
            "hidden_dropout_prob": dropout,
            "attention_probs_dropout_prob": attention_dropout,
            "pad_token_id": special.pad,
            "bos_token_id": special.cls,
            "eos_token_id": special.sep,
        }

    def shape_of(self, config: Any) -> Shape:
        """If there are no buckets, every distance has a row of its own, which we cannot compute."""
        buckets = getattr(config, "position_buckets", -1)
        return DebertaShape(
            **{name: getattr(config, name) for name in NUMBERS},
            embedding_size=config.hidden_size,
            position_buckets=buckets if buckets > 0 else config.max_position_embeddings,
        )

    def odd(self, config: Any, **more: Any) -> list[str]:
        width = config.hidden_size
        more |= {"attention_head_size": width // config.num_attention_heads}
        found = super().odd(config, embedding_size=width, **more)
        terms = config.pos_att_type or []
        if sorted(terms) != BOTH_TERMS:
            found.append(f"pos_att_type {'|'.join(map(str, terms)) or None}")
        buckets = getattr(config, "position_buckets", -1)
        if not isinstance(buckets, int) or buckets < 2 or buckets % 2:
            found.append(f"position_buckets {buckets!r}")
        longest = config.max_relative_positions
        if longest >= 1 and longest != config.max_position_embeddings:
            found.append(f"max_relative_positions {longest}")
        return found

    def starting_class(self, name: str) -> Any:
        """Of a language model, the class with a mask decoder."""
        own = DebertaOwnHeads(self.options) if name == self.classes["token"] else self
        return own.network_class(name)

    def as_read(self, config: Any) -> Any:
        """The published folders hold the language model's head under the names of `legacy: false`,
        but do not say so."""
        config.legacy = False
        return config

    def has_head(self, config: Any, kind: HeadKind) -> bool:
        """The class of the head that detects serves any tags, and others share its names."""
        if kind == "token":
            return True
        return self.classes[kind] in (config.architectures or ()) and labelled(config)

    def table(self, shape: Shape, kind: HeadKind, *, model_type: str | None = None) -> KeyTable:
        if kind == "binary":
            head = rows_of_layers({"head.out": "classifier"}, labels=True)
            return KeyTable(self.classes[kind], encoder_rows(shape), head)
        theirs = "lm_predictions.lm_head"
        head = rows_of_lm_head(f"{theirs}.dense", f"{theirs}.LayerNorm", f"{theirs}.bias")
        return KeyTable(self.classes[kind], encoder_rows(shape), head, UNREAD)


# ----------------------------------------------------- what the library has no class for


class DebertaOwnHeads(Deberta):
    """DeBERTa's encoder, read and exported with what the library has no class for.

    DeBERTaV3's own head that detects: to the library, its folder is one of an encoder, with weights
    that it ignores. The mask decoder of a masked language model: the library's class reads every
    weight of the folder but the table of positions, and computes other logits. Classes of ours
    compute those of the run.
    """

    classes: ClassVar = Deberta.classes | {"binary": ENCODER}
    own_classes: ClassVar = {
        "binary": "electrify.architectures.deberta_classes:DebertaV2Detector",
        "token": "electrify.architectures.deberta_classes:DebertaV2Decoded",
    }
    usage: ClassVar = {
        "binary": Usage(
            code="",
            note="transformers has no class with this head, which is DeBERTaV3's own: it reads the "
            "encoder, and reports the weights `mask_predictions` as unexpected. `electrify detect "
            "FOLDER TEXT` computes the head.",
        ),
        "token": Usage(
            note="This masked language model was trained through DeBERTa's mask decoder, which "
            "transformers does not have: its class ignores the table "
            f"`{POSITIONS}`, so its logits are not those of the run. `electrify evaluate FOLDER` "
            "computes with the decoder, and so does a run with `--mask-decoder true` that starts "
            "from this folder."
        ),
    }

    def has_head(self, config: Any, kind: HeadKind) -> bool:
        """The names of the head that detects are its own: a folder without it lacks them."""
        return True

    def hf_config(self, shape: Shape, kind: HeadKind, **how: Any) -> Any:
        """It says that there is a decoder; the library keeps that and does not read it."""
        config = super().hf_config(shape, kind, **how)
        if kind == "token":
            config.mask_decoder = True
        return config

    def table(self, shape: Shape, kind: HeadKind, *, model_type: str | None = None) -> KeyTable:
        if kind == "token":
            known = super().table(shape, kind)
            head = (*known.head, *rows_of_weights({"head.positions": POSITIONS}))
            return replace(known, head=head, unread={})
        names = {"norm": "LayerNorm", "dense": "dense", "out": "classifier"}
        head = {f"head.{ours}": f"mask_predictions.{theirs}" for ours, theirs in names.items()}
        return KeyTable(self.classes[kind], encoder_rows(shape), rows_of_layers(head))
