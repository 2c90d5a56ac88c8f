"""The encoder of ModernBERT: pre-norm blocks without biases, gated feed-forward layers, rotary
positions, and attention that alternates between the whole sequence and a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import nn

from ..errors import UserError
from ..model.attention import ContextsByKind, Direction, Kind, Reach
from ..model.blocks import GatedBlock
from ..model.embeddings import WordEmbeddings, Words, own_tables
from ..model.encoder import Encoder
from ..model.heads import Head, HeadKind, LMHead, NormedBinaryHead, SelectionHead
from ..model.init import CONSTANT, init_gated, init_local_gated, init_local_words, init_words
from ..model.positions import Rotary
from ..model.shape import Shape
from ..special import SpecialIds
from ..values import Count
from .architecture import InitialValues, TwoLabels
from .keys import (
    KeyTable,
    Row,
    label,
    labelled,
)


@dataclass(frozen=True, kw_only=True)
class ModernBertShape(Shape):
    """Its sizes, and the numbers that its attention needs. It has no segments, and its embeddings
    are as wide as its blocks."""

    type_vocab_size: Count = 1
    layer_norm_eps: float = 1e-5
    local_attention: Count
    """Tokens that a local block sees, half of them on either side."""
    global_attn_every_n_layers: Count
    global_rope_theta: float
    local_rope_theta: float

    @property
    def telling_length(self) -> int:
        """Long enough for tokens beyond either edge of the window."""
        return max(super().telling_length, self.local_attention + 3)

    @property
    def kinds(self) -> list[Kind]:
        """The kind of each block: the lowest one, and every n-th above it, is global."""
        every = self.global_attn_every_n_layers
        return ["local" if n % every else "global" for n in range(self.num_hidden_layers)]

    @property
    def reaches(self) -> dict[Kind, Reach]:
        """What the attention of each kind of block knows of positions."""
        known = {
            "global": Reach(rotary=Rotary(self.global_rope_theta, self.head_width)),
            "local": Reach(
                rotary=Rotary(self.local_rope_theta, self.head_width),
                window=self.local_attention // 2,
            ),
        }
        return {kind: known[kind] for kind in dict.fromkeys(self.kinds)}


def one(theirs: str, ours: str) -> Row:
    """The row for the weight of a layer without bias."""
    return Row(f"{ours}.weight", (f"{theirs}.weight",))


def encoder_rows(shape: Shape) -> tuple[Row, ...]:
    rows = [
        one("model.embeddings.tok_embeddings", "encoder.embeddings.words"),
        one("model.embeddings.norm", "encoder.embeddings.norm"),
        one("model.final_norm", "encoder.norm"),
    ]
    for n in range(shape.num_hidden_layers):
        theirs, ours = f"model.layers.{n}", f"encoder.blocks.{n}"
        if n:
            rows.append(one(f"{theirs}.attn_norm", f"{ours}.norm1"))
        rows += [
            one(f"{theirs}.attn.Wqkv", f"{ours}.qkv"),
            one(f"{theirs}.attn.Wo", f"{ours}.out"),
            one(f"{theirs}.mlp_norm", f"{ours}.norm2"),
            one(f"{theirs}.mlp.Wi", f"{ours}.up"),
            one(f"{theirs}.mlp.Wo", f"{ours}.down"),
        ]
    return tuple(rows)


HF_NUMBERS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "local_attention",
)
# The library's names for the two kinds of attention, in its configuration.
LAYER_TYPES: dict[Kind, str] = {"global": "full_attention", "local": "sliding_attention"}
# What the library can compute and our encoder cannot: a configuration says otherwise.
FIXED = {
    "hidden_activation": "gelu",
    "attention_bias": False,
    "mlp_bias": False,
    "norm_bias": False,
    "tie_word_embeddings": True,
}
FIXED_HEAD = {"classifier_activation": "gelu", "classifier_bias": False, "decoder_bias": True}


class ModernBert(TwoLabels):
    """ModernBERT's encoder (2412.13663, section 2.1), which is also that of Ettin and mmBERT."""

    name = "modernbert"
    shape_type = ModernBertShape
    model_type = "modernbert"
    classes: ClassVar = {
        "token": "ModernBertForMaskedLM",
        "binary": "ModernBertForTokenClassification",
    }
    head_prefixes: ClassVar = {"token": "decoder.", "binary": "classifier."}
    config_keys = HF_NUMBERS
    input_names = ("input_ids", "attention_mask")

    # ---------------------------------------------------------------- the network

    def embeddings(
        self, shape: Shape, *, dropout: float, words: Words | None = None
    ) -> WordEmbeddings:
        return WordEmbeddings(shape, dropout=dropout, words=words)

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
        assert isinstance(shape, ModernBertShape)
        windows = {kind: reach.window for kind, reach in shape.reaches.items()}
        own = [
            GatedBlock(shape, dropout=dropout, window=windows[kind], normed=n > 0)
            for n, kind in enumerate(shape.kinds)
            if n >= tied
        ]
        return Encoder(
            shape,
            embeddings=embeddings,
            blocks=[*(lower.blocks[:tied] if lower is not None else ()), *own],
            contexts=ContextsByKind(shape.reaches, direction=direction, dropout=attention_dropout),
            norm=nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps, bias=False),
            direction=direction,
        )

    def shapes_by_rows(self, shape: Shape) -> dict[int, Shape]:
        """Another rotary base for shorter rows (2412.13663, section 2.2)."""
        thetas = self.options["global_rope_theta_schedule"].items()
        return {length: replace(shape, global_rope_theta=theta) for length, theta in thetas}

    def extended(self, shape: Shape) -> Shape:
        """Longer rows and another rotary base, as ModernBERT's own context extension has them
        (2412.13663, section 2.2)."""
        theta = self.options["extend_rope_theta"]
        longest = max(shape.max_position_embeddings, self.options["extend_positions"] or 0)
        shape = replace(shape, max_position_embeddings=longest)
        return shape if theta is None else replace(shape, global_rope_theta=theta)

    def lm_head(self, shape: Shape, words: Words) -> Head:
        return LMHead(shape, words, bias=False)

    def selection_head(self, shape: Shape, words: Words, candidates: int) -> SelectionHead:
        return SelectionHead(shape, words, candidates=candidates, bias=False)

    def binary_head(self, shape: Shape) -> Head:
        return NormedBinaryHead(shape)

    def energy_head(self, shape: Shape) -> Head:
        """The library has no linear head for it: every one normalises the states once more."""
        return NormedBinaryHead(shape)

    def initialise(
        self,
        objective: nn.Module,
        encoders: Sequence[Encoder],
        values: InitialValues,
        rng: torch.Generator,
    ) -> None:
        # Outputs start smaller the more blocks there are, whether or not that is asked for.
        init_gated(objective, encoders, rng)
        # A shared word table is scaled and filled only once.
        tables = own_tables(e.embeddings.words for e in encoders)
        local = values.init == "local"
        if local:
            for table in tables:
                init_local_words(table, cls=values.cls)
            init_local_gated(objective, encoders, rng, amplitude=values.local_amplitude)
        if values.vectors:
            width = CONSTANT if local else 0
            for table in tables:
                vectors_VK = values.vectors(table.embedding_dim - width)
                init_words(table, vectors_VK, local_width=width)

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
        from transformers import ModernBertConfig

        assert isinstance(shape, ModernBertShape)
        ropes: Any = {
            LAYER_TYPES["global"]: _rope(shape.global_rope_theta),
            LAYER_TYPES["local"]: _rope(shape.local_rope_theta),
        }
        config = ModernBertConfig(
            **{name: getattr(shape, name) for name in HF_NUMBERS},
            **FIXED,
            **FIXED_HEAD,
            norm_eps=shape.layer_norm_eps,
            layer_types=[LAYER_TYPES[one] for one in shape.kinds],
            rope_parameters=ropes,
            embedding_dropout=dropout,
            mlp_dropout=dropout,
            attention_dropout=attention_dropout,
            pad_token_id=special.pad,
            cls_token_id=special.cls,
            sep_token_id=special.sep,
            bos_token_id=special.cls,
            eos_token_id=special.sep,
        )
        # Read back by `shape_of`, and by earlier versions of the library.
        for name in ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"):
            setattr(config, name, getattr(shape, name))
        if kind == "binary":
            label(config)
        config.architectures = [self.classes[kind]]
        config.dtype = "float32"
        return config

    def shape_of(self, config: Any) -> Shape:
        numbers = {name: getattr(config, name) for name in HF_NUMBERS}
        numbers["local_attention"] = config.local_attention // 2 * 2
        ropes = config.rope_parameters
        return ModernBertShape(
            **numbers,
            embedding_size=config.hidden_size,
            layer_norm_eps=config.norm_eps,
            global_attn_every_n_layers=_every(config),
            global_rope_theta=float(ropes[LAYER_TYPES["global"]]["rope_theta"]),
            local_rope_theta=float(ropes[LAYER_TYPES["local"]]["rope_theta"]),
        )

    def must_compute_the_same(self, start: str, config: Any) -> None:
        odd = [
            f"{name} {getattr(config, name, fixed)}"
            for name, fixed in FIXED.items()
            if getattr(config, name, fixed) != fixed
        ]
        for kind in LAYER_TYPES.values():
            rope = config.rope_parameters[kind].get("rope_type", "default")
            odd += [f"rope_type {rope}"] if rope != "default" else []
        if getattr(config, "is_decoder", False):
            odd.append("is_decoder True")
        kinds = [
            LAYER_TYPES["local" if n % _every(config) else "global"]
            for n in range(config.num_hidden_layers)
        ]
        if list(config.layer_types) != kinds:
            odd.append("layer_types that do not repeat from the lowest layer on")
        if odd:
            raise UserError(f"{start} computes what our encoder does not: {', '.join(odd)}")

    def has_head(self, config: Any, kind: HeadKind) -> bool:
        """The classes share names of weights: the head of one would be read, in part, as that of
        the other."""
        if self.classes[kind] not in (config.architectures or ()):
            return False
        if any(getattr(config, name, fixed) != fixed for name, fixed in FIXED_HEAD.items()):
            return False
        return kind == "token" or labelled(config)

    def table(self, shape: Shape, kind: HeadKind, *, model_type: str | None = None) -> KeyTable:
        head = [one("head.dense", "head.dense"), one("head.norm", "head.norm")]
        if kind == "binary":
            head += [one("classifier", "head.out"), Row("head.out.bias", ("classifier.bias",))]
            return KeyTable(self.classes[kind], encoder_rows(shape), tuple(head))
        head.append(Row("head.bias_V", ("decoder.bias",)))
        tied = {"decoder.weight": "model.embeddings.tok_embeddings.weight"}
        return KeyTable(self.classes[kind], encoder_rows(shape), tuple(head), tied)


def _rope(theta: float) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": theta}


def _every(config: Any) -> int:
    """One layer in how many has global attention, beginning with the lowest: as the configuration
    says, or judged by its first layers."""
    said = getattr(config, "global_attn_every_n_layers", None)
    if isinstance(said, int) and said > 0:
        return said
    above = list(config.layer_types)[1:]
    full = LAYER_TYPES["global"]
    return 1 + above.index(full) if full in above else max(1, config.num_hidden_layers)
