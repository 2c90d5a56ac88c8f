"""Initial values of gated blocks with rotary positions. `published`: as ModernBERT's public code
sets them. `local`: some attention heads look at neighbouring tokens from the first step.

Without biases and without positions in the embeddings, nothing in a hidden state says where a token
is, and nothing is the same for all tokens: so a head that is to look at an offset whatever the
words are needs a dimension that is constant, and reads it as another model reads a bias.

A test checks every line of the tables below. Shape suffixes: V vocabulary, D hidden width, W head
width, C = W / 2 frequencies, H heads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .attention import ContextsByKind, Direction
from .blocks import GatedBlock
from .encoder import Encoder
from .heads import Head, NormedBinaryHead, OneLogit, WordsHead
from .init import (
    BERT_STD,
    NOISE,
    TOKEN_SCALE,
    draw_normal,
    head_offset,
    init_bert,
    local_heads,
)
from .positions import Rotary

CONSTANT = 1
"""How many dimensions, from the first on, hold the constant of `local`."""
# The lowest frequency that says which neighbour it is: it turns once in 128 tokens, as the lowest
# of the sinusoids that `local` puts into position tables.
LOWEST = math.pi / 64


def init_gated(objective: nn.Module, encoders: Sequence[Encoder], rng: torch.Generator) -> None:
    """ModernBERT's initialisation, as its public code and the library have it (2412.13663).

    With t(std) = truncated normal, cut at 2 std:

    | parameter                              | value                    |
    |----------------------------------------|--------------------------|
    | words, qkv, up                         | t(0.02)                   |
    | out, down, dense layers of heads       | t(0.02 / sqrt(2 blocks))  |
    | layers with one output                 | t(1 / sqrt(inputs))      |
    | LayerNorm weights / biases of outputs  | 1 / 0                    |

    The blocks of a head are those of the encoder that it is beside; blocks that two encoders share
    have the depth of the first.
    """
    init_bert(objective, rng)
    done: set[nn.Module] = set()
    for encoder in encoders:
        scaled = BERT_STD / math.sqrt(2 * len(encoder.blocks))
        for block in gated_blocks(encoder, done):
            draw_truncated(block.out, scaled, rng)
            draw_truncated(block.down, scaled, rng)
    for head, depth in heads_with_depth(objective):
        if isinstance(head, WordsHead | NormedBinaryHead):
            draw_truncated(head.dense, BERT_STD / math.sqrt(2 * depth), rng)
        if isinstance(head, OneLogit):
            draw_truncated(head.out, 1 / math.sqrt(head.out.in_features), rng)


def init_local_words(words: nn.Embedding, *, cls: int | None) -> None:
    """Sets the words for `local`, after `init_gated` (whose words are scaled up).

    | parameter   | first dimension | the others               |
    |-------------|-----------------|--------------------------|
    | words       | 0.1              | truncated normal, std 0.1 |
    | [CLS]       | 0               | truncated normal, std 0.1 |

    [CLS], which a classifier reads later, has no constant, so its heads start by averaging over
    what they see.
    """
    with torch.no_grad():
        words.weight.mul_(TOKEN_SCALE / BERT_STD)
        words.weight[:, :CONSTANT] = TOKEN_SCALE
        if cls is not None:
            words.weight[cls, :CONSTANT] = 0


def init_local_gated(
    objective: nn.Module, encoders: Sequence[Encoder], rng: torch.Generator, *, amplitude: float
) -> None:
    """Makes half of the heads look at position i + o_j (o_j = -1, 1, -2, 2, ...), after
    `init_gated`.

    With r = normal 1/sqrt(inputs), and a_c from `offset_amplitudes`:

    | parameter                        | first input                           | other inputs |
    |----------------------------------|---------------------------------------|--------------|
    | key of head j, component c       | (a_c, 0) + 0.3 * r                     | 0.3 * r       |
    | query of head j, component c     | a_c (cos o_j w_c, sin o_j w_c) + 0.3 r | 0.3 * r       |
    | key and query of the other heads | r                                     | r            |
    | value, up                        | r                                     | r            |
    | out, down                        | r / sqrt(2 blocks), no row for the first dimension |    |
    | head of replaced tokens          | r                                     | r            |

    The first dimension of the states then keeps its constant through all blocks, and the logit of
    the preferred position is 4 * amplitude wherever the constant is 1 after the norm, which is
    approximately so.
    """
    done: set[nn.Module] = set()
    with torch.no_grad():
        for encoder in encoders:
            scale = 1 / math.sqrt(2 * len(encoder.blocks))
            for block in gated_blocks(encoder, done):
                draw_normal(block.qkv, rng)
                draw_normal(block.up, rng)
                for layer in (block.out, block.down):
                    draw_normal(layer, rng, scale)
                    layer.weight[:CONSTANT] = 0
                turn_heads(block, rotary_of(encoder, block), amplitude, encoder.direction)
        for head in objective.modules():
            if isinstance(head, NormedBinaryHead):
                draw_normal(head.dense, rng)
                draw_normal(head.out, rng)


def offset_amplitudes(rotary: Rotary, amplitude: float) -> Tensor:
    """[C] amplitudes a_c of a constant query and key whose logit at the preferred offset is 4 *
    amplitude, sum a_c^2 / sqrt(W).

    a_c^2 grows with the root of the frequency w_c, and is 0 below the frequency that turns once in
    128 tokens: high frequencies tell a neighbour from the next, and the lower ones tell it from
    tokens that are a whole turn of the higher ones away (the highest turns once in 6.3 tokens).
    """
    w_C = rotary.frequencies()
    share_C = w_C.sqrt() * (w_C >= LOWEST)
    share_C /= share_C.sum()
    return (4 * amplitude * math.sqrt(rotary.head_width) * share_C).sqrt()


def turn_heads(block: GatedBlock, rotary: Rotary, amplitude: float, direction: Direction) -> None:
    """Sets queries and keys of the local heads, which were drawn before."""
    width = rotary.head_width
    weight = block.qkv.weight
    q_HWD, k_HWD, _ = weight.view(3, block.heads, width, weight.shape[1])
    a_C = offset_amplitudes(rotary, amplitude)
    for head in range(local_heads(block.heads)):
        angle_C = head_offset(head, direction) * rotary.frequencies()
        q_HWD[head].mul_(NOISE)[:, 0] += torch.cat([a_C * angle_C.cos(), a_C * angle_C.sin()])
        k_HWD[head].mul_(NOISE)[:, 0] += torch.cat([a_C, torch.zeros_like(a_C)])


def gated_blocks(encoder: Encoder, done: set[nn.Module]) -> list[GatedBlock]:
    """The encoder's blocks that are not in `done`, to which they are added."""
    blocks = [b for b in encoder.blocks if isinstance(b, GatedBlock) and b not in done]
    done.update(blocks)
    return blocks


def rotary_of(encoder: Encoder, block: GatedBlock) -> Rotary:
    """The rotary positions that a block's attention reads."""
    assert isinstance(encoder.contexts, ContextsByKind)
    rotary = encoder.contexts.reaches[block.kind].rotary
    assert rotary is not None
    return rotary


def heads_with_depth(objective: nn.Module) -> list[tuple[Head, int]]:
    """Every head with the number of blocks of the encoder that it is beside: both are parts of one
    module."""
    found: dict[Head, int] = {}
    for part in objective.modules():
        children = list(part.children())
        depths = [len(child.blocks) for child in children if isinstance(child, Encoder)]
        if depths:
            found |= {child: depths[0] for child in children if isinstance(child, Head)}
    return list(found.items())


def draw_truncated(linear: nn.Linear, std: float, rng: torch.Generator) -> None:
    nn.init.trunc_normal_(linear.weight, std=std, a=-2 * std, b=2 * std, generator=rng)
