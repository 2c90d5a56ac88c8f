"""Heads: hidden states -> logits. A head does not know its task; it knows its cost, and what it is
exported as. Below them: log-probabilities over the vocabulary, computed with little memory.

Shape suffixes: N tokens asked for or graded, C a chunk of them, V vocabulary, E embedding width, D
hidden width, M chosen positions, T flat tokens.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..tokens import Tokens
from . import costs
from .costs import MovingShare, Pass, linear_flops
from .embeddings import Shape, Words
from .encoder import Encoder

HeadKind = Literal["token", "binary", "vector"]
DECODER_RUNS = 2
"""How often the last block runs in a mask decoder."""


class Head(nn.Module, ABC):
    """[N, D] -> logits, where the rows are those of `inputs`."""

    kind: ClassVar[HeadKind]
    """What it gives for a token: a logit for each word of the vocabulary [N, V], one logit [N], or
    a vector [N, D], which is not exported."""
    paper_share: ClassVar[float | None] = None
    """The share of the tokens on which it runs according to the paper's script, if that differs
    from the actual share."""

    def hardware_flops(self, row_length: int) -> float:
        """FLOPs of the matrix products of a forward pass, for one token on which it runs."""
        return costs.linear_flops(self)

    @abstractmethod
    def paper_flops(self, row_length: int) -> float:
        """The same in the paper's convention (flop_counts.py)."""

    def inputs(self, states_TD: Tensor, tokens: Tokens) -> Tensor:
        """[T, D] what the head reads of each token, from the states of all: the token's own state,
        unless a head says otherwise. Its logits of a token are computed from that row alone."""
        return states_TD

    def read(self, encoder: Encoder, tokens: Tokens, at_M: Tensor) -> Tensor:
        """[M, D] the same at some positions, by running the encoder."""
        return self.inputs(encoder(tokens), tokens)[at_M]

    def passes(self, encoder: Encoder, share: float | MovingShare, *, trains: bool) -> list[Pass]:
        """The networks that `read` at a share of the tokens, and the logits there, run."""
        return [Pass(encoder, 1.0, trains), Pass(self, share, trains)]

    def start_at(self, share: float) -> None:
        """Sets the output bias of a binary head to the log-odds of a share of positives."""
        raise NotImplementedError(f"{type(self).__name__} has no single output")

    def tensors(self) -> dict[str, Tensor]:
        """The parameters by name, without the word table that the head reads."""
        return {name: p for name, p in self.named_parameters() if not name.startswith("words.")}


class WordsHead(Head):
    """dense to E, gelu, LayerNorm, then the word table itself as output embedding. bias: whether
    the layers before the table have biases (ModernBERT's do not)."""

    kind = "token"
    paper_share = costs.CHOSEN

    def __init__(self, shape: Shape, words: Words, *, bias: bool = True) -> None:
        super().__init__()
        self.words: Words = words
        self.dense = nn.Linear(shape.hidden_size, shape.embedding_size, bias=bias)
        self.norm = nn.LayerNorm(shape.embedding_size, eps=shape.layer_norm_eps, bias=bias)

    def features(self, x_ND: Tensor) -> Tensor:
        """[N, E] what is compared with the words."""
        return self.norm(F.gelu(self.dense(x_ND)))


class LMHead(WordsHead):
    """A logit for every word, with a bias (ELECTRA's generator and BERT's head)."""

    def __init__(self, shape: Shape, words: Words, *, bias: bool = True) -> None:
        super().__init__(shape, words, bias=bias)
        self.bias_V = nn.Parameter(self.words.weight.new_zeros(shape.vocab_size))

    def forward(self, x_ND: Tensor) -> Tensor:
        return F.linear(self.features(x_ND), self.words.weight, self.bias_V)

    def hardware_flops(self, row_length: int) -> float:
        return costs.linear_flops(self) + 2 * self.dense.out_features * len(self.bias_V)

    def paper_flops(self, row_length: int) -> float:
        dense = self.dense
        return costs.output_flops(
            costs.Sizes(
                width=dense.in_features,
                layers=0,
                vocab=len(self.bias_V),
                embedding=dense.out_features,
            )
        )


class SelectionHead(WordsHead):
    """A score for each of K words at a token, without a bias (TEAMS, 2106.00139). As a language
    model's head it scores every word, with a bias of 0."""

    def __init__(self, shape: Shape, words: Words, *, candidates: int, bias: bool = True) -> None:
        super().__init__(shape, words, bias=bias)
        self.vocab_size = shape.vocab_size
        self.candidates = candidates

    def choose(self, x_ND: Tensor, ids_NK: Tensor) -> Tensor:
        """[N, K] the scores of these words."""
        return (self.words(ids_NK) @ self.features(x_ND)[:, :, None]).squeeze(-1)

    def forward(self, x_ND: Tensor) -> Tensor:
        return F.linear(self.features(x_ND), self.words.weight)

    def hardware_flops(self, row_length: int) -> float:
        return costs.linear_flops(self) + 2 * self.dense.out_features * self.candidates

    def paper_flops(self, row_length: int) -> float:
        dense = self.dense
        return costs.selection_flops(dense.in_features, dense.out_features, self.candidates)

    def tensors(self) -> dict[str, Tensor]:
        """The parameters, with the bias of 0 that the library's class has."""
        return super().tensors() | {"bias_V": self.dense.weight.new_zeros(self.vocab_size)}


