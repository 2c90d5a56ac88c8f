"""Recipe -> objective: widths, sharing, initial values, one `match`. The only place that knows all layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from .config.pretrain import ModelConfig, PretrainConfig
from .corruption.generator import Generator
from .corruption.masking import MaskMix
from .model.encoder import Embeddings, Encoder, Shape
from .model.heads import BinaryHead, LMHead, MaskedLM
from .model.init import init_bert, init_local_blocks, init_local_embeddings, init_local_head, init_words, subspace_width
from .objectives.electra import Electra
from .objectives.mlm import MLM
from .tokens import SpecialIds

WordVectors = Callable[[int], Tensor]  # dimensions K -> [V, K]


@dataclass(frozen=True)
class Half:
    """One network that can be exported: an encoder and its head."""

    encoder: Encoder
    head: LMHead | BinaryHead


@dataclass(frozen=True)
class Built:
    """An objective ready to train, and the networks in it by the name of their export folder."""

    objective: nn.Module
    halves: dict[str, Half]


def kept_shape(model: ModelConfig, vocab_size: int) -> Shape:
    return Shape(
        vocab_size=vocab_size,
        embedding_size=model.embedding_size,
        hidden_size=model.hidden_size,
        num_hidden_layers=model.num_hidden_layers,
        num_attention_heads=model.num_attention_heads,
        intermediate_size=model.intermediate_size,
        max_position_embeddings=model.max_position_embeddings,
    )


def generator_shape(model: ModelConfig, vocab_size: int) -> Shape:
    """Width, heads and feed-forward times `generator_size`, depth kept (2003.10555 section 3.2). Embeddings keep the discriminator's width."""

    def part(n: int) -> int:
        return max(1, round(n * model.generator_size))

    shape = kept_shape(model, vocab_size)
    small = {"hidden_size": part(shape.hidden_size), "num_attention_heads": part(shape.num_attention_heads)}
    return replace(shape, intermediate_size=part(shape.intermediate_size), **small)


def build(
    config: PretrainConfig, *, vocab_size: int, special: SpecialIds, generator: Shape | None = None, vectors: WordVectors | None = None
) -> Built:
    """The recipe's objective with its initial values, on the CPU in float32. The seed, and `vectors`, decide every value.

    `generator` overrides the derived shape of the generator (a folder that it starts from decides it). `vectors(K)` gives [V, K], where the words
    start if the recipe says `init_words: cooccurrence`; without it they keep what was drawn (enough for weights that are overwritten).
    """
    m, c = config.model, config.corruption
    shape = kept_shape(m, vocab_size)
    kept = Encoder(shape, Embeddings(shape, dropout=m.dropout), dropout=m.dropout, attention_dropout=m.attention_dropout)
    mask = MaskMix(special, vocab_size, rate=c.mask_rate, mix=c.mask_mix)
    match config.objective.objective:
        case "mlm":
            head = LMHead(shape, kept.embeddings.words)
            built = Built(MLM(mask, MaskedLM(kept, head)), {"discriminator": Half(kept, head)})
        case "rtd":
            g_shape = generator or generator_shape(m, vocab_size)
            g_encoder = generator_encoder(config, g_shape, kept)
            g_head, d_head = LMHead(g_shape, g_encoder.embeddings.words), BinaryHead(shape)
            corruptor = Generator(mask, MaskedLM(g_encoder, g_head), temperature=c.temperature)
            built = Built(Electra(corruptor, kept, d_head), {"discriminator": Half(kept, d_head), "generator": Half(g_encoder, g_head)})
    initialise(built, config, vectors)
    return built


def generator_encoder(config: PretrainConfig, shape: Shape, kept: Encoder) -> Encoder:
    """The generator's encoder, sharing with the kept one what `tie` says: sharing is passing the same object."""
    m = config.model
    match m.tie:
        case "all":
            return kept
        case "embeddings":
            return Encoder(shape, kept.embeddings, dropout=m.dropout, attention_dropout=m.attention_dropout)
        case "tokens":
            return Encoder(
                shape, Embeddings(shape, dropout=m.dropout, words=kept.embeddings.words), dropout=m.dropout, attention_dropout=m.attention_dropout
            )
        case "none":
            return Encoder(shape, Embeddings(shape, dropout=m.dropout), dropout=m.dropout, attention_dropout=m.attention_dropout)


def initialise(built: Built, config: PretrainConfig, vectors: WordVectors | None) -> None:
    rng = torch.Generator().manual_seed(config.train.seed)
    init_bert(built.objective, rng)
    encoders = list({id(h.encoder): h.encoder for h in built.halves.values()}.values())
    tables = {id(e.embeddings.words): e for e in reversed(encoders)}  # a word table that is shared is scaled and filled once
    width = subspace_width(*(e.shape for e in encoders)) if config.model.init == "local" else 0
    if config.model.init == "local":
        for encoder in encoders:
            init_local_embeddings(encoder, width, scale_words=tables[id(encoder.embeddings.words)] is encoder)
            init_local_blocks(encoder, width, rng, amplitude=config.model.local_amplitude)
        for half in built.halves.values():
            if isinstance(half.head, BinaryHead):
                init_local_head(half.head, rng)
    if config.model.init_words == "cooccurrence" and vectors:
        for encoder in tables.values():
            init_words(encoder, vectors(encoder.shape.embedding_size - width), local_width=width)
