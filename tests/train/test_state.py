"""The sums between two log lines."""

import json

import torch
from hypothesis import given
from hypothesis import strategies as st

from electrify.terms import Term
from electrify.train.log import MetricSums

CPU = torch.device("cpu")


def scalar(total: float, count: float) -> Term:
    return Term(torch.tensor(total), torch.tensor(count))


def test_means_by_hand() -> None:
    """A mean over all tokens, not a mean of means; names may come and go."""
    window = MetricSums(CPU)
    window.add({"a": scalar(6.0, 2), "b": scalar(1.0, 1)})
    window.add({"a": scalar(2.0, 6), "c": scalar(0.0, 0)})
    assert window.means() == {"a": 1.0, "b": 1.0}
    assert MetricSums(CPU).means() == {}


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
