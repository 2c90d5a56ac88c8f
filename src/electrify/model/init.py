"""Initial values of post-norm blocks. `bert`: as stated in the papers. `published`: as ELECTRA's
public code sets them. `local`: some attention heads look at neighbouring tokens from the first step
(init_rotary.py has the same for other blocks).

A test checks every line of the tables below. Shape suffixes: E embedding width, D hidden width, P
position subspace, W head width, H heads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from .attention import Direction
from .blocks import Block, GatedBlock
from .embeddings import Embeddings
from .encoder import Encoder
from .heads import BinaryHead, LinearHead
from .shape import Shape

BERT_STD = 0.02
# The scale with which the position subspace and the words of `local` start; at 0.02, Adam would
# overwrite the positions within 20 steps.
TOKEN_SCALE = 0.1
# The scale of the sub-layer outputs of `local`: small, so that in spite of post-norm the position
# subspace stays readable in deep layers.
OUTPUT_SCALE = 0.1
# The scale of the ordinary random weights that `local` keeps in queries and keys.
NOISE = 0.3


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


def draw(p: Tensor, std: float, rng: torch.Generator, *, cut: float) -> None:
    """See `init_bert`."""
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
    e: Embeddings, words: nn.Embedding, width: int, *, scale_words: bool = True
) -> None:
    """Sets words and positions for `local`, after `init_bert` (whose words are scaled up).

    | parameter              | first P dimensions            | the others                  |
    |------------------------|-------------------------------|-----------------------------|
    | words                  | 0                             | truncated normal, std 0.1    |
    | positions              | sinusoids of root mean square 0.1 | truncated normal, std 0.02 |
    | position 0             | 0                             | truncated normal, std 0.02   |
    | segments               | 0                             | truncated normal, std 0.02   |

    Position 0 is [CLS], which a classifier reads later. Without a position vector of its own, its
    heads start by averaging over the sequence. `words` is the table that holds the actual values
    (for a disentangled table, the underlying one); `scale_words` is False for a second encoder that
    shares it with one already done.
    """
    with torch.no_grad():
        if scale_words:
            words.weight.mul_(TOKEN_SCALE / BERT_STD)
        words.weight[:, :width] = 0
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
            _turn_block(block, shape, s, width, encoder.direction, rng)
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


def _turn_block(
    block: nn.Module,
    shape: Shape,
    s: float,
    width: int,
    direction: Direction,
    rng: torch.Generator,
) -> None:
    assert isinstance(block, Block)
    draw_block(block, rng)
    _turn_heads(block.qkv, shape, s, width, direction)


def draw_block(block: Block, rng: torch.Generator) -> None:
    """The matrices of a post-norm block, the last two of them smaller."""
    draw_normal(block.qkv, rng)
    draw_normal(block.up, rng)
    draw_normal(block.out, rng, OUTPUT_SCALE)
    draw_normal(block.down, rng, OUTPUT_SCALE)


def draw_normal(linear: nn.Linear, rng: torch.Generator, scale: float = 1.0) -> None:
    """Normal with deviation scale / sqrt(fan-in)."""
    linear.weight.normal_(std=scale / math.sqrt(linear.in_features), generator=rng)


def _turn_heads(qkv: nn.Linear, shape: Shape, s: float, width: int, direction: Direction) -> None:
    """Sets queries and keys of the local heads, which `init_bert` has drawn before."""
    q_HWD, k_HWD, _ = qkv.weight.view(
        3, shape.num_attention_heads, shape.head_width, shape.hidden_size
    )
    for head in range(local_heads(shape.num_attention_heads)):
        turned = rotation(head_offset(head, direction), width)
        q_HWD[head].mul_(NOISE)[:width, :width] += s * turned
        k_HWD[head].mul_(NOISE)[:width, :width] += s * torch.eye(width)
