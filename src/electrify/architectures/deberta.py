"""The encoder of DeBERTaV3: post-norm blocks whose attention compares content and distance apart,
with one table of distances for all blocks. Also with what Hugging Face's library has no class for:
DeBERTaV3's own head that detects, and DeBERTa's mask decoder."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..model.attention import Direction
from ..model.blocks import DisentangledBlock
from ..model.embeddings import WordEmbeddings, Words, own_tables
from ..model.encoder import Encoder
from ..model.heads import ClsBinaryHead, DecodedLMHead, Head, HeadKind, LinearHead
from ..model.init import (
    BERT_STD,
    TOKEN_SCALE,
    contexts_of,
    init_local_relative,
    init_relative,
    init_scaled_outputs,
    init_words,
)
from ..model.relative import RelativeContexts
from ..model.shape import Shape
from ..special import SpecialIds
from ..values import Count
from .architecture import Architecture, InitialValues, TwoLabels
from .keys import (
    KeyTable,
    Row,
    block_layers,
    label,
    labelled,
    layer,
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


OWN_HEAD = "mask_predictions."
"""How the names of the weights of DeBERTaV3's own head that detects begin."""
POSITIONS = "deberta.embeddings.position_embeddings.weight"
"""The table of absolute positions that a mask decoder reads."""


def encoder_rows(shape: Shape) -> tuple[Row, ...]:
    rows = [
        Row("encoder.embeddings.words.weight", ("deberta.embeddings.word_embeddings.weight",)),
        *layer("deberta.embeddings.LayerNorm", "encoder.embeddings.norm"),
        Row("encoder.contexts.table.weight", ("deberta.encoder.rel_embeddings.weight",)),
        *layer("deberta.encoder.LayerNorm", "encoder.contexts.norm"),
    ]
    return (*rows, *block_layers(shape, "deberta", attention="{}_proj"))


def lm_head_rows() -> tuple[Row, ...]:
    ours = "lm_predictions.lm_head"
    return (
        *layer(f"{ours}.dense", "head.dense"),
        *layer(f"{ours}.LayerNorm", "head.norm"),
        Row("head.bias_V", (f"{ours}.bias",)),
    )


def decoder_rows() -> tuple[Row, ...]:
    """The rows of the mask decoder, under the name in Microsoft's folders."""
    return (Row("head.positions.weight", (POSITIONS,)),)


def two_label_rows() -> tuple[Row, ...]:
    """The rows of the library's class for tags."""
    return tuple(layer("classifier", "head.out"))


def own_head_rows() -> tuple[Row, ...]:
    """The rows of DeBERTaV3's head that detects, under the names in Microsoft's folders."""
    return (
        *layer(f"{OWN_HEAD}LayerNorm", "head.norm"),
        *layer(f"{OWN_HEAD}dense", "head.dense"),
        *layer(f"{OWN_HEAD}classifier", "head.out"),
    )


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


class Deberta(TwoLabels):
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
        return DebertaDecoder(self.options) if config.get("mask_decoder") is True else self

    def for_head(self, head: Head) -> Architecture:
        match head:
            case ClsBinaryHead():
                return DebertaV3(self.options)
            case DecodedLMHead():
                return DebertaDecoder(self.options)
            case _:
                return Deberta(self.options)

    def for_classes(self, named: Collection[str]) -> Architecture:
        """Microsoft's folders name no class, and ours with its head name that of the encoder."""
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
            label(config)
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
        from .deberta_classes import DebertaV2Decoded

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
        return self.classes[kind] in (config.architectures or ()) and labelled(config)

    def table(self, shape: Shape, kind: HeadKind, *, model_type: str | None = None) -> KeyTable:
        head = two_label_rows() if kind == "binary" else lm_head_rows()
        return KeyTable(self.classes[kind], encoder_rows(shape), head)


# ----------------------------------------------------- what the library has no class for

# For the model cards of such folders.
NOTE = (
    "transformers has no class with this head, which is DeBERTaV3's own: it reads the encoder, and "
    "reports the weights `mask_predictions` as unexpected. The code above computes the head from "
    "the encoder's states; so does `electrify detect FOLDER TEXT`."
)
READING = (
    "from safetensors.torch import load_file",
    "from torch.nn.functional import gelu, layer_norm, linear",
    "from transformers import AutoModel, AutoTokenizer",
    "",
    'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
    'model = AutoModel.from_pretrained("FOLDER")',
    'weights = load_file("FOLDER/model.safetensors")',
    "",
    "",
    "def layer(name):",
    '    return [weights[f"mask_predictions.{name}.{part}"] for part in ("weight", "bias")]',
    "",
    "",
    "def replaced(states):  # of padded texts: padded on the right",
    "    x = states + states[:, :1]",
    '    x = layer_norm(x, x.shape[-1:], *layer("LayerNorm"), model.config.layer_norm_eps)',
    '    return linear(gelu(linear(x, *layer("dense"))), *layer("classifier")).squeeze(-1)',
    "",
    "",
)
"""The encoder, and a function from its states to logits."""

DECODER_NOTE = (
    "This masked language model was trained through DeBERTa's mask decoder, which transformers "
    "does not have: its class ignores the table `deberta.embeddings.position_embeddings`, so its "
    "logits are not those of the run. `electrify evaluate FOLDER` computes with the decoder, and "
    "so does a run with `--mask-decoder true` that starts from this folder."
)


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
        from .deberta_classes import DebertaV2Detector

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
