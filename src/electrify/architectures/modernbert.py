"""The encoder of ModernBERT: pre-norm blocks without biases, gated feed-forward layers, rotary
positions, and attention that alternates between the whole sequence and a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import nn

from ..model.attention import ContextsByKind, Direction, Kind, Reach, Rotary
from ..model.blocks import GatedBlock
from ..model.embeddings import Shape, WordEmbeddings, Words, own_tables
from ..model.encoder import Contexts, Encoder
from ..model.heads import Head, HeadKind, LMHead, NormedBinaryHead, SelectionHead
from ..model.init import CONSTANT, init_gated, init_local_gated, init_local_words
from ..values import Count, SpecialIds
from .architecture import (
    InitialValues,
    KeyRow,
    KeyTable,
    TwoLabels,
    labelled,
    rows_of_layers,
    rows_of_weights,
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


def encoder_rows(shape: Shape) -> tuple[KeyRow, ...]:
    names = {
        "encoder.embeddings.words": "model.embeddings.tok_embeddings",
        "encoder.embeddings.norm": "model.embeddings.norm",
        "encoder.norm": "model.final_norm",
    }
    for n in range(shape.num_hidden_layers):
        theirs, ours = f"model.layers.{n}", f"encoder.blocks.{n}"
        names |= {f"{ours}.norm1": f"{theirs}.attn_norm"} if n else {}
        names |= {
            f"{ours}.qkv": f"{theirs}.attn.Wqkv",
            f"{ours}.out": f"{theirs}.attn.Wo",
            f"{ours}.norm2": f"{theirs}.mlp_norm",
            f"{ours}.up": f"{theirs}.mlp.Wi",
            f"{ours}.down": f"{theirs}.mlp.Wo",
        }
    return rows_of_weights(names)


NUMBERS = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    *("intermediate_size", "max_position_embeddings", "local_attention"),
)
# The library's names for the two kinds of attention, in its configuration.
LAYER_TYPES: dict[Kind, str] = {"global": "full_attention", "local": "sliding_attention"}
FIXED_HEAD = {"classifier_activation": "gelu", "classifier_bias": False, "decoder_bias": True}


class ModernBert(TwoLabels):
    """ModernBERT's encoder (2412.13663, section 2.1), which is also that of Ettin and mmBERT."""

    shape_type = ModernBertShape
    config_class = "ModernBertConfig"
    classes: ClassVar = {
        "token": "ModernBertForMaskedLM",
        "binary": "ModernBertForTokenClassification",
    }
    fixed: ClassVar = {
        "hidden_activation": "gelu",
        "attention_bias": False,
        "mlp_bias": False,
        "norm_bias": False,
        "tie_word_embeddings": True,
    }
    # Read back by `shape_of`, and by earlier versions of the library.
    noted = ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta")
    input_names = ("input_ids", "attention_mask")

    # ---------------------------------------------------------------- the network

    def embeddings(
        self, shape: Shape, *, dropout: float, words: Words | None = None
    ) -> WordEmbeddings:
        return WordEmbeddings(shape, dropout=dropout, words=words)

    def contexts(
        self, shape: ModernBertShape, *, direction: Direction, dropout: float, lower: Encoder | None
    ) -> Contexts:
        return ContextsByKind(shape.reaches, direction=direction, dropout=dropout)

    def block(self, shape: ModernBertShape, n: int, dropout: float) -> GatedBlock:
        window = shape.reaches[shape.kinds[n]].window
        return GatedBlock(shape, dropout=dropout, window=window, normed=n > 0)

    def norm(self, shape: Shape) -> nn.LayerNorm:
        return nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps, bias=False)

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
        values.fill(tables, width=CONSTANT if local else 0)

    # ---------------------------------------------------------------- in Hugging Face's library

    def config_values(
        self, shape: ModernBertShape, special: SpecialIds, dropout: float, attention_dropout: float
    ) -> dict[str, Any]:
        ropes = {
            theirs: {"rope_type": "default", "rope_theta": getattr(shape, f"{kind}_rope_theta")}
            for kind, theirs in LAYER_TYPES.items()
        }
        return {
            **{name: getattr(shape, name) for name in NUMBERS},
            **self.fixed,
            **FIXED_HEAD,
            "norm_eps": shape.layer_norm_eps,
            "layer_types": [LAYER_TYPES[kind] for kind in shape.kinds],
            "rope_parameters": ropes,
            "embedding_dropout": dropout,
            "mlp_dropout": dropout,
            "attention_dropout": attention_dropout,
            "pad_token_id": special.pad,
            **dict.fromkeys(("cls_token_id", "bos_token_id"), special.cls),
            **dict.fromkeys(("sep_token_id", "eos_token_id"), special.sep),
        }

    def shape_of(self, config: Any) -> ModernBertShape:
        numbers = {name: getattr(config, name) for name in NUMBERS}
        numbers["local_attention"] = config.local_attention // 2 * 2
        for kind, theirs in LAYER_TYPES.items():
            numbers[f"{kind}_rope_theta"] = float(config.rope_parameters[theirs]["rope_theta"])
        return ModernBertShape(
            **numbers,
            embedding_size=config.hidden_size,
            layer_norm_eps=config.norm_eps,
            global_attn_every_n_layers=_every(config),
        )

    def odd(self, config: Any, **more: Any) -> list[str]:
        found = super().odd(config, **more)
        for kind in LAYER_TYPES.values():
            rope = config.rope_parameters[kind].get("rope_type", "default")
            found += [f"rope_type {rope}"] if rope != "default" else []
        kinds = [LAYER_TYPES[kind] for kind in self.shape_of(config).kinds]
        if list(config.layer_types) != kinds:
            found.append("layer_types that do not repeat from the lowest layer on")
        return found

    def has_head(self, config: Any, kind: HeadKind) -> bool:
        """The classes share names of weights: the head of one would be read, in part, as that of
        the other."""
        if self.classes[kind] not in (config.architectures or ()):
            return False
        if any(getattr(config, name, fixed) != fixed for name, fixed in FIXED_HEAD.items()):
            return False
        return kind == "token" or labelled(config)

    def table(self, shape: Shape, kind: HeadKind, *, model_type: str | None = None) -> KeyTable:
        head = rows_of_weights({"head.dense": "head.dense", "head.norm": "head.norm"})
        if kind == "binary":
            rows = (*head, *rows_of_layers({"head.out": "classifier"}, labels=True))
        else:
            rows = (*head, KeyRow("head.bias_V", ("decoder.bias",)))
        return KeyTable(self.classes[kind], encoder_rows(shape), rows)


def _every(config: Any) -> int:
    """One layer in how many has global attention, beginning with the lowest: as the configuration
    says, or judged by its first layers."""
    said = getattr(config, "global_attn_every_n_layers", None)
    if isinstance(said, int) and said > 0:
        return said
    above = list(config.layer_types)[1:]
    full = LAYER_TYPES["global"]
    return 1 + above.index(full) if full in above else max(1, config.num_hidden_layers)
