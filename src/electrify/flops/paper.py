"""The paper's convention: a transformer by its sizes, and the models that ELECTRA's authors compare."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from ..model.encoder import Encoder
from ..model.heads import BinaryHead, LinearHead, LMHead

BACKWARD = 1  # of a forward pass; in truth a product has two gradients, of its input and of its weights
CHOSEN = 0.15625  # 20 positions in 128: where the script computes an output softmax
DROPOUT, NORM, GELU, SOFTMAX = 4, 5, 8, 5  # per element, in the script


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The numbers that the script knows a transformer by. Its heads are 64 wide and its feed-forward layers 4 D, where nothing else is said."""

    width: int
    layers: int
    length: int = 512
    vocab: int = 30522
    embedding: int | None = None
    feed_forward: int | None = None
    heads: int | None = None
    attention: int | None = None
    """A: heads x head width; None = D."""
    attentions: int = 1
    """Of a layer: 2 in a decoder, which also attends to its encoder."""

    @property
    def e(self) -> int:
        return self.width if self.embedding is None else self.embedding


def layer_flops(s: Sizes) -> float:
    """Forward FLOPs of one block for one token, as the script counts.

    Two terms are its own and kept: the norm after attention counts 5 once, not 5 D, and the weighted average and output product are D wide also
    where A is not (T5).
    """
    d, length = s.width, s.length
    a, h, f = s.attention or d, s.heads or max(1, d // 64), s.feed_forward or 4 * d
    qkv = 3 * (2 * d * a + a)
    scores = 2 * a * length + h * length * (SOFTMAX + DROPOUT + 1)
    mixed = 2 * d * length + 2 * d * d + d + DROPOUT * d + d + NORM
    feed_forward = 4 * d * f + f + GELU * f + d + DROPOUT * d + d + NORM * d
    return s.attentions * (qkv + scores + mixed) + feed_forward


def input_flops(s: Sizes) -> float:
    """Forward FLOPs of the input embedding for one token: three one-hot products, their sum, norm, dropout, projection where E is not D."""
    tables = 2 * s.e * s.vocab + 2 * s.e * (s.length + 2)
    project = 2 * s.width * s.e + s.width if s.e != s.width else 0
    return tables + 2 * s.e + NORM * s.e + DROPOUT * s.e + project


def output_flops(s: Sizes) -> float:
    """Forward FLOPs of a language-model head for one position that it is asked for."""
    hidden = 2 * s.width * s.e + s.e + GELU * s.e + NORM * s.e
    return hidden + 2 * s.e * s.vocab + SOFTMAX * s.vocab + 2 * s.vocab


def binary_flops(width: int) -> float:
    """Forward FLOPs of the replaced-token head for one token."""
    return 2 * width * width + width + GELU * width + 2 * width


def encoder_flops(s: Sizes) -> float:
    """Forward FLOPs of embeddings and blocks for one token."""
    return input_flops(s) + s.layers * layer_flops(s)


def paper_flops(network: nn.Module, *, row_length: int) -> float:
    """Forward FLOPs of a network for one token that it runs on."""
    match network:
        case Encoder(shape=n):
            return encoder_flops(
                Sizes(
                    width=n.hidden_size,
                    layers=n.num_hidden_layers,
                    length=row_length,
                    vocab=n.vocab_size,
                    embedding=n.embedding_size,
                    feed_forward=n.intermediate_size,
                    heads=n.num_attention_heads,
                )
            )
        case LMHead(dense=dense, bias_V=bias_V):
            return output_flops(Sizes(width=dense.in_features, layers=0, vocab=len(bias_V), embedding=dense.out_features))
        case BinaryHead(dense=dense):
            return binary_flops(dense.in_features)
        case nn.Linear() | LinearHead():
            linear = network if isinstance(network, nn.Linear) else network.out
            return 2 * linear.weight.numel() + linear.out_features
        case _:
            raise TypeError(f"nobody has counted a {type(network).__name__}")


def published() -> dict[str, float]:
    """FLOPs of the pre-training of the models that ELECTRA's authors compare, by name, in the paper's convention."""

    def train(batch: float, steps: float, s: Sizes, per_token: float) -> float:
        return (1 + BACKWARD) * batch * steps * s.length * per_token

    def lm(s: Sizes, *, batch: float, steps: float, share: float = CHOSEN) -> float:
        return train(batch, steps, s, encoder_flops(s) + share * output_flops(s))

    def electra(s: Sizes, generator: Sizes, *, batch: float, steps: float) -> float:
        return train(batch, steps, s, encoder_flops(s) + binary_flops(s.width)) + lm(generator, batch=batch, steps=steps)

    base, large = Sizes(width=768, layers=12), Sizes(width=1024, layers=24)
    small, small_g = Sizes(width=256, layers=12, length=128, embedding=128), Sizes(width=64, layers=12, length=128, embedding=128)
    roberta = Sizes(width=1024, layers=24, vocab=50265)
    base_g, large_g = Sizes(width=256, layers=12, embedding=768), Sizes(width=256, layers=24, embedding=1024)
    t5 = Sizes(width=1024, layers=24, vocab=32000, feed_forward=65536, heads=128, attention=128 * 128)
    t5_decoder = Sizes(width=1024, layers=24, vocab=32000, feed_forward=65536, heads=128, attention=128 * 128, attentions=2)
    return {
        # Two that are no plain transformers: the authors measured the forward pass with TensorFlow.
        "elmo": 2 * 10 * 768_648_884 / (20 * 128) * 568_093_262_680,  # 10 epochs over the words of LM1B in batches of 20 x 128
        "xlnet": 2 * 500_000 * 8192 / 32 * 15_064_773_691_518,  # 500k steps of batch 8192; 32 examples were measured
        "gpt": lm(Sizes(width=768, layers=12, vocab=40000), batch=128, steps=960_800, share=1),
        "bert_small": lm(small, batch=128, steps=1.45e6),
        "bert_base": lm(base, batch=256, steps=1e6),
        "bert_large": lm(large, batch=256, steps=1e6),
        "electra_small": electra(small, small_g, batch=128, steps=1e6),
        "electra_base": electra(base, base_g, batch=256, steps=766_000),
        "electra_400k": electra(large, large_g, batch=2048, steps=400_000),
        "electra_1.75M": electra(large, large_g, batch=2048, steps=1.75e6),
        "roberta": lm(roberta, batch=8000, steps=500_000),
        "roberta_100k": lm(roberta, batch=8000, steps=100_000),  # of the paper's Table 2; the script counts the long run only
        "albert": lm(Sizes(width=4096, layers=12, vocab=30000, embedding=128), batch=4096, steps=1.5e6),
        "t5_11b": lm(t5, batch=2048, steps=1e6, share=0) + lm(t5_decoder, batch=2048, steps=1e6, share=1),
    }
