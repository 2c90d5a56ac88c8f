"""What a recipe costs: floating-point operations (FLOPs), a multiply-add being two, by two conventions.

`hardware` counts what a processor is measured by: matrix products only. Looking up an embedding is free, a head runs on its exact share of the
tokens, attention is over the whole row (a packed row computes L x L), the backward pass is twice the forward pass. What is computed a second time to
save memory does not count.
`paper` counts as the public FLOPs script of ELECTRA does (2003.10555, Table 1): the backward pass equals the forward pass, tables are read by one-hot
products, an output softmax stands at .15625 of the positions whatever the mask rate, and bias, dropout, softmax, norm and activation count a little.

Symbols: L row length, V vocabulary, E embedding width, D hidden width, F feed-forward width, H heads, A = heads x head width.
Nothing is allocated: networks are built on torch's meta device.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import torch
from torch import nn

from .build import Built, Vocabulary, compose
from .config.flops import Convention, FlopsConfig
from .config.pretrain import PretrainConfig, load_recipe, recipe_names
from .model.encoder import DisentangledWords, Encoder
from .model.heads import BinaryHead, LinearHead, LMHead
from .model.passes import Measured, Pass
from .tokens import SpecialIds

BACKWARD = {"paper": 1, "hardware": 2}  # of a forward pass; in truth a product has two gradients, of its input and of its weights
CHOSEN = 0.15625  # 20 positions in 128: where the script computes an output softmax
DROPOUT, NORM, GELU, SOFTMAX = 4, 5, 8, 5  # per element, in the script

# Any ids do: they decide no shape.
_SPECIAL = SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)


# ---------------------------------------------------------------- the paper's convention


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
        return (1 + BACKWARD["paper"]) * batch * steps * s.length * per_token

    def lm(s: Sizes, *, batch: float, steps: float, share: float = CHOSEN) -> float:
        return train(batch, steps, s, encoder_flops(s) + share * output_flops(s))

    def electra(s: Sizes, generator: Sizes, *, batch: float, steps: float) -> float:
        return train(batch, steps, s, encoder_flops(s) + binary_flops(s.width)) + lm(generator, batch=batch, steps=steps)

    base, large = Sizes(width=768, layers=12), Sizes(width=1024, layers=24)
    small, small_g = Sizes(width=256, layers=12, length=128, embedding=128), Sizes(width=64, layers=12, length=128, embedding=128)
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
        "roberta": lm(Sizes(width=1024, layers=24, vocab=50265), batch=8000, steps=500_000),
        "albert": lm(Sizes(width=4096, layers=12, vocab=30000, embedding=128), batch=4096, steps=1.5e6),
        "t5_11b": lm(t5, batch=2048, steps=1e6, share=0) + lm(t5_decoder, batch=2048, steps=1e6, share=1),
    }


# ---------------------------------------------------------------- any objective, by either convention


def hardware_flops(network: nn.Module, *, row_length: int) -> float:
    """Forward FLOPs of the matrix products of a network for one token that it runs on."""
    products = sum(2 * m.weight.numel() for m in network.modules() if isinstance(m, nn.Linear))
    match network:
        case Encoder(shape=n):  # scores and weighted sum over the row
            return products + n.num_hidden_layers * 2 * (2 * row_length * n.hidden_size)
        case LMHead(dense=dense, bias_V=bias_V):
            return products + 2 * dense.out_features * len(bias_V)
        case BinaryHead() | LinearHead() | nn.Linear():
            return products
        case _:
            raise TypeError(f"nobody has counted a {type(network).__name__}")


def forward_flops(network: nn.Module, *, row_length: int, convention: Convention) -> float:
    """Forward FLOPs of a network for one token that it runs on, in a row of `row_length` tokens."""
    count = paper_flops if convention == "paper" else hardware_flops
    return count(network, row_length=row_length)


def passes_flops(passes: Iterable[Pass], *, row_length: int, convention: Convention) -> float:
    """FLOPs of forward and backward passes for one token of the batch (heads on a share of the tokens are spread over all)."""
    total = 0.0
    for one in passes:
        share = CHOSEN if convention == "paper" and isinstance(one.network, LMHead) and one.share < 1 else one.share
        times = 1 + BACKWARD[convention] if one.trains else 1
        total += share * times * forward_flops(one.network, row_length=row_length, convention=convention)
    return total


def flops_per_token(objective: Measured, *, row_length: int, convention: Convention) -> float:
    """FLOPs of training `objective`, for one token of the batch (pads are tokens, too) in rows of `row_length`; no optimiser."""
    return passes_flops(objective.passes(), row_length=row_length, convention=convention)


@dataclass(frozen=True, kw_only=True)
class RecipeFlops:
    """What a recipe costs. A run is `max_steps` updates of `train_batch_size` rows of `max_seq_length` tokens."""

    train: float
    """FLOPs of the whole run, with those of the `generator_steps` of a first stage."""
    step: float
    """FLOPs of one update, optimiser apart."""
    token: float
    """FLOPs of training, for one token."""
    inference: float
    """FLOPs of the forward pass of the encoder that is kept (without a head), for one sequence of `max_seq_length` tokens."""
    parameters: int
    """Of the encoder that is kept, embeddings included."""
    max_steps: int
    train_batch_size: int
    max_seq_length: int


def recipe_flops(config: PretrainConfig, *, vocab_size: int, convention: Convention) -> RecipeFlops:
    """The cost of a recipe with a vocabulary of `vocab_size`. Touches no memory."""
    built = _outline(config, vocab_size=vocab_size)
    length, rows, steps = config.data.max_seq_length, config.train.train_batch_size, config.train.max_steps
    encoder = built.halves["discriminator"].encoder
    token = flops_per_token(typing.cast(Measured, built.objective), row_length=length, convention=convention)
    first = 0.0
    if config.train.generator_steps:  # masked language modelling with the generator alone
        half = built.halves["generator"]
        stage = [Pass(half.encoder, 1.0, True), Pass(half.head, config.corruption.mask_rate, True)]
        first = config.train.generator_steps * passes_flops(stage, row_length=length, convention=convention)
    return RecipeFlops(
        train=rows * length * (steps * token + first),
        step=rows * length * token,
        token=token,
        inference=length * forward_flops(encoder, row_length=length, convention=convention),
        parameters=_parameters(encoder),
        max_steps=steps,
        train_batch_size=rows,
        max_seq_length=length,
    )


def _outline(config: PretrainConfig, *, vocab_size: int) -> Built:
    """The recipe's networks without their numbers."""
    with torch.device("meta"):
        return compose(config, Vocabulary(vocab_size, _SPECIAL))