class OneLogit(Head):
    """A head with one logit a token, from an output layer of one row."""

    kind = "binary"
    out: nn.Linear

    @torch.no_grad()
    def start_at(self, share: float) -> None:
        self.out.bias.fill_(math.log(share / (1 - share)))


class LinearHead(OneLogit):
    """w . h + b: one logit a token (energies of Electric, the copy gate of All-Tokens MLM, the
    baseline of adversarial training)."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.out = nn.Linear(hidden_size, 1)

    def forward(self, x_ND: Tensor) -> Tensor:
        return self.out(x_ND).squeeze(-1)

    def paper_flops(self, row_length: int) -> float:
        return costs.paper_linear_flops(self.out)


class BinaryHead(OneLogit):
    """w . gelu(W h): one logit a token (ELECTRA 2003.10555, discriminator predictions)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.dense = nn.Linear(shape.hidden_size, shape.hidden_size)
        self.out = nn.Linear(shape.hidden_size, 1)

    def forward(self, x_ND: Tensor) -> Tensor:
        return self.out(F.gelu(self.dense(x_ND))).squeeze(-1)

    def paper_flops(self, row_length: int) -> float:
        return costs.binary_flops(self.dense.in_features)


class ClsBinaryHead(OneLogit):
    """w . gelu(W LayerNorm(h + h_CLS)) + b: one logit a token, which also reads the first token of
    its sequence (DeBERTaV3 2111.09543, the public code)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.hidden_size
        self.norm = nn.LayerNorm(width, eps=shape.layer_norm_eps)
        self.dense = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)

    def inputs(self, states_TD: Tensor, tokens: Tokens) -> Tensor:
        # Gathered in float32 at least, because the gradient of a first token is a sum over its
        # sequence.
        wide = torch.promote_types(states_TD.dtype, torch.float32)
        return states_TD + states_TD.to(wide)[tokens.start_T].to(states_TD.dtype)

    def forward(self, x_ND: Tensor) -> Tensor:
        return self.out(F.gelu(self.dense(self.norm(x_ND)))).squeeze(-1)

    def paper_flops(self, row_length: int) -> float:
        """That of `BinaryHead`, plus the sum of two states and the norm, which count as the script
        counts them."""
        width = self.dense.in_features
        return width + costs.NORM * width + costs.binary_flops(width)


class VectorHead(Head):
    """LN(gelu(W h)): a vector for the [CLS] of a sequence (COCO-LM, 2102.08473 section 3.2)."""

    kind = "vector"

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size)

    def forward(self, x_ND: Tensor) -> Tensor:
        return self.norm(F.gelu(self.dense(x_ND)))

    def paper_flops(self, row_length: int) -> float:
        return costs.paper_linear_flops(self.dense)


class NormedBinaryHead(OneLogit):
    """w . LayerNorm(gelu(W h)) + b, without other biases: one logit a token (the form of every head
    of ModernBERT in the library)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.hidden_size
        self.dense = nn.Linear(width, width, bias=False)
        self.norm = nn.LayerNorm(width, eps=shape.layer_norm_eps, bias=False)
        self.out = nn.Linear(width, 1)

    def forward(self, x_ND: Tensor) -> Tensor:
        return self.out(self.norm(F.gelu(self.dense(x_ND)))).squeeze(-1)

    def paper_flops(self, row_length: int) -> float:
        width = self.dense.in_features
        return costs.binary_flops(width) + costs.NORM * width


class MaskedLM(nn.Module):
    """Encoder and LM head: a generator, or BERT itself. Logits are computed only at the given
    positions."""

    def __init__(self, encoder: Encoder, head: Head) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    def states(self, tokens: Tokens, at_M: Tensor) -> Tensor:
        """The input of the head, [M, D]."""
        return self.head.read(self.encoder, tokens, at_M)


@dataclass(frozen=True)
class Network:
    encoder: Encoder
    head: Head


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
        return encoder.read(last.ask(x_TD, context, query_MD, at_M, times=DECODER_RUNS))

    def passes(self, encoder: Encoder, share: float | MovingShare, *, trains: bool) -> list[Pass]:
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
        return below + 2 / 3 * linear_flops(last.qkv) + DECODER_RUNS * pairs

    def once_flops(self, row_length: int) -> float:
        """The rows of the table of distances go through the values' weights, too."""
        one = self.encoder.contexts.once_flops(row_length)
        return (len(self.encoder.blocks) - 1) * one + DECODER_RUNS * 3 / 2 * one

    def paper_flops(self, row_length: int) -> float:
        sizes = self.encoder.sizes(row_length)
        last: Any = self.encoder.blocks[-1]
        below = self.encoder.paper_flops(row_length) - last.paper_flops(sizes)
        return below + costs.keys_flops(sizes) + DECODER_RUNS * costs.relative_pairs_flops(sizes)


