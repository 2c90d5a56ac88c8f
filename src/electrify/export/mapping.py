"""Our parameter names <-> those of a Hugging Face architecture: one reversible table each, read in both directions.

A table uses every key of both sides exactly once or it raises, so import and export cannot disagree and nothing is lost in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..build import Half
from ..model.encoder import DisentangledWords, Shape
from ..model.heads import LinearHead, LMHead


@dataclass(frozen=True)
class Row:
    """One parameter of ours, and the parameters of theirs that it holds one below the other (three for the fused queries, keys and values)."""

    ours: str
    theirs: tuple[str, ...]


@dataclass(frozen=True)
class Architecture:
    """A class of transformers for one of our halves, as a table."""

    name: str
    """The class."""
    model_type: str
    encoder: tuple[Row, ...]
    head: tuple[Row, ...]
    tied: dict[str, str]
    """Names of theirs that repeat another one: absent from files, present in a module's state."""

    @property
    def rows(self) -> tuple[Row, ...]:
        return self.encoder + self.head


class KeyMismatchError(ValueError):
    """Tensors and table do not name the same keys, each once."""


# ------------------------------------------------------------------ tables


def _layer(name: str, ours: str) -> list[Row]:
    """Weight and bias of a Linear or LayerNorm."""
    return [Row(f"{ours}.{part}", (f"{name}.{part}",)) for part in ("weight", "bias")]


def _encoder(shape: Shape, prefix: str) -> tuple[Row, ...]:
    rows = [
        Row("encoder.embeddings.words.weight", (f"{prefix}.embeddings.word_embeddings.weight",)),
        Row("encoder.embeddings.positions.weight", (f"{prefix}.embeddings.position_embeddings.weight",)),
        Row("encoder.embeddings.segments.weight", (f"{prefix}.embeddings.token_type_embeddings.weight",)),
        *_layer(f"{prefix}.embeddings.LayerNorm", "encoder.embeddings.norm"),
    ]
    if shape.embedding_size != shape.hidden_size:
        rows += _layer(f"{prefix}.embeddings_project", "encoder.project")
    for n in range(shape.num_hidden_layers):
        theirs, ours = f"{prefix}.encoder.layer.{n}", f"encoder.blocks.{n}"
        for part in ("weight", "bias"):
            rows.append(Row(f"{ours}.qkv.{part}", tuple(f"{theirs}.attention.self.{which}.{part}" for which in ("query", "key", "value"))))
        rows += _layer(f"{theirs}.attention.output.dense", f"{ours}.out")
        rows += _layer(f"{theirs}.attention.output.LayerNorm", f"{ours}.norm1")
        rows += _layer(f"{theirs}.intermediate.dense", f"{ours}.up")
        rows += _layer(f"{theirs}.output.dense", f"{ours}.down")
        rows += _layer(f"{theirs}.output.LayerNorm", f"{ours}.norm2")
    return tuple(rows)


def electra_for_pre_training(shape: Shape) -> Architecture:
    """The discriminator."""
    head = [*_layer("discriminator_predictions.dense", "head.dense"), *_layer("discriminator_predictions.dense_prediction", "head.out")]
    return Architecture("ElectraForPreTraining", "electra", _encoder(shape, "electra"), tuple(head), {})


def electra_for_masked_lm(shape: Shape) -> Architecture:
    """The generator, and the encoder that a masked language model leaves."""
    head = [
        *_layer("generator_predictions.dense", "head.dense"),
        *_layer("generator_predictions.LayerNorm", "head.norm"),
        Row("head.bias_V", ("generator_lm_head.bias",)),
    ]
    tied = {"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"}
    return Architecture("ElectraForMaskedLM", "electra", _encoder(shape, "electra"), tuple(head), tied)


def bert_for_masked_lm(shape: Shape) -> Architecture:
    """BERT without pooler and next-sentence prediction: to start from only, what we write is ELECTRA. Needs embedding_size = hidden_size."""
    head = [
        *_layer("cls.predictions.transform.dense", "head.dense"),
        *_layer("cls.predictions.transform.LayerNorm", "head.norm"),
        Row("head.bias_V", ("cls.predictions.bias",)),
    ]
    tied = {"cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.bias": "cls.predictions.bias"}
    return Architecture("BertForMaskedLM", "bert", _encoder(shape, "bert"), tuple(head), tied)


def architecture_of(half: Half) -> Architecture:
    """The class that a half is exported as: its head decides."""
    return (electra_for_masked_lm if isinstance(half.head, LMHead) else electra_for_pre_training)(half.encoder.shape)


# ------------------------------------------------------------------ tensors


WORDS = "encoder.embeddings.words.weight"