def _parameters(encoder: Encoder) -> int:
    words = encoder.embeddings.words
    below = words.base.weight.numel() if isinstance(words, DisentangledWords) else 0  # the generator's; an export adds the two up
    return sum(p.numel() for p in encoder.parameters()) - below


# ---------------------------------------------------------------- the verb


def report(options: FlopsConfig) -> str:
    """What `electrify flops` prints: a table, or one JSON object."""
    if options.published:
        figures = published()
        whole = {"convention": "paper", "published": figures}
        return json.dumps(whole) if options.json else _table([["model", "train FLOPs"], *([name, _short(x)] for name, x in figures.items())])
    found = {name: _cost(name, options) for name in options.recipes or recipe_names()}
    equal: dict[str, float] = {}
    if options.equal_to:
        budget = _cost(options.equal_to, options).train
        equal = {name: cost.max_steps * budget / cost.train for name, cost in found.items()}  # a first stage grows with the second
    if options.json:
        head = {"convention": options.convention, "vocab_size": options.vocab_size}
        recipes = {name: asdict(cost) | ({"equal_steps": equal[name]} if equal else {}) for name, cost in found.items()}
        return json.dumps(head | ({"equal_to": options.equal_to} if equal else {}) | {"recipes": recipes})
    return _table(_cells(found, equal, equal_to=options.equal_to))


def _cost(name: str, options: FlopsConfig) -> RecipeFlops:
    return recipe_flops(load_recipe(name), vocab_size=options.vocab_size, convention=options.convention)


def _cells(found: dict[str, RecipeFlops], equal: dict[str, float], *, equal_to: str | None) -> list[list[str]]:
    head = ["recipe", "parameters", "batch", "length", "FLOPs/token", "FLOPs/step", "inference/sequence", "train FLOPs", "steps"]
    cells = [head + ([f"steps for {equal_to}'s FLOPs"] if equal else [])]
    for name, c in found.items():
        row = [name, f"{c.parameters:,}", f"{c.train_batch_size:,}", f"{c.max_seq_length:,}"]
        row += [_short(x) for x in (c.token, c.step, c.inference, c.train)] + [f"{c.max_steps:,}"]
        cells.append(row + ([f"{equal[name]:,.0f}"] if equal else []))
    return cells


def _table(cells: list[list[str]]) -> str:
    """Aligned columns: names to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return "\n".join("  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))) for row in cells)


def _short(x: float) -> str:
    """1.29e18: three digits."""
    digits, power = f"{x:.2e}".split("e")
    return f"{digits}e{int(power)}"
