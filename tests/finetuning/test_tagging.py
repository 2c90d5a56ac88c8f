"""Tagging: windows, the tokens of words, and the mean of their logits."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from toy import CPU, chunks, outputs_of, reader_of, sharpened, task_of

from electrify.finetuning.loop import Batch
from electrify.finetuning.model import with_fresh_head
from electrify.finetuning.tagging import NO_WORD, Tagging, means, windows
from electrify.finetuning.tasks import Sentence


def tagging(zoo: Path, labels: tuple[str, ...], *, length: int = 16, first: bool = False) -> Any:
    how: dict[str, Any] = {"max_seq_length": length, "device": CPU, "first_piece": first}
    return Tagging(reader_of(zoo / "bert"), "tagging", labels, **how)


# ------------------------------------------------------------------ windows


@given(
    st.lists(st.one_of(st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=60),
    st.integers(9, 30),
)
def test_windows_tag_every_word_once_and_fit(pieces: list[int], room: int) -> None:
    found = windows(pieces, room)
    assert [k for w in found for k in range(w.first, w.last)] == list(range(len(pieces)))
    for w in found:
        assert w.begin <= w.first < w.last <= w.end
        assert sum(pieces[w.begin : w.end]) <= room
    for w, following in itertools.pairwise(found):
        assert sum(pieces[w.begin : w.end + 1]) > room
        assert w.end < following.end


def test_windows_by_hand() -> None:
    """10 words of one piece and room for 6, half of which overlaps: 0-5, 3-8, 6-9. A word is tagged
    where it is farther from an edge."""
    found = [(w.begin, w.end, w.first, w.last) for w in windows([1] * 10, 6)]
    assert found == [(0, 6, 0, 5), (3, 9, 5, 8), (6, 10, 8, 10)]
    assert [(w.begin, w.end) for w in windows([6, 6], 6)] == [(0, 1), (1, 2)]


def test_rows_of_several_windows_by_hand(zoo: Path) -> None:
    """A word that the tokenizer drops is [UNK]; words beyond the length are tagged, too."""
    words = ("films", "the", "\u200b", "plot", "was", "film", "film", "bad", "films")
    one = Sentence(words, ("A", "B", "A", "B", "A", "B", "A", "B", "A"))
    problem = tagging(zoo, ("A", "B"), length=8)
    rows = problem.rows([one])
    batch = rows.batch(torch.tensor([0]))
    # [CLS] film ##s the [UNK] plot was [SEP], of which `was` is tagged in the next window
    assert batch.inputs["input_ids"].tolist() == [[2, 13, 24, 11, 1, 14, 15, 3]]
    assert batch.places_BL.int().tolist() == [[0, 1, 1, 1, 1, 1, 0, 0]]
    begins = rows.targets != NO_WORD
    assert int(begins.sum()) == 9
    classes = torch.zeros(len(rows.lengths_N), 8, dtype=torch.int32)
    classes[begins] = torch.arange(9, dtype=torch.int32) % 2
    assert problem.tags([one], rows, {"classes": classes}) == [one.tags]
    task = task_of("tagging", [one], metrics=("accuracy",))
    assert problem.score(task, [one], rows, {"classes": classes}) == {"accuracy": 1.0}
    lines = problem.files("t", task, [one], rows, {"classes": classes})["t.txt"].splitlines()
    assert lines[:2] == ["films A A", "the B B"]


# ------------------------------------------------------------------ tokens of words


def test_means_by_hand() -> None:
    states_PD = torch.tensor([[2.0, 3], [4, 5], [6, 7], [10, 11]]) ** 2
    wanted = [[(4 + 16) / 2, (9 + 25) / 2], [36, 49], [100, 121]]
    assert means(states_PD, torch.tensor([0, 0, 1, 2])).tolist() == wanted


class Given(torch.nn.Module):
    """A net with these logits."""

    def __init__(self, logits_BLC: Tensor) -> None:
        super().__init__()
        self.logits_BLC = torch.nn.Parameter(logits_BLC)

    def forward(self, inputs: object) -> Tensor:
        return self.logits_BLC


def test_a_words_logits_are_the_mean_of_its_tokens(zoo: Path) -> None:
    """Row 0: a word of tokens 1 and 2, one of token 3. Row 1: one of token 1; 3 is not tagged."""
    torch.manual_seed(0)
    places = torch.tensor([[0, 1, 1, 1], [0, 1, 0, 0]], dtype=torch.bool)
    no = NO_WORD
    targets = torch.tensor([[no, 1, no, 0, no], [no, 1, no, no, no]])
    batch = Batch({}, torch.tensor([4, 4]), places, targets)
    each = torch.randn(2, 4, 3)
    net: Any = Given(each)
    problem = tagging(zoo, ("A", "B", "C"))
    wanted_WC = torch.stack([(each[0, 1] + each[0, 2]) / 2, each[0, 3], each[1, 1]])
    loss = problem.loss(net, batch)
    wanted = torch.nn.functional.cross_entropy(wanted_WC, torch.tensor([1, 0, 1]))
    torch.testing.assert_close(loss, wanted)
    assert problem.weight(batch) == 3
    found_BL = problem.outputs(net, batch)["classes"]
    assert found_BL.shape == targets.shape
    at = ([0, 0, 1], [1, 3, 1])
    assert found_BL[at].tolist() == wanted_WC.argmax(-1).tolist()
    assert int(found_BL.sum()) == int(found_BL[at].sum())
    loss.backward()
    grad = net.logits_BLC.grad
    assert torch.equal(grad[0, 1], grad[0, 2])
    assert not grad[1, 2:].any()


@pytest.mark.parametrize("name", ["electra", "bert", "modernbert", "deberta"])
def test_the_mean_of_logits_is_the_logit_of_the_mean_state(zoo: Path, name: str) -> None:
    """Where the library's head for tags is one linear layer; ModernBERT's has a hidden layer."""
    net = sharpened(with_fresh_head(reader_of(zoo / name), "tagging", ("A", "B", "C")))
    inputs = {"input_ids": torch.tensor([[2, 13, 24, 14, 25, 3]])}
    with torch.inference_mode():
        logits_LC = net(inputs)[0]
        states_LD = net.encoder(**inputs).last_hidden_state[0]
        if name == "modernbert":
            states_LD = net.library.head(states_LD)
        of_mean_C = net.library.classifier(states_LD[3:5].mean(0))
    torch.testing.assert_close(logits_LC[3:5].mean(0), of_mean_C, atol=1e-5, rtol=1e-5)


def test_neither_padding_nor_the_batch_changes_a_tag(zoo: Path) -> None:
    made = [s for s in chunks().train[::3] if isinstance(s, Sentence)]
    how: dict[str, Any] = {"max_seq_length": 9, "device": CPU}
    problem = Tagging(reader_of(zoo / "electra"), "tagging", chunks().labels, **how)
    net = sharpened(problem.net(dropout=None))
    rows = problem.rows(made)
    together = problem.tags(made, rows, outputs_of(problem, net, rows))
    for one, tags in zip(made, together, strict=True):
        alone = problem.rows([one])
        assert problem.tags([one], alone, outputs_of(problem, net, alone)) == [tags]
    assert len({tag for tags in together for tag in tags}) > 1
