"""Which positions are chosen for corruption, and the plan of a batch.

Plan: everything that is decided about a batch before any network runs: the chosen positions, the
tokens shown there, the random numbers for sampling, and the number of tokens by which each loss is
divided. It depends on tokens and draws alone, so the loader's thread makes it on the CPU, and a
forward pass chooses nothing.

Chooser: how many positions in each sequence, as single tokens, whole words or spans, uniformly or
preferring rare ones.

Shape suffixes: R rows, L row length, S sequence number, T = R * L flat tokens, M chosen positions,
V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor

from ..draws import Draws
from ..model.costs import MovingShare
from ..tokens import SpecialIds, Tokens, WordEdges, per_sequence

P = TypeVar("P", bound="Plan")

# A list of fixed length has SPARE times the expected number of places, STEP times as many if a
# batch needs them, and always a multiple of WHOLE.
SPARE = 1.05
STEP = 1.25
WHOLE = 64


@dataclass(frozen=True)
class Plan:
    """A method with more to decide has a subclass; its tensors, alone, in dicts or in other
    dataclasses, travel with the others."""

    at_M: Tensor
    """Chosen positions, flat, ascending; filled up with 0 where the list has a fixed length."""
    candidates_T: Tensor
    """True for every token that may be chosen: all but the special ones."""
    progress: Tensor
    """Share of the run that is done (0-dim float32), for a corruptor's schedules."""
    valid_M: Tensor | None = None
    """Which entries of at_M are chosen positions; None where all are."""
    shown_M: Tensor | None = None
    """The tokens that a language model is shown at the chosen positions: [MASK], the original, or a
    random token."""
    uniform_M: Tensor | None = None
    """float64 in [0, 1): the random numbers with which the new tokens are drawn."""
    counts: dict[str, Tensor] = field(default_factory=dict)
    """How many tokens each loss divides by, 0-dim, whatever the networks say."""

    def counting(self: P, **counts: Tensor) -> P:
        """The same plan with the counts of further losses."""
        return replace(self, counts=self.counts | counts)


def positions(chosen_T: Tensor, *, fixed_for: float | None) -> tuple[Tensor, Tensor | None]:
    """at_M and valid_M. fixed_for: the share of the tokens that is usually chosen; the list then
    has one of a few lengths, so that a compiled step (and a CUDA graph of it) fits every batch.
    None: as many as there are.

    The fillers point to the batch's first token, a [CLS], which is never chosen.
    """
    at_M = chosen_T.nonzero().squeeze(1)
    if fixed_for is None:
        return at_M, None
    number = len(at_M)
    length = min(enough(SPARE * fixed_for * len(chosen_T), number), len(chosen_T))
    filled_M = at_M.new_zeros(length)
    filled_M[:number] = at_M
    return filled_M, torch.arange(length, device=at_M.device) < number


def enough(expected: float, number: int) -> int:
    """One of few sizes that hold the number."""
    size = _whole(expected)
    while size < number:
        size = _whole(STEP * size)
    return size


