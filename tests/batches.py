"""Small batches and recipes for tests of model, corruption, objectives and training."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor, nn

from electrify.build import Built, Vocabulary, build
from electrify.corruption.choosing import Chooser
from electrify.data.phases import Phase, Phases
from electrify.draws import Draws, draws_for, hashed
from electrify.objectives.objective import Step
from electrify.recipe import Recipe, load, override
from electrify.terms import Terms, weighted
from electrify.tokens import SpecialIds, Tokens, WordEdges
from electrify.train.dist import World
from electrify.train.job import Job, TrainingData
from electrify.train.loop import Run

SPECIAL = SpecialIds(
    pad=0, unk=1, cls=2, sep=3, mask=4, others=(5, 1)
)  # tokenizers list [UNK] among their specials, too
# Of these, written out. [UNK] may be chosen.
NEVER_CHOSEN = {0, 2, 3, 4, 5}
VOCAB = 48
# Skewed counts; the upper half of the words goes on with the word before.
_EDGES = WordEdges(
    torch.where(torch.arange(VOCAB) < VOCAB // 2, 0, -1).to(torch.int8),
    torch.zeros(VOCAB, dtype=torch.int8),
)
VOCABULARY = Vocabulary(VOCAB, SPECIAL, edges=_EDGES, counts_V=1000 // (1 + torch.arange(VOCAB)))


def one_phase(*, row_length: int, batch_rows: int) -> Phases:
    return Phases(Phase(0, row_length, batch_rows))


TINY: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "embedding_size": 32,
    "max_position_embeddings": 64,
    "generator_size": 0.5,
    "max_seq_length": 32,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "bf16": False,
}


def pack(rows: list[list[list[int]]], *, row_length: int) -> Tokens:
    """Rows of sequences of ids -> Tokens. What stands behind a sequence's first [SEP] is segment 1.
    Pads carry [PAD]."""
    pad, flat = (SPECIAL.pad, 0, 0, 0), []
    for sequences in rows:
        row = []
        for s, ids in enumerate(sequences, start=1):
            first_sep = ids.index(SPECIAL.sep) if SPECIAL.sep in ids else len(ids)
            row += [(token, s, i, int(i > first_sep)) for i, token in enumerate(ids)]
        assert len(row) <= row_length
        flat += row + [pad] * (row_length - len(row))
    return Tokens(*torch.tensor(flat).T.contiguous(), row_length=row_length)


def sequences_of(tokens: Tokens) -> Iterator[tuple[int, int, slice]]:
    """(row, sequence number, flat slice) of every sequence, read in plain Python."""
    seq = tokens.seq_T.tolist()
    start = 0
    while start < len(seq):
        stop = start
        row = start // tokens.row_length
        while stop < len(seq) and seq[stop] == seq[start] and stop // tokens.row_length == row:
            stop += 1
        if seq[start]:
            yield row, seq[start], slice(start, stop)
        start = stop


@st.composite
def packed_batches(draw: st.DrawFn, *, row_length: int = 32, max_rows: int = 4) -> Tokens:
    """Rows of whole sequences of any length from 1, with any ids: specials inside, [UNK], sequences
    without any candidate, empty rows, full rows."""
    rows = []
    for _ in range(draw(st.integers(1, max_rows))):
        row, room = [], row_length
        for length in draw(st.lists(st.integers(1, row_length), max_size=6)):
            if length > room:
                break
            kind = draw(st.sampled_from(["text", "text", "specials", "unknown"]))
            pool = {"text": range(VOCAB), "specials": [0, 2, 3, 4, 5], "unknown": [SPECIAL.unk]}[
                kind
            ]
            row.append(draw(st.lists(st.sampled_from(pool), min_size=length, max_size=length)))
            room -= length
        rows.append(row)
    return pack(rows, row_length=row_length)


def text_batch(*, seed: int, rows: int, row_length: int, vocab: int = VOCAB) -> Tokens:
    """Full rows of [CLS] a [SEP] b [SEP], no [UNK], lengths and tokens hashed: skewed, and half of
    the tokens follow from the one before."""
    ordinary = vocab - 6
    out = []
    for r in range(rows):
        row, room = [], row_length
        while room >= 8:
            length = min(room, 8 + int(hashed(seed, r, room, 0)) % 12)
            length = length if room - length >= 8 else room
            u = (
                hashed(seed, r, room, torch.arange(1, length + 1)) >> 11 & (1 << 53) - 1
            ).double() * 2.0**-53
            ids, last = [], 0
            for x in u.tolist():
                last = (last * 7 + 3) % ordinary if x < 0.5 else int(ordinary * (2 * x - 1) ** 3)
                ids.append(6 + last)
            ids[0], ids[length // 2], ids[-1] = SPECIAL.cls, SPECIAL.sep, SPECIAL.sep
            row.append(ids)
            room -= length
        out.append(row)
    return pack(out, row_length=row_length)


def ragged_batch(*, seed: int = 0, row_length: int = 32) -> Tokens:
    """Four rows: full, with pads, one short sequence, and empty (as validation fills its last
    batch)."""
    full = text_batch(seed=seed, rows=2, row_length=row_length)
    ids = full.ids_T.tolist()
    first = [[ids[cut] for row, _, cut in sequences_of(full) if row == r] for r in (0, 1)]
    return pack(
        [first[0], first[1][:-1], [[SPECIAL.cls, 9, SPECIAL.unk, 11, SPECIAL.sep]], []],
        row_length=row_length,
    )


def draws_of(tokens: Tokens, *, seed: int = 0, step: int = 0, first_row: int = 0) -> Draws:
    return draws_for(
        seed=seed,
        step=step,
        num_rows=tokens.num_rows,
        row_length=tokens.row_length,
        first_row=first_row,
    )


def tiny(recipe: str, **fields: Any) -> Recipe:
    """A shipped recipe, two layers of width 32. A generator that shares blocks is as wide."""
    shipped = load(recipe)
    own = {"generator_size": 1.0} if shipped.model.tie == "lower" else {}
    return override(shipped, TINY | own | fields)


def built(recipe: str, **fields: Any) -> Built:
    return build(tiny(recipe, **fields), VOCABULARY)


def shaken(module: Any, seed: int = 0) -> Any:
    """The module, with large random values in every parameter, so that none can be left out
    unseen."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in module.named_parameters():
            size = p.shape[-1] ** -0.5 if p.ndim == 2 else 0.3
            p.copy_(torch.randn(p.shape, generator=rng) * size + ("norm" in name.lower()))
    return module