def parameters_of(half: Half) -> dict[str, Tensor]:
    """The half's parameters under the names of the tables: those themselves where they are ours, else values (a disentangled word table as its sum, a
    linear head as the two layers that compute it). The word table, which an LM head reads again, is there once."""
    words = half.encoder.embeddings.words
    named: dict[str, Tensor] = {f"encoder.{name}": p for name, p in half.encoder.named_parameters()}
    head = {f"head.{name}": p for name, p in half.head.named_parameters() if not name.startswith("words.")}
    if isinstance(words, DisentangledWords):
        named = {name: p for name, p in named.items() if not name.startswith("encoder.embeddings.words.")} | {WORDS: words.weight.detach()}
    return named | (head if not isinstance(half.head, LinearHead) else two_layers(half.head))


def two_layers(head: LinearHead) -> dict[str, Tensor]:
    """A linear head as dense, gelu and output, exactly: gelu(x) - gelu(-x) = x, so the dense layer gets w and -w, the output 1 and -1."""
    w_D, b = head.out.weight.detach()[0], head.out.bias.detach()
    dense_DD, bias_D, out_1D = w_D.new_zeros(len(w_D), len(w_D)), torch.zeros_like(w_D), w_D.new_zeros(1, len(w_D))
    dense_DD[0], dense_DD[1], bias_D[0:1], bias_D[1:2], out_1D[0, 0], out_1D[0, 1] = w_D, -w_D, b, -b, 1, -1
    return {"head.dense.weight": dense_DD, "head.dense.bias": bias_D, "head.out.weight": out_1D, "head.out.bias": torch.zeros_like(b)}


def one_layer(named: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """What `two_layers` made, as the linear head again; None where the two layers compute something else."""
    dense_DD, bias_D = named["head.dense.weight"], named["head.dense.bias"]
    head = LinearHead(len(bias_D))
    with torch.no_grad():
        head.out.weight.copy_(dense_DD[:1])
        head.out.bias.copy_(bias_D[:1])
    same = all(torch.equal(named[name], t) for name, t in two_layers(head).items())
    return {f"head.{name}": p.detach() for name, p in head.named_parameters()} if same else None


@torch.no_grad()
def fill(half: Half, named: Mapping[str, Tensor]) -> list[str]:
    """Sets the parameters of these names, as `parameters_of` names them, and returns the names that the half cannot hold: its linear head cannot be
    the two layers of another objective."""
    own, words = parameters_of(half), half.encoder.embeddings.words
    left = []
    if isinstance(half.head, LinearHead):
        layers = {name: named[name] for name in two_layers(half.head) if name in named}
        one = one_layer(layers) if len(layers) == 4 else None
        left = [] if one else list(layers)
        named = {name: t for name, t in named.items() if name not in layers} | (one or {})
        own |= {f"head.{name}": p for name, p in half.head.named_parameters()}
    for name, t in named.items():
        if name == WORDS and isinstance(words, DisentangledWords):
            words.delta_VE.copy_(t - words.base.weight)
        else:
            own[name].copy_(t)
    return left


def _same_keys(have: Iterable[str], want: Iterable[str], what: str) -> None:
    want = list(want)
    twice = sorted({name for name in want if want.count(name) > 1}) if len(set(want)) < len(want) else []
    missing, extra = sorted(set(want) - set(have)), sorted(set(have) - set(want))
    for wrong, how in ((twice, "named twice by the table"), (missing, "missing"), (extra, "unknown to the table")):
        if wrong:
            raise KeyMismatchError(f"{what}: {len(wrong)} {how}, first {wrong[0]}")


def to_theirs(rows: Iterable[Row], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our parameters under their names, each a contiguous copy. Raises KeyMismatchError unless every key of both sides is used exactly once."""
    rows = tuple(rows)
    _same_keys(ours, (row.ours for row in rows), "our parameters")
    out: dict[str, Tensor] = {}
    for row in rows:
        tensor = ours[row.ours]
        if tensor.shape[0] % len(row.theirs):
            raise KeyMismatchError(f"our parameters: {row.ours} with {tensor.shape[0]} rows cannot be cut into {len(row.theirs)}")
        for name, part in zip(row.theirs, tensor.detach().chunk(len(row.theirs)), strict=True):
            out[name] = part.clone(memory_format=torch.contiguous_format)
    _same_keys(out, (name for row in rows for name in row.theirs), "their parameters")
    return out


def to_ours(rows: Iterable[Row], theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their parameters (without the tied ones) under our names. Raises KeyMismatchError unless every key of both sides is used exactly once."""
    rows = tuple(rows)
    _same_keys(theirs, (name for row in rows for name in row.theirs), "their parameters")
    out = {row.ours: torch.cat([theirs[name].detach() for name in row.theirs]) for row in rows}
    _same_keys(out, (row.ours for row in rows), "our parameters")
    return out


def without_tied(architecture: Architecture, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their parameters without the repeated ones. Raises KeyMismatchError where one has values of its own, which ours cannot hold."""
    for name, source in architecture.tied.items():
        if name in theirs and source in theirs and not torch.equal(theirs[name], theirs[source]):
            raise KeyMismatchError(f"their parameters: {name} should repeat {source} and does not")
    return {name: t for name, t in theirs.items() if name not in architecture.tied}
