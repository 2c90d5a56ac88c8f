"""DeBERTa's mask decoder: a language model's head that runs the last block of its encoder twice,
with queries that know the absolute position of a token.

Shape suffixes: T flat tokens, M chosen positions, D hidden width.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..tokens import Tokens
from . import costs
from .costs import Pass, Share, linear_flops
from .embeddings import Words
from .encoder import Encoder
from .heads import LMHead
from .shape import Shape

TIMES = 2
"""How often the last block runs."""


class DecodedLMHead(LMHead):
    """An LM head on top of the enhanced mask decoder (DeBERTa, 2006.03654 section 3.2), in the form
    in which the public code has it, also for the generator of DeBERTaV3 (2111.09543).

    With h the states below the last block B and p the table of absolute positions:

        q_0 = h + p,  q_k = B(queries and residual q_(k-1), keys and values h),  k = 1, 2

    and the head reads q_2. The ordinary output of B is not needed, and q only at the positions that
    are asked for. Positions are counted inside each token's sequence, so packed sequences are read
    as single ones.
    """

    def __init__(self, shape: Shape, words: Words) -> None:
        super().__init__(shape, words)
        self.positions = nn.Embedding(shape.max_position_embeddings, shape.hidden_size)

    def read(self, encoder: Encoder, tokens: Tokens, at_M: Tensor) -> Tensor:
        """[M, D] q_2 at these positions, each of which occurs once; the results at padding, and at
        positions that occur more than once, mean nothing."""
        last: Any = encoder.blocks[-1]
        x_TD = encoder.embed(tokens)
        context = encoder.context(tokens, x_TD)
        x_TD = encoder.through(x_TD, context, encoder.blocks[:-1])
        query_MD = (x_TD[at_M] + self.positions(tokens.pos_T[at_M])).to(x_TD.dtype)
        return encoder.read(last.ask(x_TD, context, query_MD, at_M, times=TIMES))

    def passes(self, encoder: Encoder, share: float | Share, *, trains: bool) -> list[Pass]:
        return [
            Pass(Asked(encoder), 1.0, trains),
            Pass(Asking(encoder), share, trains),
            Pass(self, share, trains),
        ]


class Asked(nn.Module):
    """What the decoder runs for every token: the blocks below the last one, the keys and values of
    the last one, and the products of attention, which are not cut to the chosen queries."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def hardware_flops(self, row_length: int) -> float:
        last: Any = self.encoder.blocks[-1]
        pairs = last.attention_flops(row_length)
        below = self.encoder.hardware_flops(row_length) - linear_flops(last) - pairs
        # Two thirds of queries, keys and values side by side.
        return below + 2 / 3 * linear_flops(last.qkv) + TIMES * pairs

    def once_flops(self, row_length: int) -> float:
        """The rows of the table of distances go through the values' weights, too."""
        one = self.encoder.contexts.once_flops(row_length)
        return (len(self.encoder.blocks) - 1) * one + TIMES * 3 / 2 * one

    def paper_flops(self, row_length: int) -> float:
        sizes = self.encoder.sizes(row_length)
        last: Any = self.encoder.blocks[-1]
        below = self.encoder.paper_flops(row_length) - last.paper_flops(sizes)
        return below + costs.keys_flops(sizes) + TIMES * costs.relative_pairs_flops(sizes)


class Asking(nn.Module):
    """What the decoder runs for every chosen position: queries, the output of attention and the
    feed-forward layers."""

    paper_share = costs.CHOSEN

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def hardware_flops(self, row_length: int) -> float:
        last: Any = self.encoder.blocks[-1]
        return TIMES * (linear_flops(last) - 2 / 3 * linear_flops(last.qkv))

    def paper_flops(self, row_length: int) -> float:
        """Includes the position, a one-hot product and a sum, as the script counts a table."""
        sizes = self.encoder.sizes(row_length)
        position = 2 * sizes.width * sizes.length + sizes.width
        return position + TIMES * costs.relative_query_flops(sizes)
