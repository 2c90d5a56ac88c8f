"""The window between two log lines, and validation, which is a window over fixed rows."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from batches import SPECIAL, built, draws_of, ragged_batch, terms_of, text_batch
from electrify.objectives.metrics import BINS
from electrify.terms import Term
from electrify.tokens import Tokens
from electrify.train.dist import World
from electrify.train.monitor import evaluate
from electrify.train.sums import MetricSums

CPU = torch.device("cpu")
ALONE = World(rank=0, size=1, device=CPU)


def scalar(total: float, count: float) -> Term:
    return Term(torch.tensor(total), torch.tensor(count))


def test_means_by_hand() -> None:
    """A mean over all tokens, not a mean of means; names may come and go."""
    window = MetricSums(CPU)
    window.add({"a": scalar(6.0, 2), "b": scalar(1.0, 1)})
    window.add({"a": scalar(2.0, 6), "c": scalar(0.0, 0)})
    assert window.means() == {"a": 1.0, "b": 1.0}
    assert MetricSums(CPU).means() == {}


def test_sums_are_float64() -> None:
    """A million small losses on top of a large one: float32 would lose them."""
    window = MetricSums(CPU)
    window.add({"a": scalar(2.0**24, 1)})
    for _ in range(100):
        window.add({"a": scalar(0.25, 1)})
    assert window.save() == {"a": [2.0**24 + 25, 101]}


finite = st.floats(-1e6, 1e6, width=32)
term_lists = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.tuples(finite, st.integers(0, 1000)), max_size=3),
    max_size=6,
)


@given(term_lists, term_lists)
def test_saved_and_loaded_continues_to_the_bit(before, after):
    """Through JSON, as the checkpoint does it."""
    unbroken, resumed = MetricSums(CPU), MetricSums(CPU)
    for terms in before:
        unbroken.add({n: scalar(*t) for n, t in terms.items()})
    resumed.load(json.loads(json.dumps(unbroken.save())), rank=0)
    for terms in after:
        for window in (unbroken, resumed):
            window.add({n: scalar(*t) for n, t in terms.items()})
    assert resumed.save() == unbroken.save()
    assert resumed.means() == unbroken.means()


def test_one_rank_carries_the_sums_on() -> None:
    window = MetricSums(CPU)
    window.load({"a": [1.0, 2.0]}, rank=1)
    assert window.save() == {
        "a": [0.0, 0.0]
    }  # the same names everywhere: all ranks add up one list


# ---------------------------------------------------------------- validation


class FixedRows:
    """A split of given rows, served as data.loader.Rows serves them: missing rows of the last batch
    hold pads."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens, self.row_length = tokens, tokens.row_length

    def sequential(self, num_rows: int, *, limit: int | None = None) -> Iterator[Tokens]:
        stop = min(self.tokens.num_rows, limit or self.tokens.num_rows)
        for first in range(0, stop, num_rows):
            part = self.tokens.rows(first, min(stop, first + num_rows))
            lacking = (num_rows - part.num_rows) * self.row_length
            fields = torch.stack([part.ids_T, part.seq_T, part.pos_T, part.segment_T])
            padded = torch.nn.functional.pad(fields, (0, lacking))
            padded[0, part.ids_T.numel() :] = SPECIAL.pad
            yield Tokens(*padded, row_length=self.row_length)


def validate(
    objective: torch.nn.Module,
    tokens: Tokens,
    *,
    batch_rows: int,
    limit: int = 100,
    world: World = ALONE,
) -> dict[str, float]:
    return evaluate(
        objective,
        FixedRows(tokens),
        limit=limit,
        rows_each=-(-batch_rows // world.size),
        world=world,
        bf16=False,
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("recipe", ["electra-tiny", "bert-tiny"])
def test_validation_is_independent_of_the_batch(recipe: str) -> None:
    objective = built(recipe, dropout=0.5, attention_dropout=0.5).objective.train()
    tokens = text_batch(seed=9, rows=5, row_length=32)
    found = [validate(objective, tokens, batch_rows=n) for n in (1, 2, 5, 8)]
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=1e-4, abs=1e-5)
    assert objective.training, "and the mode it was in is restored"
    assert all(p.grad is None for p in objective.parameters())
    names = (
        {"rtd_detection_auc", "rtd_detection_recall", "rtd", "generator"}
        if recipe == "electra-tiny"
        else {"mlm", "mlm_loss_masked"}
    )
    assert names <= found[0].keys()


def test_a_histogram_is_summed_like_everything_else() -> None:
    objective = built("electra-tiny").objective.eval()
    window, tokens = MetricSums(CPU), ragged_batch()
    with torch.no_grad():
        window.add(terms_of(objective, tokens, draws_of(tokens)))
        window.add(terms_of(objective, tokens, draws_of(tokens)))
    found = window.across()["rtd_detection"]
    assert found.sum.shape == (2, BINS)
    assert int(found.sum.sum()) == 2 * int(tokens.real_T.sum())
    assert int(found.count) == 2
