"""An architecture as a user would add it: a class. Pre-norm blocks, positions that begin
behind the padding's, one norm at the end: what transformers calls RoBERTa-PreLayerNorm.

Shape suffixes: T flat tokens, E embedding width, D hidden width.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electrify.architectures.architecture import (
    InitialValues,
    KeyRow,
    KeyTable,
    TwoLabels,
    rows_of_layers,
    rows_of_weights,
)
from electrify.model import costs
from electrify.model.attention import AttentionContext
from electrify.model.embeddings import Added, Shape, Words, word_vectors
from electrify.model.embeddings import dropout as drop
from electrify.model.encoder import Encoder
from electrify.model.heads import Head, HeadKind, LinearHead
from electrify.model.init import init_bert
from electrify.tokens import SpecialIds, Tokens

PAD = 0  # positions 0 to PAD of the table are nobody's
NUMBERS = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
NUMBERS += ("intermediate_size", "type_vocab_size", "layer_norm_eps")


class Embeddings(nn.Module):
    """LayerNorm(word + position + segment), the positions counted from PAD + 1."""

    def __init__(self, shape: Shape, *, dropout: float, words: Words | None) -> None:
        super().__init__()
        self.words: Words = words or nn.Embedding(shape.vocab_size, shape.embedding_size)
        self.positions = nn.Embedding(shape.max_position_embeddings + PAD + 1, shape.embedding_size)
        self.segments = nn.Embedding(shape.type_vocab_size, shape.embedding_size)
        self.norm = nn.LayerNorm(shape.embedding_size, eps=shape.layer_norm_eps)
        self.dropout = dropout

    def forward(self, tokens: Tokens, added: Added | None = None) -> Tensor:
        place_T = torch.where(tokens.real_T, tokens.pos_T + PAD + 1, PAD)
        words_TE = word_vectors(self.words, tokens.ids_T, added)
        x_TE = words_TE + self.positions(place_T) + self.segments(tokens.segment_T)
        return drop(self.norm(x_TE), self.dropout, self.training)

    def paper_flops(self, sizes: costs.Sizes) -> float:
        return costs.input_flops(sizes)


class PreNormBlock(nn.Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x))."""

    def __init__(self, shape: Shape, *, dropout: float) -> None:
        super().__init__()
        width, eps = shape.hidden_size, shape.layer_norm_eps
        self.heads, self.dropout = shape.num_attention_heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=eps), nn.LayerNorm(width, eps=eps)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up = nn.Linear(width, shape.intermediate_size)
        self.down = nn.Linear(shape.intermediate_size, width)

    def forward(self, x_TD: Tensor, context: AttentionContext) -> Tensor:
        a_TD = self.out(context(self.qkv(self.norm1(x_TD)), self.heads))
        x_TD = x_TD + drop(a_TD, self.dropout, self.training)
        f_TD = self.down(F.gelu(self.up(self.norm2(x_TD))))
        return x_TD + drop(f_TD, self.dropout, self.training)

    def attention_flops(self, row_length: int) -> float:
        return 2 * (2 * row_length * self.out.in_features)

    def paper_flops(self, sizes: costs.Sizes) -> float:
        return costs.layer_flops(sizes)


class Roberta(TwoLabels):
    """RoBERTa-PreLayerNorm. Its embeddings are as wide as its blocks."""

    called = "a toy architecture"
    inits = ("bert",)
    narrow_embeddings = False
    model_types = ("roberta-prelayernorm",)

    config_class = "RobertaPreLayerNormConfig"
    classes: ClassVar = {
        "token": "RobertaPreLayerNormForMaskedLM",
        "binary": "RobertaPreLayerNormForTokenClassification",
    }
    fixed: ClassVar = {"hidden_act": "gelu"}
    counts_padding = False

    def embeddings(self, shape: Shape, *, dropout: float, words: Words | None = None) -> Embeddings:
        return Embeddings(shape, dropout=dropout, words=words)

    def block(self, shape: Shape, n: int, dropout: float) -> PreNormBlock:
        return PreNormBlock(shape, dropout=dropout)

    def norm(self, shape: Shape) -> nn.LayerNorm:
        return nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps)

    def binary_head(self, shape: Shape) -> Head:
        return LinearHead(shape.hidden_size)

    def initialise(
        self,
        objective: nn.Module,
        encoders: Sequence[Encoder],
        values: InitialValues,
        rng: torch.Generator,
    ) -> None:
        init_bert(objective, rng)

    def config_values(
        self, shape: Shape, special: SpecialIds, dropout: float, attention_dropout: float
    ) -> dict[str, Any]:
        assert special.pad == PAD
        return {name: getattr(shape, name) for name in NUMBERS} | {
            "max_position_embeddings": shape.max_position_embeddings + PAD + 1,
            "hidden_dropout_prob": dropout,
            "attention_probs_dropout_prob": attention_dropout,
            "pad_token_id": special.pad,
        }

    def shape_of(self, config: Any) -> Shape:
        numbers = {name: getattr(config, name) for name in NUMBERS}
        longest = config.max_position_embeddings - PAD - 1
        return Shape(**numbers, embedding_size=config.hidden_size, max_position_embeddings=longest)

    def table(self, shape: Shape, kind: HeadKind, *, model_type: str | None = None) -> KeyTable:
        base = "roberta_prelayernorm"
        theirs, ours = f"{base}.embeddings", "encoder.embeddings"
        tables = {
            f"{ours}.words": f"{theirs}.word_embeddings",
            f"{ours}.positions": f"{theirs}.position_embeddings",
            f"{ours}.segments": f"{theirs}.token_type_embeddings",
        }
        rest = {f"{ours}.norm": f"{theirs}.LayerNorm", "encoder.norm": f"{base}.LayerNorm"}
        qkv: list[KeyRow] = []
        for n in range(shape.num_hidden_layers):
            theirs, ours = f"{base}.encoder.layer.{n}", f"encoder.blocks.{n}"
            for part in ("weight", "bias"):
                each = (f"{theirs}.attention.self.{x}.{part}" for x in ("query", "key", "value"))
                qkv.append(KeyRow(f"{ours}.qkv.{part}", tuple(each)))
            rest |= {
                f"{ours}.norm1": f"{theirs}.attention.LayerNorm",
                f"{ours}.out": f"{theirs}.attention.output.dense",
                f"{ours}.norm2": f"{theirs}.intermediate.LayerNorm",
                f"{ours}.up": f"{theirs}.intermediate.dense",
                f"{ours}.down": f"{theirs}.output.dense",
            }
        encoder = (*rows_of_weights(tables), *qkv, *rows_of_layers(rest))
        if kind == "binary":
            head = rows_of_layers({"head.out": "classifier"}, labels=True)
            return KeyTable(self.classes[kind], encoder, head)
        head = rows_of_layers({"head.dense": "lm_head.dense", "head.norm": "lm_head.layer_norm"})
        bias = KeyRow("head.bias_V", ("lm_head.bias",))
        return KeyTable(self.classes[kind], encoder, (*head, bias))
