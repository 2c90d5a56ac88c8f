"""Initial values of blocks with disentangled attention. `published`: as DeBERTa's public code sets
them. `local`: some attention heads look at neighbouring tokens from the first step.

A query has a bias, and a key of a distance has no word in it: so a head looks at an offset,
whatever the words are, if the bias of its queries meets the key of that distance.

A test checks every line of the tables below. Shape suffixes: V vocabulary, D hidden width, W head
width, H heads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .blocks import DisentangledBlock
from .encoder import Encoder
from .init import (
    BERT_STD,
    NOISE,
    TOKEN_SCALE,
    draw_block,
    head_offset,
    init_bert,
    local_heads,
)
from .relative import TERMS, RelativeContexts


def init_relative(objective: nn.Module, rng: torch.Generator) -> None:
    """DeBERTa's initialisation, as its public code and the library have it (2006.03654).

    | parameter                                 | value           |
    |-------------------------------------------|-----------------|
    | words, table of distances, linear weights | normal, std 0.02 |
    | biases                                    | 0               |
    | LayerNorm weights / biases                | 1 / 0           |
    """
    init_bert(objective, rng, cut=math.inf)


@torch.no_grad()
def init_local_relative(
    tables: Sequence[nn.Embedding],
    encoders: Sequence[Encoder],
    rng: torch.Generator,
    *,
    amplitude: float,
) -> None:
    """Makes half of the heads look at position i + o_j (o_j = -1, 1, -2, 2, ...), after
    `init_relative`. tables: the word tables, each once.

    With r = normal 1/sqrt(inputs), u_j = the normalised row of the distance -o_j, divided by D, and
    s^2 = amplitude * 4 * sqrt(3 / W):

    | parameter                        | value             |
    |----------------------------------|-------------------|
    | words, table of distances        | normal, std 0.1    |
    | bias of the queries of head j    | s                 |
    | key of head j, every component   | s * u_j + 0.3 * r  |
    | query of head j                  | 0.3 * r            |
    | key and query of the other heads | r                 |
    | value, up                        | r                 |
    | attention output, down           | 0.1 * r            |

    The key of the preferred distance is then s in every component, and its score with the bias is
    4 * amplitude; the rows of other distances are nearly orthogonal to it, as are words.
    """
    for table in tables:
        table.weight.mul_(TOKEN_SCALE / BERT_STD)
    done: set[nn.Module] = set()
    for encoder in encoders:
        contexts = contexts_of(encoder)
        if contexts not in done:
            contexts.table.weight.mul_(TOKEN_SCALE / BERT_STD)
        for block in [b for b in encoder.blocks if b not in done]:
            assert isinstance(block, DisentangledBlock)
            draw_block(block, rng)
            turn_heads(block, contexts, amplitude)
        done.update(encoder.blocks, [contexts])


def turn_heads(block: DisentangledBlock, contexts: RelativeContexts, amplitude: float) -> None:
    """Sets queries and keys of the local heads, which were drawn before."""
    width = block.out.in_features // block.heads
    q_HWD, k_HWD, _ = block.qkv.weight.view(3, block.heads, width, -1)
    bias_HW = block.qkv.bias.view(3, block.heads, width)[0]
    size = math.sqrt(4 * amplitude * math.sqrt(TERMS / width))
    for head in range(local_heads(block.heads)):
        u_D = row_of(contexts, -head_offset(head, contexts.direction))
        q_HWD[head].mul_(NOISE)
        k_HWD[head].mul_(NOISE).add_(size * u_D / len(u_D))
        bias_HW[head] = size


def row_of(contexts: RelativeContexts, distance: int) -> Tensor:
    """[D] the row of the table that a distance takes, normalised without a learned scale."""
    most = len(contexts.farthest) - 1
    bucket = math.copysign(contexts.farthest[min(abs(distance), most)], distance)
    row_D = contexts.table.weight[contexts.buckets + int(bucket)]
    return F.layer_norm(row_D, row_D.shape, eps=contexts.norm.eps)


def contexts_of(encoder: Encoder) -> RelativeContexts:
    assert isinstance(encoder.contexts, RelativeContexts)
    return encoder.contexts