def value(scalar: Tensor) -> float:
    """float() of a tensor that may carry a graph (torch warns about the plain one)."""
    return float(scalar.detach())


def terms_of(objective: Any, tokens: Tokens, draws: Draws, *, fixed: bool = False) -> Terms:
    """Losses and what is watched, as the loop gets them: planned, then run."""
    return Step(objective)(tokens, objective.plan(tokens, draws, fixed=fixed))


def counts_of(objective: Any, tokens: Tokens, draws: Draws) -> dict[str, Tensor]:
    return objective.plan(tokens, draws).counts


def loss_of(objective: Any, tokens: Tokens, draws: Draws, weights: dict[str, float]) -> Tensor:
    """What the loop calls backward on."""
    counts = counts_of(objective, tokens, draws)
    return weighted(terms_of(objective, tokens, draws), weights, counts)


def gradients(module: nn.Module) -> dict[str, Tensor]:
    """Those of its parameters that are not zero everywhere."""
    return {n: p.grad for n, p in module.named_parameters() if p.grad is not None and p.grad.any()}


def corrupted(corruptor: Any, tokens: Tokens, draws: Draws, *, fixed: bool = False) -> Any:
    """The changed text of a corruptor, planned before."""
    return corruptor(tokens, corruptor.plan(tokens, draws, fixed=fixed))


def run_of(config: Recipe, folder: Path, *, seed: int = 0, micro_rows: int | None = None) -> Run:
    """The loop over a tiny recipe and hashed texts: nothing is read, and nothing is left to a
    library's generator. seed: of the first text; folder: that of the run, which is not written
    to."""
    made = build(config, VOCABULARY)
    rows, length = config.train.train_batch_size, config.data.max_seq_length

    def batch(step: int, *, first_row: int, num_rows: int) -> Tokens:
        tokens = text_batch(seed=seed + step, rows=rows, row_length=length)
        return tokens.rows(first_row, first_row + num_rows)

    phases = one_phase(row_length=length, batch_rows=rows)
    loader: Any = SimpleNamespace(phases=phases, batch=batch)
    data = TrainingData(loader, None, unigram_entropy=4.0)
    job = Job(config, folder, World(rank=0, size=1, device=torch.device("cpu")), micro_rows or rows)
    return Run(made.objective, job, data, discriminator=made.discriminator_names())


def at_of(chooser: Chooser, tokens: Tokens, draws: Draws) -> Tensor:
    """[M] the positions that a chooser chooses."""
    return chooser.plan(tokens, draws).at_M


def p_of_draws(drawn: Tensor, probability_V: Tensor) -> float:
    """How well draws fit a distribution: p by chi-square. What is expected less than 5 times is
    pooled, and the impossible must not occur."""
    expected = probability_V.double() * len(drawn)
    seen = torch.bincount(drawn, minlength=len(expected)).double()
    assert not seen[expected == 0].any()
    often = expected >= 5
    counts, wanted = (torch.cat([x[often], x[~often].sum()[None]]) for x in (seen, expected))
    if wanted[-1] < 5:
        assert counts[-1] <= 30
        counts, wanted = counts[:-1], wanted[:-1]
    return float(chisquare(counts, wanted * (counts.sum() / wanted.sum())).pvalue)


def from_sequences(sequences: list[list[int]], *, row_length: int, pad: int) -> Tokens:
    """One unpacked sequence per row, padded. Raises ValueError if one is longer than a row."""
    ids_RL = torch.full((len(sequences), row_length), pad, dtype=torch.long)
    seq_RL = torch.zeros_like(ids_RL)
    pos_RL = torch.zeros_like(ids_RL)
    for row, ids in enumerate(sequences):
        if len(ids) > row_length:
            raise ValueError(f"sequence {row} has {len(ids)} tokens, a row holds {row_length}")
        ids_RL[row, : len(ids)] = torch.tensor(ids)
        seq_RL[row, : len(ids)] = 1
        pos_RL[row, : len(ids)] = torch.arange(len(ids))
    return Tokens(
        ids_RL.flatten(),
        seq_RL.flatten(),
        pos_RL.flatten(),
        torch.zeros_like(seq_RL).flatten(),
        row_length=row_length,
    )
