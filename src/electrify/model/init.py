"""Initial values. `bert`: as stated in the papers. `published`: as the public code of the
architecture sets them. `local`: some attention heads look at neighbouring tokens from the first
step.

How a local head looks at an offset, whatever the words are, depends on the blocks:

- post-norm: a part of the embeddings holds the position, as sinusoids
- disentangled: a query has a bias, and a key of a distance has no word in it; the bias of the
  queries meets the key of that distance
- gated, with rotary positions: without biases and without positions in the embeddings, nothing in a
  hidden state says where a token is, and nothing is the same for all tokens. So one dimension is
  constant, and such a head reads it as another model reads a bias.

A test checks every line of the tables below. Shape suffixes: V vocabulary, E embedding width, D
hidden width, P position subspace, W head width, C = W / 2 frequencies, H heads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import ContextsByKind, Direction, Rotary
from .blocks import Block, DisentangledBlock, GatedBlock
from .embeddings import Embeddings, Shape
from .encoder import Encoder
from .heads import BinaryHead, Head, LinearHead, NormedBinaryHead, OneLogit, WordsHead
from .relative import TERMS, RelativeContexts

BERT_STD = 0.02
# The scale with which the position subspace and the words of `local` start; at 0.02, Adam would
# overwrite the positions within 20 steps.
TOKEN_SCALE = 0.1
# The scale of the sub-layer outputs of `local`: small, so that in spite of post-norm the position
# subspace stays readable in deep layers.
OUTPUT_SCALE = 0.1
# The scale of the ordinary random weights that `local` keeps in queries and keys.
NOISE = 0.3
CONSTANT = 1
"""How many dimensions, from the first on, hold the constant of `local`."""
# The lowest frequency that says which neighbour it is: it turns once in 128 tokens, as the lowest
# of the sinusoids that `local` puts into position tables.
LOWEST = math.pi / 64


def init_bert(
    module: nn.Module, rng: torch.Generator, *, std: float = BERT_STD, cut: float = 2.0
) -> None:
    """BERT's initialisation, which the papers state for ELECTRA, too. cut: after this many standard
    deviations; infinite for a normal distribution.

    | parameter                         | value                                        |
    |-----------------------------------|----------------------------------------------|
    | Linear and Embedding weights      | truncated normal, std 0.02, cut at 2 std      |
    | Linear biases, LM output bias     | 0                                            |
    | LayerNorm weights / biases        | 1 / 0                                        |
    | others                            | what their constructor set                   |
    """
    seen: set[int] = set()
    for part in module.modules():
        for name, p in part.named_parameters(recurse=False):
            if id(p) in seen:  # a shared table is drawn only once
                continue
            seen.add(id(p))
            with torch.no_grad():
                if isinstance(part, nn.LayerNorm):
                    p.fill_(1.0 if name == "weight" else 0.0)
                elif not isinstance(part, nn.Linear | nn.Embedding):
                    continue  # also the LM output bias, which is made as 0
                elif name == "weight":
                    draw(p, std, rng, cut=cut)
                elif name == "bias":
                    p.zero_()


def draw(p: Tensor, std: float, rng: torch.Generator, *, cut: float = 2.0) -> None:
    """Normal, cut at `cut` standard deviations; an infinite one cuts nothing."""
    if math.isinf(cut):
        nn.init.normal_(p, std=std, generator=rng)
    else:
        nn.init.trunc_normal_(p, std=std, a=-cut * std, b=cut * std, generator=rng)


def init_published(module: nn.Module, rng: torch.Generator) -> None:
    """The values from which ELECTRA's public code actually starts, set after `init_bert`. Two kinds
    of layers do not name an initialiser there (modeling.py, embeddings_project; run_pretraining.py,
    the logit of the discriminator) and get TensorFlow's default:

    - the projection of the embeddings, of every encoder
    - layers with one output: the logit of replaced tokens, and those of energy, copy gate, baseline
      and sentence

    Both are uniform, +- sqrt(6 / (fan in + fan out)): Glorot.

    The standard deviation is sqrt(2 / (fan in + fan out)): for ELECTRA-Small 0.072 and 0.102
    (projection of discriminator and generator) and 0.088 (logit), where `bert` has 0.018. The dense
    layer below the logit is truncated normal in the public code, too.
    """
    linear: list[nn.Linear] = []
    for part in module.modules():
        if isinstance(part, Encoder) and part.project is not None:
            linear.append(part.project)
        elif isinstance(part, BinaryHead | LinearHead):
            linear.append(part.out)
    with torch.no_grad():
        for layer in linear:
            nn.init.xavier_uniform_(layer.weight, generator=rng)


# ------------------------------------------------------------------ post-norm blocks


def position_subspace(num_positions: int, width: int) -> Tensor:
    """[positions, P]: pairs (sin, cos) of P/2 frequencies pi/2 * 32^(-c / (P/2)), each of unit mean
    square: neighbours are a quarter turn apart at the highest frequency, and the lowest one turns
    once in about 128 tokens."""
    n = width // 2
    angle = torch.arange(num_positions)[:, None] * (math.pi / 2) * 32.0 ** (-torch.arange(n) / n)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1) * math.sqrt(2)


def rotation(offset: int, width: int) -> Tensor:
    """[P, P] that turns the subspace vector of position i into that of position i + offset."""
    n = width // 2
    turn = offset * (math.pi / 2) * 32.0 ** (-torch.arange(n) / n)
    pair = torch.stack(
        [torch.stack([turn.cos(), turn.sin()], -1), torch.stack([-turn.sin(), turn.cos()], -1)], -2
    )
    return torch.block_diag(*pair)


def head_offset(head: int, direction: Direction = "both") -> int:
    """-1, 1, -2, 2, -3, 3, ...: where head 0, 1, 2, ... looks; 0, -1, -2, ... in an encoder that
    sees only the left side, 0, 1, 2, ... in one that sees only the right."""
    if direction != "both":
        return -head if direction == "left" else head
    return (head // 2 + 1) * (-1 if head % 2 == 0 else 1)


def local_heads(num_attention_heads: int) -> int:
    """How many heads of a layer look at a neighbour: the first half of them, and at least two.

    The other heads are free to average over the sequence, as [CLS], and so a classifier, needs.
    """
    return max(min(2, num_attention_heads), num_attention_heads // 2)


def subspace_width(*shapes: Shape) -> int:
    """The width of the position subspace, an even number. It is as wide as the narrowest head, so
    that the heads of both generator and discriminator can read it, but at most half as wide as
    embeddings and hidden states, so that the words keep the other half."""
    return (
        min(min(s.head_width, s.embedding_size // 2, s.hidden_size // 2) for s in shapes) // 2 * 2
    )


def init_local_embeddings(
    tables: Iterable[nn.Embedding], embeddings: Iterable[Embeddings], width: int
) -> None:
    """Sets words and positions for `local`, after `init_bert` (whose words are scaled up).

    | parameter              | first P dimensions            | the others                  |
    |------------------------|-------------------------------|-----------------------------|
    | words                  | 0                             | truncated normal, std 0.1    |
    | positions              | sinusoids of root mean square 0.1 | truncated normal, std 0.02 |
    | position 0             | 0                             | truncated normal, std 0.02   |
    | segments               | 0                             | truncated normal, std 0.02   |

    Position 0 is [CLS], which a classifier reads later. Without a position vector of its own, its
    heads start by averaging over the sequence. `tables` hold the values of the words, a shared one
    once.
    """
    with torch.no_grad():
        for words in tables:
            words.weight.mul_(TOKEN_SCALE / BERT_STD)
            words.weight[:, :width] = 0
        for e in embeddings:
            e.segments.weight[:, :width] = 0
            e.positions.weight[:, :width] = TOKEN_SCALE * position_subspace(
                len(e.positions.weight), width
            )
            e.positions.weight[0, :width] = 0


def init_words(words: nn.Embedding, vectors_VK: Tensor, *, local_width: int = 0) -> None:
    """Sets the words to given vectors, after the other initialisations: the K dimensions after a
    position subspace of `local_width`.

    Rows of root mean square 1 are scaled to that of the words (0.02, or 0.1 with `local`); for a
    row of zeros the drawn values stay.
    """
    known_V = vectors_VK.any(1)
    with torch.no_grad():
        rows = words.weight[:, local_width:]
        rows[known_V] = (TOKEN_SCALE if local_width else BERT_STD) * vectors_VK[known_V]


def init_local_head(head: BinaryHead, rng: torch.Generator) -> None:
    """Sets a replaced-token head for `local`, after `init_bert`: dense layer and output row are
    normal with deviation 1/sqrt(fan-in).

    At 0.02 the product of the two keeps the discriminator on a plateau of its own, long after its
    encoder could tell the difference (research/log.md). The language-model head stays at 0.02,
    because larger values were not better there.
    """
    with torch.no_grad():
        for linear in (head.dense, head.out):
            linear.weight.normal_(std=1 / math.sqrt(linear.in_features), generator=rng)


def init_local_blocks(
    encoder: Encoder,
    width: int,
    rng: torch.Generator,
    *,
    amplitude: float,
    done: set[nn.Module] | None = None,
) -> None:
    """Makes half of the heads look at position i + o_j (o_j = -1, 1, -2, 2, ...), after
    `init_bert`.

    With r = normal 1/sqrt(fan-in):

    | parameter                        | value                                               |
    |----------------------------------|-----------------------------------------------------|
    | embedding projection             | identity on the subspace, r elsewhere, 0 between    |
    | key of head j                    | s * identity on the subspace + 0.3 * r               |
    | query of head j                  | s * rotation by o_j on the subspace + 0.3 * r        |
    | key and query of the other heads | r                                                   |
    | value, up                        | r                                                   |
    | attention output, down           | 0.1 * r                                              |

    with s = sqrt(amplitude * 4 * sqrt(W) / P): the logit of the preferred position starts at 4 *
    amplitude. Only initial values differ from `bert`. done: blocks that another encoder shares and
    has filled; these are added.
    """
    shape = encoder.shape
    done = set() if done is None else done
    with torch.no_grad():
        if encoder.project is not None:
            draw_normal(encoder.project, rng)
            encoder.project.weight[:width] = 0
            encoder.project.weight[:, :width] = 0
            encoder.project.weight[:width, :width] = torch.eye(width)
        s = math.sqrt(amplitude * 4 * math.sqrt(shape.head_width) / width)
        for block in [b for b in encoder.blocks if b not in done]:
            assert isinstance(block, Block)
            draw_block(block, rng)
            turn_heads(block, shape, s, width, encoder.direction)
        done.update(encoder.blocks)


def init_scaled_outputs(encoders: Iterable[Encoder]) -> None:
    """Multiplies the outputs of attention and feed-forward layers by 1 / sqrt(2 * blocks), after
    the other initialisations (ModernBERT, 2412.13663, for its output layers). A block that two
    encoders share has the depth of the first."""
    done: set[nn.Module] = set()
    with torch.no_grad():
        for encoder in encoders:
            factor = 1 / math.sqrt(2 * len(encoder.blocks))
            for block in [b for b in encoder.blocks if b not in done]:
                assert isinstance(block, Block | GatedBlock)
                block.out.weight.mul_(factor)
                block.down.weight.mul_(factor)
            done.update(encoder.blocks)


def draw_block(block: Block, rng: torch.Generator) -> None:
    """The matrices of a post-norm block, the last two of them smaller."""
    draw_normal(block.qkv, rng)
    draw_normal(block.up, rng)
    draw_normal(block.out, rng, OUTPUT_SCALE)
    draw_normal(block.down, rng, OUTPUT_SCALE)


def draw_normal(linear: nn.Linear, rng: torch.Generator, scale: float = 1.0) -> None:
    """Normal with deviation scale / sqrt(fan-in)."""
    linear.weight.normal_(std=scale / math.sqrt(linear.in_features), generator=rng)


def turn_heads(block: Block, shape: Shape, s: float, width: int, direction: Direction) -> None:
    """Sets queries and keys of the local heads, which were drawn before."""
    q_HWD, k_HWD, _ = block.qkv.weight.view(
        3, shape.num_attention_heads, shape.head_width, shape.hidden_size
    )
    for head in range(local_heads(shape.num_attention_heads)):
        turned = rotation(head_offset(head, direction), width)
        q_HWD[head].mul_(NOISE)[:width, :width] += s * turned
        k_HWD[head].mul_(NOISE)[:width, :width] += s * torch.eye(width)


# ------------------------------------------------------------------ disentangled blocks


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
            turn_disentangled_heads(block, contexts, amplitude)
        done.update(encoder.blocks, [contexts])


def turn_disentangled_heads(
    block: DisentangledBlock, contexts: RelativeContexts, amplitude: float
) -> None:
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


# ------------------------------------------------------------------ gated blocks


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
            draw(block.out.weight, scaled, rng)
            draw(block.down.weight, scaled, rng)
    for head, depth in heads_with_depth(objective):
        if isinstance(head, WordsHead | NormedBinaryHead):
            draw(head.dense.weight, BERT_STD / math.sqrt(2 * depth), rng)
        if isinstance(head, OneLogit):
            draw(head.out.weight, 1 / math.sqrt(head.out.in_features), rng)


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
                turn_gated_heads(block, rotary_of(encoder, block), amplitude, encoder.direction)
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


def turn_gated_heads(
    block: GatedBlock, rotary: Rotary, amplitude: float, direction: Direction
) -> None:
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