class Asking(nn.Module):
    """What the decoder runs for every chosen position: queries, the output of attention and the
    feed-forward layers."""

    paper_share = costs.CHOSEN

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def hardware_flops(self, row_length: int) -> float:
        last: Any = self.encoder.blocks[-1]
        return DECODER_RUNS * (linear_flops(last) - 2 / 3 * linear_flops(last.qkv))

    def paper_flops(self, row_length: int) -> float:
        """Includes the position, a one-hot product and a sum, as the script counts a table."""
        sizes = self.encoder.sizes(row_length)
        position = 2 * sizes.width * sizes.length + sizes.width
        return position + DECODER_RUNS * costs.relative_query_flops(sizes)


# ------------------------------------------------------------------ log-probabilities


# The number of tokens whose logits over the vocabulary exist at the same time: with 30 522 words
# they take 125 MB in bfloat16, and their probabilities 250 MB.
CHUNK = 2048


class _TokenCE(torch.autograd.Function):
    """Cross-entropy from probabilities, which are computed once, here or by the code that sampled
    from them. The gradient needs nothing else."""

    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, target_N: Tensor, p_NV: Tensor) -> Tensor:
        ctx.save_for_backward(p_NV, target_N)
        ctx.dtype = logits_NV.dtype
        if torch.compiler.is_compiling():
            # The same, by way of the softmax: so its kernel finds it. The compiler does not join
            # passes over the same logits that are far apart in the graph.
            highest_N = logits_NV.gather(-1, likeliest(p_NV)[:, None]).squeeze(-1)
        else:
            highest_N = logits_NV.amax(-1)
        behind_N = highest_N.float() - logits_NV.gather(-1, target_N[:, None]).squeeze(-1).float()
        # The highest probability is at least 1 / V, but that of the target may be 0 in float32.
        return behind_N - p_NV.amax(-1).log()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        p_NV, target_N = ctx.saved_tensors
        gradient_N1 = grads[0][:, None]
        gradient_NV = p_NV * gradient_N1
        if torch.compiler.is_compiling():
            # The same numbers in one kernel; scatter_add_ would write float32 and read it again.
            word_V = torch.arange(p_NV.shape[1], device=p_NV.device)
            here_NV = word_V == target_N[:, None]
            gradient_NV = torch.where(here_NV, gradient_NV - gradient_N1, gradient_NV)
        else:
            gradient_NV.scatter_add_(-1, target_N[:, None], -gradient_N1)
        return gradient_NV.to(ctx.dtype), None, None


def token_ce(logits_NV: Tensor, target_N: Tensor, p_NV: Tensor | None = None) -> Tensor:
    """[N] cross-entropy in nats, float32. p_NV: softmax(logits) in float32, if it is already
    known."""
    if p_NV is None:
        p_NV = logits_NV.detach().softmax(-1, dtype=torch.float32)
    loss_N = _TokenCE.apply(logits_NV, target_N, p_NV)
    assert isinstance(loss_N, Tensor)
    return loss_N


def likeliest(score_NV: Tensor) -> Tensor:
    """The token with the highest logit (or probability), [N]. It is computed in float32, because on
    a CPU the argmax of bfloat16 takes nine times as long."""
    return score_NV.float().argmax(-1)


def log_probability(head: nn.Module, states_ND: Tensor, target_N: Tensor) -> tuple[Tensor, Tensor]:
    """[N] log softmax(head(states))[target] in float32 with gradient, and [N] whether target is the
    most probable one.

    It works in chunks, whose logits are computed again in the backward pass, so that memory does
    not grow with the number of tokens.
    """

    def chunk(states_CD: Tensor, target_C: Tensor) -> tuple[Tensor, Tensor]:
        logits_CV = head(states_CD)
        return -token_ce(logits_CV, target_C), likeliest(logits_CV.detach()) == target_C

    parts: list[Any] = []
    for start in range(0, max(len(target_N), 1), CHUNK):
        some = states_ND[start : start + CHUNK], target_N[start : start + CHUNK]
        again = torch.is_grad_enabled() and len(target_N) > CHUNK
        parts.append(
            checkpoint(chunk, *some, use_reentrant=False, preserve_rng_state=False)
            if again
            else chunk(*some)
        )
    log_p_N, right_N = (torch.cat(list(x)) for x in zip(*parts, strict=True))
    return log_p_N, right_N
