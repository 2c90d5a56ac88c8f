"""Numbers of sequences from those of their tokens, and back.

Shape suffixes: R rows, L row length, S sequence number, T = R * L flat tokens.
"""

from __future__ import annotations

from torch import Tensor

from ..tokens import Tokens


def per_sequence(values_T: Tensor, tokens: Tokens) -> Tensor:
    """[R, L + 1]: the sum of integers over sequence s of each row (s = 0 is padding)."""
    seq_RL = tokens.seq_T.view(-1, tokens.row_length)
    zero_RS = seq_RL.new_zeros(seq_RL.shape[0], tokens.row_length + 1)
    return zero_RS.scatter_add(1, seq_RL, values_T.view(seq_RL.shape).long())


def of_sequence(values_RS: Tensor, tokens: Tokens) -> Tensor:
    """[T] the value of the sequence that each token belongs to."""
    return values_RS.gather(1, tokens.seq_T.view(tokens.num_rows, -1)).flatten()
