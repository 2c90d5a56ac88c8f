"""What holds for every corruptor, whatever the text, and how those beside the generator draw."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from batches import SPECIAL, VOCAB, built, corrupted, draws_of, pack, packed_batches
from electrify.corruption.choosing import Chooser
from electrify.corruption.frequency import Frequency
from electrify.corruption.plan import count
from electrify.tokens import Tokens

NEVER_CHOSEN = {0, 2, 3, 4, 5}  # [UNK] may be asked for
NEVER_DRAWN = NEVER_CHOSEN | {SPECIAL.unk}
CORRUPTORS = {
    name: built(f"{name}-tiny", mask_rate=0.4).objective.corruptor
    for name in ("electra", "bert", "electric", "amos", "unigram", "uniform")
}


@pytest.mark.parametrize("name", CORRUPTORS)
@given(tokens=packed_batches(), seed=st.integers(0, 2**40))
@settings(max_examples=25, deadline=None)
def test_only_chosen_tokens_change(name: str, tokens: Tokens, seed: int) -> None:
    corruptor: Any = CORRUPTORS[name]
    draws = draws_of(tokens, seed=seed)
    z = corrupted(corruptor, tokens, draws)
    at, before, after = set(z.at_M.tolist()), tokens.ids_T.tolist(), z.tokens.ids_T.tolist()
    assert z.at_M.tolist() == sorted(at)
    assert len(at) == int(count(z.plan))
    assert z.original_T.tolist() == before
    for i, (was, now) in enumerate(zip(before, after, strict=True)):
        if i in at:
            assert int(tokens.seq_T[i]) > 0
            assert was not in NEVER_CHOSEN
        else:
            assert was == now
    assert z.replaced_T.tolist() == [a != b for a, b in zip(before, after, strict=True)]
    for name_T in ("seq_T", "pos_T", "segment_T"):
        assert torch.equal(getattr(z.tokens, name_T), getattr(tokens, name_T))
    if name in ("unigram", "uniform"):
        assert not NEVER_DRAWN & {after[i] for i in at}


def p_of(drawn: Tensor, probability_V: Tensor) -> float:
    """Chi-square of draws against probabilities; what is expected less than five times is pooled,
    and the impossible must not occur."""
    seen, wanted = (
        torch.bincount(drawn, minlength=len(probability_V)).double(),
        probability_V.double() * len(drawn),
    )
    assert not seen[wanted == 0].any()
    rare = wanted < 5
    pool = float(wanted[rare].sum()) >= 5
    pooled = [
        [*x[~rare].tolist(), *([float(x[rare].sum())] if pool else [])] for x in (seen, wanted)
    ]
    total = float(sum(pooled[0]) / sum(pooled[1]))
    return float(chisquare(pooled[0], [w * total for w in pooled[1]]).pvalue)


@pytest.mark.parametrize("kind", ["skewed", "even", "with gaps"])
def test_frequency_follows_the_counts(kind: str) -> None:
    """20 000 chosen tokens; specials and [UNK] have the largest counts, and no share."""
    counts = {
        "skewed": 1000 // (1 + torch.arange(VOCAB)),
        "even": torch.ones(VOCAB),
        "with gaps": torch.arange(VOCAB) % 3,
    }[kind]
    tokens = pack([[[7] * 20]] * 2000, row_length=20)
    corruptor = Frequency(Chooser(SPECIAL, VOCAB, rate=0.5), SPECIAL, VOCAB, counts_V=counts)
    z = corrupted(corruptor, tokens, draws_of(tokens))
    assert len(z.at_M) == 20_000
    allowed = counts.double().index_fill(0, torch.tensor(sorted(NEVER_DRAWN)), 0.0)
    assert p_of(z.now_M, allowed / allowed.sum()) > 1e-3


def test_two_towers_draw_from_what_they_believe() -> None:
    """The same sentence in 4000 rows: at each position the draws follow the softmax of the towers'
    logits there."""
    corruptor: Any = built("electric-tiny", mask_rate=0.5, init="bert").objective.corruptor.eval()
    with torch.no_grad():
        corruptor.head.bias_V.normal_(
            generator=torch.Generator().manual_seed(2)
        )  # so that there is something to follow
        for p in corruptor.left.parameters():
            p.mul_(3)
    tokens = pack([[[2, 9, 20, 31, 3]]] * 4000, row_length=5)
    z = corrupted(corruptor, tokens, draws_of(tokens, seed=5))
    seen = []
    for place in (1, 2, 3):
        here_M = z.at_M % 5 == place
        probability_V = z.logits_MV[here_M][0].detach().softmax(-1)
        assert p_of(z.now_M[here_M], probability_V) > 1e-3
        seen.append(probability_V)
    assert float((seen[0] - seen[1]).abs().max()) > 1e-3, "the context counts"
