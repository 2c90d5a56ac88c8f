"""An architecture as a user would add it: a class. Pre-norm blocks, positions that begin
behind the padding's, one norm at the end: what transformers calls RoBERTa-PreLayerNorm.

Shape suffixes: T flat tokens, E embedding width, D hidden width.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electrify.architectures.architecture import Architecture, InitialValues
from electrify.architectures.keys import KeyTable, Row, layer
from electrify.errors import UserError
from electrify.model import costs
from electrify.model.attention import AttentionContext, Direction, SharedContext
from electrify.model.dropout import dropout as drop
from electrify.model.embeddings import Added, Words, word_vectors
from electrify.model.encoder import Encoder
from electrify.model.heads import Head, HeadKind, LinearHead
from electrify.model.init import init_bert
from electrify.model.shape import Shape
from electrify.tokens import SpecialIds, Tokens

PAD = 0  # positions 0 to PAD of the table are nobody's
SIZES = ("vocab_size", "hidden_size", "num_hidden_layers")
SIZES += ("num_attention_heads", "intermediate_size")
NUMBERS = (*SIZES, "type_vocab_size", "layer_norm_eps")


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
        self.up, self.down = (
            nn.Linear(width, shape.intermediate_size),
            nn.Linear(shape.intermediate_size, width),
        )

    def forward(self, x_TD: Tensor, context: AttentionContext) -> Tensor:
        a_TD = self.out(context(self.qkv(self.norm1(x_TD)), self.heads))
        x_TD = x_TD + drop(a_TD, self.dropout, self.training)
        return x_TD + drop(
            self.down(F.gelu(self.up(self.norm2(x_TD)))), self.dropout, self.training
        )

    def attention_flops(self, row_length: int) -> float:
        return 2 * (2 * row_length * self.out.in_features)

    def paper_flops(self, sizes: costs.Sizes) -> float:
        return costs.layer_flops(sizes)


class Roberta(Architecture):
    """RoBERTa-PreLayerNorm. Its embeddings are as wide as its blocks."""

    called = "a toy architecture"
    inits = ("bert",)
    narrow_embeddings = False
    model_types = ("roberta-prelayernorm",)

    name = "toy_prenorm"
    model_type = "roberta-prelayernorm"
    classes: ClassVar = {
        "token": "RobertaPreLayerNormForMaskedLM",
        "binary": "RobertaPreLayerNormForTokenClassification",
    }
    head_prefixes: ClassVar = {"token": "lm_head.", "binary": "classifier."}
    counts_padding = False
    config_keys = (*SIZES, "max_position_embeddings")
    binary_code = "model(**inputs).logits.diff(dim=-1).squeeze(-1)"

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
        own = range(shape.num_hidden_layers - tied)
        return Encoder(
            shape,
            embeddings=embeddings,
            blocks=[
                *(lower.blocks[:tied] if lower is not None else ()),
                *(PreNormBlock(shape, dropout=dropout) for _ in own),
            ],
            contexts=SharedContext(direction=direction, dropout=attention_dropout),
            norm=nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps),
            direction=direction,
        )

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

    def hf_config(
        self,
        shape: Shape,
        kind: HeadKind,
        *,
        special: SpecialIds,
        dropout: float,
        attention_dropout: float,
    ) -> Any:
        from transformers import RobertaPreLayerNormConfig

        assert special.pad == PAD
        config = RobertaPreLayerNormConfig(
            **{name: getattr(shape, name) for name in NUMBERS},
            max_position_embeddings=shape.max_position_embeddings + PAD + 1,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=attention_dropout,
            pad_token_id=special.pad,
            num_labels=2,
        )
        config.architectures = [self.classes[kind]]
        config.dtype = "float32"
        return config

    def shape_of(self, config: Any) -> Shape:
        numbers = {name: getattr(config, name) for name in NUMBERS}
        longest = config.max_position_embeddings - PAD - 1
        return Shape(**numbers, embedding_size=config.hidden_size, max_position_embeddings=longest)

    def must_compute_the_same(self, start: str, config: Any) -> None:
        if config.hidden_act != "gelu":
            raise UserError(
                f"{start} computes what our encoder does not: hidden_act {config.hidden_act}"
            )

    def table(self, shape: Shape, kind: HeadKind, *, model_type: str | None = None) -> KeyTable:
        base = "roberta_prelayernorm"
        tables = {"words": "word", "positions": "position", "segments": "token_type"}
        rows = [
            *(
                Row(f"encoder.embeddings.{o}.weight", (f"{base}.embeddings.{t}_embeddings.weight",))
                for o, t in tables.items()
            ),
            *layer(f"{base}.embeddings.LayerNorm", "encoder.embeddings.norm"),
            *layer(f"{base}.LayerNorm", "encoder.norm"),
        ]
        for n in range(shape.num_hidden_layers):
            theirs, ours = f"{base}.encoder.layer.{n}", f"encoder.blocks.{n}"
            for part in ("weight", "bias"):
                fused = tuple(
                    f"{theirs}.attention.self.{which}.{part}" for which in ("query", "key", "value")
                )
                rows.append(Row(f"{ours}.qkv.{part}", fused))
            rows += layer(f"{theirs}.attention.LayerNorm", f"{ours}.norm1")
            rows += layer(f"{theirs}.attention.output.dense", f"{ours}.out")
            rows += layer(f"{theirs}.intermediate.LayerNorm", f"{ours}.norm2")
            rows += layer(f"{theirs}.intermediate.dense", f"{ours}.up")
            rows += layer(f"{theirs}.output.dense", f"{ours}.down")
        if kind == "binary":
            return KeyTable(self.classes[kind], tuple(rows), tuple(layer("classifier", "head.out")))
        head = [
            *layer("lm_head.dense", "head.dense"),
            *layer("lm_head.layer_norm", "head.norm"),
            Row("head.bias_V", ("lm_head.bias",)),
        ]
        tied = {
            "lm_head.decoder.weight": f"{base}.embeddings.word_embeddings.weight",
            "lm_head.decoder.bias": "lm_head.bias",
        }
        return KeyTable(self.classes[kind], tuple(rows), tuple(head), tied)

    def head_tensors(self, head: Head) -> dict[str, Tensor]:
        """Two labels, of which the first one's logit is 0: softmax is then the sigmoid of ours."""
        named = head.tensors()
        return (
            named
            if head.kind == "token"
            else {name: torch.cat([torch.zeros_like(t), t]) for name, t in named.items()}
        )

    @torch.no_grad()
    def fill_head(self, head: Head, named: Mapping[str, Tensor]) -> list[str]:
        if head.kind == "token":
            return super().fill_head(head, named)
        return super().fill_head(head, {name: t[1:] - t[:1] for name, t in named.items()})

    def binary_logits(self, output: Any) -> Tensor:
        return output.logits[..., 1] - output.logits[..., 0]