def _whole(number: float) -> int:
    """At least one step, from which a larger size can be reached."""
    return WHOLE * max(1, -(-int(number) // WHOLE))


def count(plan: Plan) -> Tensor:
    """How many positions are chosen, 0-dim."""
    return torch.tensor(len(plan.at_M)) if plan.valid_M is None else plan.valid_M.sum()


class Candidates:
    """True for every token that may be chosen: all except the special ones. [UNK] may be chosen."""

    def __init__(self, special: SpecialIds, vocab_size: int) -> None:
        self.allowed_V = torch.ones(vocab_size, dtype=torch.bool)
        self.allowed_V[list(special.never_chosen)] = False

    def __call__(self, tokens: Tokens) -> Tensor:
        return self.allowed_V[tokens.ids_T] & tokens.real_T


def wanted(tokens: Tokens, candidate_T: Tensor, rate: float) -> Tensor:
    """[R, L + 1]: how many positions to choose in sequence s of each row: max(1, round(rate *
    tokens)), capped by its candidates; 0 for padding (s = 0)."""
    length_RS = per_sequence(torch.ones_like(tokens.seq_T), tokens)
    # In float64, half to even, as Python's round(); in float32 0.15 * 190 lies above 28.5.
    want_RS = torch.minimum(
        (length_RS.double() * rate).round().long().clamp(min=1), per_sequence(candidate_T, tokens)
    )
    want_RS[:, 0] = 0
    return want_RS


class Chooser:
    """Chooses `wanted` positions in every sequence, without replacement. Published methods differ
    only in the arguments:

    - BERT, ELECTRA: uniform over the candidates, so neither edges nor weight_V
    - whole words (BERT's later release): edges
    - strategic, rare tokens more often (2003.10555, appendix of negative results): weight_V is
      -log frequency
    - sequences left whole, for a sentence-level head (same appendix): clean_rate 0.2
    - spans of 1 to 3 tokens (LTG-BERT, 2303.09859): span_length 3
    - a share that falls during the run: rate_end

    rate_end: the rate at the end of the run, reached linearly. edges: how tokens join into words.
    Words are then taken whole, in random order, as long as at least half of the next one fits into
    the number wanted (the first always is), so a sequence gets that number, give or take half a
    word. span_length: each sequence is cut at random into spans of 1 to this many tokens, all
    lengths equally likely, which are taken as words are. weight_V: positive; without replacement,
    the chance of being drawn next is proportional to it (with whole words and spans, to that of the
    first token). clean_rate: share of the sequences left whole.
    """

    def __init__(
        self,
        special: SpecialIds,
        vocab_size: int,
        *,
        rate: float,
        rate_end: float | None = None,
        clean_rate: float = 0.0,
        edges: WordEdges | None = None,
        span_length: int = 1,
        weight_V: Tensor | None = None,
    ) -> None:
        self.rate = rate
        self.rate_end = rate if rate_end is None else rate_end
        self.clean_rate = clean_rate
        self.candidates = Candidates(special, vocab_size)
        self.edges = edges
        self.span_length = span_length
        self.weight_V = weight_V

    @property
    def share(self) -> float | MovingShare:
        """The approximate share of all tokens that is chosen."""
        start, end = (rate * (1 - self.clean_rate) for rate in (self.rate, self.rate_end))
        return start if start == end else MovingShare(start, end)

    def rate_at(self, draws: Draws) -> float:
        return self.rate + (self.rate_end - self.rate) * float(draws.progress)

    def wanted(self, tokens: Tokens, candidate_T: Tensor, draws: Draws) -> Tensor:
        """[R, L + 1], like the function `wanted`, but 0 for sequences that are left uncorrupted."""
        want_RS = wanted(tokens, candidate_T, self.rate_at(draws))
        if not self.clean_rate:
            return want_RS
        # A sequence's own draw is that of its first token.
        first_T = tokens.first_T
        clean_RS = per_sequence(first_T & (draws.uniform_T("sentence") < self.clean_rate), tokens)
        return want_RS * (clean_RS == 0)

    def plan(self, tokens: Tokens, draws: Draws, *, fixed: bool = False) -> Plan:
        """The chosen positions. fixed: pad the list to one of a few lengths."""
        candidate_T = self.candidates(tokens)
        largest = max(self.rate, self.rate_end) * (1 - self.clean_rate)
        at_M, valid_M = positions(
            self.chosen(tokens, candidate_T, draws), fixed_for=largest if fixed else None
        )
        return Plan(at_M, candidate_T, draws.progress, valid_M)

    def chosen(self, tokens: Tokens, candidate_T: Tensor, draws: Draws) -> Tensor:
        """[T] True at the chosen positions."""
        seq_RL, candidate_RL = (t.view(-1, tokens.row_length) for t in (tokens.seq_T, candidate_T))
        key_RL = self.keys(tokens, draws).view(seq_RL.shape)
        units = self.edges is not None or self.span_length > 1
        if units:
            key_RL = key_RL.gather(1, self.unit_starts(tokens, candidate_T, draws))
        # One integer orders a row by sequence, candidates first, then at random: 15 bits, 1 bit, 47
        # bits.
        key_RL = (seq_RL << 48) | ((~candidate_RL).long() << 47) | (key_RL >> 6)
        sorted_key_RL, order_RL = key_RL.sort(1)
        sorted_RL = sorted_key_RL >> 48
        # This is where a token's sequence begins in the sorted row.
        first_RL = torch.searchsorted(sorted_RL, sorted_RL)
        want_RL = self.wanted(tokens, candidate_T, draws).gather(1, sorted_RL)
        if not units:
            rank_RL = torch.arange(tokens.row_length, device=seq_RL.device) - first_RL
            take_RL = rank_RL < want_RL
        else:
            # The tokens of a word or span have one key: its place is [start, stop) of the
            # sequence's candidates.
            start_RL = torch.searchsorted(sorted_key_RL, sorted_key_RL) - first_RL
            stop_RL = torch.searchsorted(sorted_key_RL, sorted_key_RL, right=True) - first_RL
            fits_RL = (start_RL + stop_RL <= 2 * want_RL) | (start_RL == 0)
            take_RL = fits_RL & (want_RL > 0) & candidate_RL.gather(1, order_RL)
        return torch.zeros_like(take_RL).scatter(1, order_RL, take_RL).flatten()

    def keys(self, tokens: Tokens, draws: Draws) -> Tensor:
        """53 bits for every token; the smallest of a sequence are taken first."""
        bits_T = draws.bits_T("choose")
        if self.weight_V is None:
            return bits_T
        # Largest u^(1/w) first is a draw without replacement in proportion to w (Efraimidis and
        # Spirakis 2006).
        u_T = (bits_T.double() + 0.5) * 2.0**-53
        return (
            ((-torch.expm1(u_T.log() / self.weight_V[tokens.ids_T])) * 2.0**53)
            .long()
            .clamp(max=(1 << 53) - 1)
        )

    def unit_starts(self, tokens: Tokens, candidate_T: Tensor, draws: Draws) -> Tensor:
        """[R, L]: where in its row the word or span of each token begins. A token that may not be
        chosen is a word by itself."""
        candidate_RL, ids_RL = (t.view(-1, tokens.row_length) for t in (candidate_T, tokens.ids_T))
        joins_RL = torch.zeros_like(candidate_RL)
        joins_RL[:, 1:] = candidate_RL[:, 1:] & candidate_RL[:, :-1]
        if self.edges is not None:
            joins_RL[:, 1:] &= self.edges.joins(ids_RL[:, :-1], ids_RL[:, 1:])
        begins_RL = ~joins_RL | (tokens.pos_T == 0).view(candidate_RL.shape)
        if self.span_length > 1:
            drawn_RL = draws.uniform_T("span").view(candidate_RL.shape)
            begins_RL = cut(begins_RL, 1 + (drawn_RL * self.span_length).long())
        at_L = torch.arange(tokens.row_length, device=candidate_RL.device)
        return torch.where(begins_RL, at_L, 0).cummax(1).values


def cut(begins_RL: Tensor, length_RL: Tensor) -> Tensor:
    """[R, L] where spans begin: at the starts of the stretches given by begins_RL, and after each
    span, which has the length drawn at its first token unless its stretch ends before."""
    length = begins_RL.shape[1]
    at_L = torch.arange(length, device=begins_RL.device)
    # The first start of a stretch after each token.
    starts_RL = torch.where(begins_RL, at_L, length)
    ends_RL = starts_RL.flip(1).cummin(1).values.flip(1).roll(-1, 1)
    ends_RL[:, -1] = length
    next_RL = at_L + length_RL
    # One more place, after the row, to which the last span of each stretch leads.
    next_RL = torch.where(next_RL < ends_RL, next_RL, length)
    next_RL = torch.nn.functional.pad(next_RL, (0, 1), value=length)
    found_RL = torch.nn.functional.pad(begins_RL, (0, 1)).long()
    for _ in range(length.bit_length()):  # all spans up to 1, 2, 4, ... after a start
        found_RL = found_RL.scatter_reduce(1, next_RL, found_RL, "amax")
        next_RL = next_RL.gather(1, next_RL)
    return found_RL[:, :-1].bool()


def rarity(counts_V: Tensor) -> Tensor:
    """[V] weights of strategic masking: -log of a token's frequency in the corpus, in nats
    (2003.10555, appendix of negative results).

    counts_V: how often each token occurs; one that never does counts once.
    """
    counts_V = counts_V.double().clamp(min=1)
    return -(counts_V / counts_V.sum()).log().clamp(max=-1e-6)


def chosen_counts(counts_V: Tensor, rate: float) -> Tensor:
    """[V] how many of a corpus's tokens are chosen if `rate` of them are drawn without replacement
    in proportion to `rarity`: a token is among the largest u^(1/w), those above some bound, with
    probability 1 - exp(-w x), x being the same for all."""
    weight_V = rarity(counts_V)

    def chosen(log_x: float) -> Tensor:
        return counts_V.double() * -torch.expm1(-weight_V * math.exp(log_x))

    low, high = -50.0, 50.0
    for _ in range(100):
        middle = (low + high) / 2
        few = chosen(middle).sum() < rate * counts_V.sum()
        low, high = (middle, high) if few else (low, middle)
    return chosen(low)
