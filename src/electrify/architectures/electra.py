"""The encoder of ELECTRA and BERT: post-norm blocks on embeddings of words, learned positions and
segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..model.attention import Direction, SharedContext
from ..model.blocks import Block
from ..model.embeddings import Embeddings, Words, own_table
from ..model.encoder import Encoder
from ..model.heads import BinaryHead, Head, HeadKind, LinearHead
from ..model.init import (
    init_bert,
    init_local_blocks,
    init_local_embeddings,
    init_local_head,
    init_published,
    init_scaled_outputs,
    init_words,
    subspace_width,
)
from ..model.shape import Shape
from ..special import SpecialIds
from .architecture import Architecture, InitialValues
from .keys import KeyTable, Row, block_layers, layer

HF_NUMBERS = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
    "layer_norm_eps",
)


class Electra(Architecture):
    """ELECTRA's encoder (2003.10555), which is BERT's (1810.04805) with embeddings that may be
    narrower than the blocks."""

    name = "electra"
    model_type = "electra"
    classes: ClassVar = {"token": "ElectraForMaskedLM", "binary": "ElectraForPreTraining"}
    head_prefixes: ClassVar = {
        "token": "generator_predictions.",
        "binary": "discriminator_predictions.",
    }
    config_keys = tuple(
        name for name in HF_NUMBERS if name not in ("type_vocab_size", "layer_norm_eps")
    )

    # ---------------------------------------------------------------- the network

    def embeddings(self, shape: Shape, *, dropout: float, words: Words | None = None) -> Embeddings:
        return Embeddings(shape, dropout=dropout, words=words)

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
        project = None
        if lower is not None:
            project = lower.project
        elif shape.embedding_size != shape.hidden_size:
            project = nn.Linear(shape.embedding_size, shape.hidden_size)
        own = range(shape.num_hidden_layers - tied)
        return Encoder(
            shape,
            embeddings=embeddings,
            project=project,
            blocks=[
                *(lower.blocks[:tied] if lower is not None else ()),
                *(Block(shape, dropout=dropout) for _ in own),
            ],
            contexts=SharedContext(direction=direction, dropout=attention_dropout),
            direction=direction,
        )

    def initialise(
        self,
        objective: nn.Module,
        encoders: Sequence[Encoder],
        values: InitialValues,
        rng: torch.Generator,
    ) -> None:
        init_bert(objective, rng)
        if values.init == "published":
            init_published(objective, rng)
        # A shared word table is scaled and filled only once.
        tables = {id(own_table(e.embeddings.words)): e for e in reversed(encoders)}
        width = subspace_width(*(e.shape for e in encoders)) if values.init == "local" else 0
        if values.init == "local":
            done: set[nn.Module] = set()
            for encoder in encoders:
                words = own_table(encoder.embeddings.words)
                init_local_embeddings(
                    encoder.embeddings, words, width, scale_words=tables[id(words)] is encoder
                )
                init_local_blocks(encoder, width, rng, amplitude=values.local_amplitude, done=done)
            for head in objective.modules():
                if isinstance(head, BinaryHead):
                    init_local_head(head, rng)
        if values.scaled:
            init_scaled_outputs(encoders)
        if values.vectors:
            for encoder in tables.values():
                words = own_table(encoder.embeddings.words)
                init_words(words, values.vectors(words.embedding_dim - width), local_width=width)

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
        from transformers import ElectraConfig

        config = ElectraConfig(
            **{name: getattr(shape, name) for name in HF_NUMBERS},
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=attention_dropout,
            pad_token_id=special.pad,
        )
        config.architectures = [self.table(shape, kind).name]
        config.dtype = "float32"
        return config

    def shape_of(self, config: Any) -> Shape:
        numbers = {name: getattr(config, name) for name in HF_NUMBERS if name != "embedding_size"}
        return Shape(
            **numbers, embedding_size=getattr(config, "embedding_size", config.hidden_size)
        )

    def must_compute_the_same(self, start: str, config: Any) -> None:
        act = getattr(config, "hidden_act", "gelu")
        positions = getattr(config, "position_embedding_type", "absolute") or "absolute"
        if act != "gelu" or positions != "absolute" or config.is_decoder:
            numbers = f"hidden_act {act}, positions {positions}, is_decoder {config.is_decoder}"
            raise UserError(f"{start} computes what our encoder does not: {numbers}")

    def table(self, shape: Shape, kind: HeadKind, *, model_type: str | None = None) -> KeyTable:
        if model_type == "bert":
            return bert_for_masked_lm(shape, kind)
        return electra_for_masked_lm(shape) if kind == "token" else electra_for_pre_training(shape)

    def head_tensors(self, head: Head) -> dict[str, Tensor]:
        """The library has only one form of binary head; a linear head is written in that form."""
        return two_layers(head) if isinstance(head, LinearHead) else head.tensors()

    @torch.no_grad()
    def fill_head(self, head: Head, named: Mapping[str, Tensor]) -> list[str]:
        """A linear head takes nothing from the two-layer head of another objective, because it
        cannot compute the same. A two-layer head takes nothing from a linear one: it would begin
        with zeros, whose gradients are 0 for ever, in all but two of its units."""
        if head.kind != "binary":
            return super().fill_head(head, named)
        one = one_layer(named) if named.keys() == TWO_LAYERS else None
        if isinstance(head, LinearHead) != (one is not None):
            return list(named)
        if one is None:
            return super().fill_head(head, named)
        head.load_state_dict(one)
        return []


# ------------------------------------------------------------------ tables


def _encoder(shape: Shape, prefix: str) -> tuple[Row, ...]:
    rows = [
        Row("encoder.embeddings.words.weight", (f"{prefix}.embeddings.word_embeddings.weight",)),
        Row(
            "encoder.embeddings.positions.weight",
            (f"{prefix}.embeddings.position_embeddings.weight",),
        ),
        Row(
            "encoder.embeddings.segments.weight",
            (f"{prefix}.embeddings.token_type_embeddings.weight",),
        ),
        *layer(f"{prefix}.embeddings.LayerNorm", "encoder.embeddings.norm"),
    ]
    if shape.embedding_size != shape.hidden_size:
        rows += layer(f"{prefix}.embeddings_project", "encoder.project")
    return (*rows, *block_layers(shape, prefix))


def electra_for_pre_training(shape: Shape) -> KeyTable:
    """The discriminator."""
    head = [
        *layer("discriminator_predictions.dense", "head.dense"),
        *layer("discriminator_predictions.dense_prediction", "head.out"),
    ]
    return KeyTable("ElectraForPreTraining", _encoder(shape, "electra"), tuple(head))


def electra_for_masked_lm(shape: Shape) -> KeyTable:
    """The generator, or the encoder trained as a masked language model."""
    head = [
        *layer("generator_predictions.dense", "head.dense"),
        *layer("generator_predictions.LayerNorm", "head.norm"),
        Row("head.bias_V", ("generator_lm_head.bias",)),
    ]
    tied = {"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"}
    return KeyTable("ElectraForMaskedLM", _encoder(shape, "electra"), tuple(head), tied)


BERT_TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def bert_for_masked_lm(shape: Shape, kind: HeadKind) -> KeyTable:
    """BERT without pooler and next-sentence prediction: only for runs that start from it, because
    we always write ELECTRA. Needs embedding_size = hidden_size.

    Its head is that of a language model; a head of another kind keeps its initial values.
    """
    if kind != "token":
        return KeyTable("BertForMaskedLM", _encoder(shape, "bert"), (), BERT_TIED)
    head = [
        *layer("cls.predictions.transform.dense", "head.dense"),
        *layer("cls.predictions.transform.LayerNorm", "head.norm"),
        Row("head.bias_V", ("cls.predictions.bias",)),
    ]
    return KeyTable("BertForMaskedLM", _encoder(shape, "bert"), tuple(head), BERT_TIED)


TWO_LAYERS = {"dense.weight", "dense.bias", "out.weight", "out.bias"}


def two_layers(head: LinearHead) -> dict[str, Tensor]:
    """Writes a linear head exactly as dense, gelu and output: gelu(x) - gelu(-x) = x, so the dense
    layer gets w and -w, and the output layer 1 and -1."""
    w_D = head.out.weight.detach()[0]
    b = head.out.bias.detach()
    dense_DD = w_D.new_zeros(len(w_D), len(w_D))
    bias_D = torch.zeros_like(w_D)
    out_1D = w_D.new_zeros(1, len(w_D))
    dense_DD[0] = w_D
    dense_DD[1] = -w_D
    bias_D[0:1] = b
    bias_D[1:2] = -b
    out_1D[0, 0] = 1
    out_1D[0, 1] = -1
    return {
        "dense.weight": dense_DD,
        "dense.bias": bias_D,
        "out.weight": out_1D,
        "out.bias": torch.zeros_like(b),
    }


def one_layer(named: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """The linear head from which `two_layers` made these two layers; None if they compute something
    else."""
    dense_DD = named["dense.weight"]
    bias_D = named["dense.bias"]
    head = LinearHead(len(bias_D))
    with torch.no_grad():
        head.out.weight.copy_(dense_DD[:1])
        head.out.bias.copy_(bias_D[:1])
    same = all(torch.equal(named[name], t) for name, t in two_layers(head).items())
    return {name: p.detach() for name, p in head.named_parameters()} if same else None
