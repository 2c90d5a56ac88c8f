"""The encoder of ELECTRA and BERT: post-norm blocks on embeddings of words, learned positions and
segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..model.blocks import Block
from ..model.embeddings import Embeddings, Shape, Words, own_tables
from ..model.encoder import Encoder
from ..model.heads import BinaryHead, Head, HeadKind, LinearHead
from ..model.init import (
    init_bert,
    init_local_blocks,
    init_local_embeddings,
    init_local_head,
    init_published,
    init_scaled_outputs,
    subspace_width,
)
from ..values import SpecialIds
from .architecture import (
    Architecture,
    InitialValues,
    KeyRow,
    KeyTable,
    rows_of_blocks,
    rows_of_layers,
    rows_of_lm_head,
    rows_of_weights,
)


class Electra(Architecture):
    """ELECTRA's encoder (2003.10555), which is BERT's (1810.04805) with embeddings that may be
    narrower than the blocks."""

    config_class = "ElectraConfig"
    classes: ClassVar = {"token": "ElectraForMaskedLM", "binary": "ElectraForPreTraining"}
    fixed: ClassVar = {"hidden_act": "gelu", "position_embedding_type": "absolute"}

    # ---------------------------------------------------------------- the network

    def embeddings(self, shape: Shape, *, dropout: float, words: Words | None = None) -> Embeddings:
        return Embeddings(shape, dropout=dropout, words=words)

    def project(self, shape: Shape) -> nn.Linear | None:
        same = shape.embedding_size == shape.hidden_size
        return None if same else nn.Linear(shape.embedding_size, shape.hidden_size)

    def block(self, shape: Shape, n: int, dropout: float) -> Block:
        return Block(shape, dropout=dropout)

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
        tables = own_tables(e.embeddings.words for e in encoders)
        width = subspace_width(*(e.shape for e in encoders)) if values.init == "local" else 0
        if values.init == "local":
            init_local_embeddings(tables, (e.embeddings for e in encoders), width)
            done: set[nn.Module] = set()
            for encoder in encoders:
                init_local_blocks(encoder, width, rng, amplitude=values.local_amplitude, done=done)
            for head in objective.modules():
                if isinstance(head, BinaryHead):
                    init_local_head(head, rng)
        if values.scaled:
            init_scaled_outputs(encoders)
        values.fill(tables, width=width)

    # ---------------------------------------------------------------- in Hugging Face's library

    def config_values(
        self, shape: Shape, special: SpecialIds, dropout: float, attention_dropout: float
    ) -> dict[str, Any]:
        return vars(shape) | {
            "hidden_dropout_prob": dropout,
            "attention_probs_dropout_prob": attention_dropout,
            "pad_token_id": special.pad,
        }

    def shape_of(self, config: Any) -> Shape:
        names = [field.name for field in fields(Shape) if hasattr(config, field.name)]
        numbers = {name: getattr(config, name) for name in names}
        return Shape(**{"embedding_size": config.hidden_size} | numbers)

    def table(self, shape: Shape, kind: HeadKind, *, model_type: str | None = None) -> KeyTable:
        if model_type == "bert":
            return bert_for_masked_lm(shape, kind)
        if kind == "token":
            theirs = "generator_predictions"
            head = rows_of_lm_head(
                f"{theirs}.dense", f"{theirs}.LayerNorm", "generator_lm_head.bias"
            )
        else:
            theirs = "discriminator_predictions"
            names = {"head.dense": f"{theirs}.dense", "head.out": f"{theirs}.dense_prediction"}
            head = rows_of_layers(names)
        return KeyTable(self.classes[kind], _encoder(shape, "electra"), head)

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


TWO_LAYERS = {"dense.weight", "dense.bias", "out.weight", "out.bias"}

# ------------------------------------------------------------------ tables


def _encoder(shape: Shape, prefix: str) -> tuple[KeyRow, ...]:
    theirs, ours = f"{prefix}.embeddings", "encoder.embeddings"
    words = {
        f"{ours}.words": f"{theirs}.word_embeddings",
        f"{ours}.positions": f"{theirs}.position_embeddings",
        f"{ours}.segments": f"{theirs}.token_type_embeddings",
    }
    rest = {f"{ours}.norm": f"{theirs}.LayerNorm"}
    if shape.embedding_size != shape.hidden_size:
        rest["encoder.project"] = f"{prefix}.embeddings_project"
    return (*rows_of_weights(words), *rows_of_layers(rest), *rows_of_blocks(shape, prefix))


def bert_for_masked_lm(shape: Shape, kind: HeadKind) -> KeyTable:
    """BERT without pooler and next-sentence prediction: only for runs that start from it, because
    we always write ELECTRA. Needs embedding_size = hidden_size.

    Its head is that of a language model; a head of another kind keeps its initial values.
    """
    theirs = "cls.predictions"
    head = rows_of_lm_head(
        f"{theirs}.transform.dense", f"{theirs}.transform.LayerNorm", f"{theirs}.bias"
    )
    return KeyTable("BertForMaskedLM", _encoder(shape, "bert"), head if kind == "token" else ())


# ------------------------------------------------------------------ linear heads


def two_layers(head: LinearHead) -> dict[str, Tensor]:
    """Writes a linear head exactly as dense, gelu and output: gelu(x) - gelu(-x) = x, so the dense
    layer gets w and -w, and the output layer 1 and -1."""
    w_1D, b_1 = head.out.weight.detach(), head.out.bias.detach()
    one_1, width = torch.ones_like(b_1), w_1D.shape[1]
    rest = width - 2
    return {
        "dense.weight": torch.cat([w_1D, -w_1D, w_1D.new_zeros(rest, width)]),
        "dense.bias": torch.cat([b_1, -b_1, b_1.new_zeros(rest)]),
        "out.weight": torch.cat([one_1, -one_1, b_1.new_zeros(rest)])[None],
        "out.bias": torch.zeros_like(b_1),
    }


def one_layer(named: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """The linear head from which `two_layers` made these two layers; None if they compute something
    else."""
    head = LinearHead(named["dense.weight"].shape[1])
    head.load_state_dict(
        {"out.weight": named["dense.weight"][:1], "out.bias": named["dense.bias"][:1]}
    )
    same = all(torch.equal(named[name], t) for name, t in two_layers(head).items())
    return head.state_dict() if same else None
