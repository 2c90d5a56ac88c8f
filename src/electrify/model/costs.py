"""What the parts of a transformer cost in FLOPs, by two conventions: the matrix products, by which
the rate of hardware is measured, and the formulas of ELECTRA's public FLOPs script (2003.10555,
Table 1). A multiply-add counts as two operations. flop_counts.py adds the costs up, from the list
of networks that an objective runs in a forward pass (`Pass`).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

CHOSEN = 0.15625  # 20 positions in 128: those for which the script counts an output softmax
# Operations per element, according to the script.
DROPOUT = 4
NORM = 5
GELU = 8
SOFTMAX = 5


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The numbers by which the script describes a transformer. Unless given otherwise, heads are 64
    wide and feed-forward layers 4 D."""

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
    """Attention sub-layers per layer: 2 in a decoder, which also attends to its encoder."""

    @property
    def e(self) -> int:
        return self.width if self.embedding is None else self.embedding


def layer_flops(s: Sizes) -> float:
    """Forward FLOPs of one block for one token, as the script counts.

    Two peculiarities of the script are kept: the norm after attention counts as 5 once instead of 5
    D, and the weighted average and the output product are D wide even if A is not (T5).
    """
    d = s.width
    length = s.length
    a = s.attention or d
    h = s.heads or max(1, d // 64)
    f = s.feed_forward or 4 * d
    qkv = 3 * (2 * d * a + a)
    scores = 2 * a * length + h * length * (SOFTMAX + DROPOUT + 1)
    mixed = 2 * d * length + 2 * d * d + d + DROPOUT * d + d + NORM
    feed_forward = 4 * d * f + f + GELU * f + d + DROPOUT * d + d + NORM * d
    return s.attentions * (qkv + scores + mixed) + feed_forward


def relative_layer_flops(s: Sizes) -> float:
    """Forward FLOPs of one block with disentangled attention for one token, in the manner of the
    script: as for `layer_flops`, plus the products of query and key with every distance between -L
    and L - 1, and two more additions for each score."""
    a = s.attention or s.width
    h = s.heads or max(1, s.width // 64)
    return layer_flops(s) + 2 * (2 * a * 2 * s.length) + 2 * h * s.length


def keys_flops(s: Sizes) -> float:
    """The part of `layer_flops` in which one token becomes a key and a value."""
    a = s.attention or s.width
    return 2 * (2 * s.width * a + a)


def relative_pairs_flops(s: Sizes) -> float:
    """The part of `relative_layer_flops` for one query that depends on the length of the row:
    scores and the weighted average."""
    a = s.attention or s.width
    h = s.heads or max(1, s.width // 64)
    scores = 2 * a * s.length + h * s.length * (SOFTMAX + DROPOUT + 1)
    relative = 2 * (2 * a * 2 * s.length) + 2 * h * s.length
    return scores + relative + 2 * s.width * s.length


def relative_query_flops(s: Sizes) -> float:
    """What is left of `relative_layer_flops`: its query, the output and the feed-forward layers."""
    return relative_layer_flops(s) - keys_flops(s) - relative_pairs_flops(s)


def gated_layer_flops(s: Sizes, *, keys: int) -> float:
    """Forward FLOPs of one pre-norm block with rotary positions, a gated feed-forward layer and no
    biases, for one token that sees `keys` keys, in the manner of the script: multiplications,
    additions and the operations that it lists count as they do there. Rotary positions take three
    operations for each number of queries and keys.
    """
    d = s.width
    h = s.heads or max(1, d // 64)
    f = s.feed_forward or 4 * d
    qkv = 3 * 2 * d * d + 2 * 3 * d
    scores = 2 * d * keys + h * keys * (SOFTMAX + DROPOUT + 1)
    mixed = 2 * d * keys + 2 * d * d + DROPOUT * d + d + NORM * d
    feed_forward = 6 * d * f + GELU * f + f + DROPOUT * d + d + NORM * d
    return qkv + scores + mixed + feed_forward


def words_flops(s: Sizes) -> float:
    """Forward FLOPs of word embeddings alone for one token: a one-hot product, norm, dropout."""
    return 2 * s.e * s.vocab + NORM * s.e + DROPOUT * s.e


def input_flops(s: Sizes) -> float:
    """Forward FLOPs of the input embedding for one token: three one-hot products, their sum, norm,
    dropout, and a projection if E is not D."""
    tables = 2 * s.e * s.vocab + 2 * s.e * (s.length + 2)
    project = 2 * s.width * s.e + s.width if s.e != s.width else 0
    return tables + 2 * s.e + NORM * s.e + DROPOUT * s.e + project


def output_flops(s: Sizes) -> float:
    """Forward FLOPs of a language-model head for one position at which it is computed."""
    return _features_flops(s.width, s.e) + 2 * s.e * s.vocab + SOFTMAX * s.vocab + 2 * s.vocab


def selection_flops(width: int, embedding: int, candidates: int) -> float:
    """The same for a head that scores a few words without a bias. The script has no such head; it
    is counted as its softmax is."""
    return _features_flops(width, embedding) + (2 * embedding + SOFTMAX) * candidates


def _features_flops(width: int, e: int) -> float:
    return 2 * width * e + e + GELU * e + NORM * e


def binary_flops(width: int) -> float:
    """Forward FLOPs of ELECTRA's replaced-token head for one token."""
    return 2 * width * width + width + GELU * width + 2 * width


def encoder_flops(s: Sizes) -> float:
    """Forward FLOPs of embeddings and blocks for one token."""
    return input_flops(s) + s.layers * layer_flops(s)


def linear_flops(network: nn.Module) -> float:
    """Forward FLOPs of the linear layers of a network for one token on which it runs."""
    return sum(2 * m.weight.numel() for m in network.modules() if isinstance(m, nn.Linear))


def paper_linear_flops(linear: nn.Linear) -> float:
    return 2 * linear.weight.numel() + linear.out_features


NEWTON_SCHULZ = 5  # iterations, as torch.optim.Muon does by default


def orthogonal_flops(rows: int, columns: int) -> float:
    """FLOPs of the matrix products with which Muon orthogonalises a matrix: with a the shorter
    side, two products with the matrix and one of [a, a] with itself in each iteration."""
    short = min(rows, columns)
    return NEWTON_SCHULZ * 2 * (2 * short * rows * columns + short**3)


@dataclass(frozen=True)
class MovingShare:
    """A share of the tokens that moves linearly during the run."""

    start: float
    end: float

    def at(self, progress: float) -> float:
        """progress: the share of the run that is done."""
        return self.start * (1 - progress) + self.end * progress


@dataclass(frozen=True)
class Pass:
    """One run of a network in a forward pass of an objective."""

    network: nn.Module
    """An Encoder or the top of one, a Head, or a plain nn.Linear."""
    share: float | MovingShare
    """Share of the tokens on which it runs: 1.0 for every token (padding included), the mask rate
    for the chosen positions."""
    trains: bool
    """False if no gradient is computed (a frozen network): then no backward pass is counted."""
    again_above: int | None = None
    """If a forward pass of the objective has more tokens than this, the network runs a second time
    for its gradient instead of keeping its output. None means never."""

    def share_at(self, progress: float) -> float:
        """The share of the tokens when this share of the run is done."""
        return self.share.at(progress) if isinstance(self.share, MovingShare) else self.share


@dataclass(frozen=True)
class Period:
    """A part of the run in which an objective asks for something of its own."""

    start: float
    """The share of the run that is done when it begins; it ends where the next one begins."""
    passes: list[Pass]
