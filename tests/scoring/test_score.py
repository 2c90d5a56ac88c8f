"""Windows, scores of files of texts, and n-best lists."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import electrify
from electrify.cli import main
from electrify.scoring.rerank import Lists, NBest, nbest_of, rates_of, tuned
from electrify.scoring.windows import windows_of
from small import mistake


@given(st.integers(1, 200), st.integers(4, 40))
def test_every_token_is_scored_where_it_sees_the_most(n: int, size: int):
    windows = windows_of(n, size=size)
    scored = [token for *_, first, last in windows for token in range(first, last)]
    assert scored == list(range(n))

    def inside(token: int, start: int, stop: int) -> int:
        return min(token - start, stop - 1 - token) if start <= token < stop else -1

    for start, stop, first, last in windows:
        assert 0 <= start <= first < last <= stop <= n
        assert stop - start == min(n, size)
        for token in range(first, last):
            best = max(inside(token, a, b) for a, b, *_ in windows)
            assert inside(token, start, stop) == best


def test_files(models_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The columns of the input stay; the scores are those of Python."""
    model = str(models_root / "run" / "discriminator")
    table = tmp_path / "texts.csv"
    table.write_text("id,text\n1,the chef\n2,the meal cooked the chef\n")
    out = tmp_path / "scores.csv"
    assert main(["score", model, str(table), "--output-file", str(out)]) == 0
    head, *rows = [line.split(",") for line in out.read_text().splitlines()]
    assert head == ["id", "text", "score", "tokens"]
    texts = ["the chef", "the meal cooked the chef"]
    wanted = electrify.score(model, texts)
    assert electrify.score(model, [texts[0], ""])[1] == 0.0
    assert [float(row[2]) for row in rows] == pytest.approx(wanted, abs=1e-5)
    assert [row[3] for row in rows] == ["2", "6"]
    lines = tmp_path / "texts.txt"
    lines.write_text("\n".join(texts))
    capsys.readouterr()
    assert main(["score", model, str(lines), "--json", "--per-token"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found[1]["token"] == ["the", "meal", "cook", "##ed", "the", "chef"]
    assert sum(found[1]["token_score"]) == pytest.approx(found[1]["score"], abs=1e-4)
    whole = electrify.score(model, texts[1], per_token=True)
    assert list(whole.tokens) == found[1]["token"]
    assert whole.token_scores == pytest.approx(found[1]["token_score"], abs=1e-5)
    assert main(["score", model, str(table), "--output-file", str(out)]) == 2  # it exists


def test_rates_by_hand():
    """Two utterances of 3 and 2 words. Before: 1 substitution and 1 deletion of 5 words; after: 1
    deletion; the oracle has no error."""
    first = NBest({}, ("a b d", "a b c"), (-1.0, -2.0), "a b c")
    second = NBest({}, ("a", "a b"), (-1.0, -3.0), "a b")
    lists = Lists.of([first, second], [0.0, 5.0, 3.0, 2.0])
    assert lists.errors_UH.tolist() == [[1, 0], [1, 0]]
    chosen_U = lists.chosen(1.0, 0.0)
    assert chosen_U.tolist() == [1, 0]
    rates = rates_of(lists, chosen_U)
    assert {name: rate.percent for name, rate in rates.items()} == pytest.approx(
        {"before": 40, "after": 20, "oracle": 0, "change": -20}
    )
    assert lists.chosen(1.0, 4.0).tolist() == [1, 1]  # a word more is worth 4
    assert lists.chosen(0.0, 0.0).tolist() == [0, 0]


def test_lists_of_several_lengths():
    """A hypothesis that is not there is never chosen and has no errors; of equal ones the first
    wins. Spreads are those inside the lists."""
    lists = [
        NBest({}, ("a", "b b", "c"), (-9.0, -7.0, -7.0), "b"),
        NBest({}, ("d",), (-99.0,), "e f g"),
    ]
    found = Lists.of(lists, [0.0, 1.0, 1.0, -50.0])
    assert found.chosen(1.0, 0.0).tolist() == found.chosen(1e9, 0.0).tolist() == [1, 0]
    assert found.errors(np.array([1, 0])).tolist() == [1, 3]
    assert rates_of(found, np.array([1, 0]))["oracle"].percent == 100
    assert found.spread(found.first_UH) == pytest.approx(np.std([-9, -7, -7]) / 2)


def planted(seed: int, count: int = 300) -> Lists:
    """Hypotheses of which the best under first pass + 0.5 * model has no error, the others one."""
    rng = np.random.default_rng(seed)
    lists, scores = [], []
    for _ in range(count):
        first, model = rng.normal(size=5), 4 * rng.normal(size=5)
        best = int(np.argmax(first + 0.5 * model))
        texts = tuple("right" if k == best else f"wrong{k}" for k in range(5))
        lists.append(NBest({}, texts, tuple(first), "right"))
        scores += model.tolist()
    return Lists.of(lists, scores)


def test_tuning_finds_a_planted_weight():
    weight, bonus = tuned(planted(0))
    assert weight == pytest.approx(0.5, rel=0.2)
    assert bonus == 0.0
    unseen = planted(1)
    rates = rates_of(unseen, unseen.chosen(weight, bonus))
    assert rates["after"].percent < 10 < 50 < rates["before"].percent
    assert rates["change"].high < -40
    for rate in rates.values():
        assert rate.low <= rate.percent <= rate.high


@pytest.mark.parametrize(
    ("row", "scores"),
    [
        ({"hypotheses": ["a", "b"], "scores": [-1, -2], "reference": "a"}, (-1, -2)),
        ({"nbest": [{"text": "a", "score": -1}, {"text": "b", "score": -2}], "ref": "a"}, (-1, -2)),
        ({"input": ["a", "b"], "output": "a"}, (0, 0)),
    ],
)
def test_layouts_of_lists(row: dict[str, Any], scores: tuple[float, ...]):
    """What common tools write."""
    assert nbest_of(row, "") == NBest(row, ("a", "b"), scores, "a")


def test_rerank(models_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The command and the function choose the same, and what the scores say."""
    model = str(models_root / "run" / "discriminator")
    rows = [
        {"id": k, "hypotheses": ["the chef ate a", "the chef ate", "a b"], "reference": ref}
        for k, ref in enumerate(["the chef ate", "a b", "the chef ate a"])
    ]
    file, out = tmp_path / "lists.jsonl", tmp_path / "out.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["rerank", model, str(file), "--weight", "1", "--output-file", str(out), "--json"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    scores = electrify.score(model, rows[0]["hypotheses"])
    best = rows[0]["hypotheses"][int(np.argmax(scores))]
    assert [json.loads(line)["reranked"] for line in out.read_text().splitlines()] == [best] * 3
    found = electrify.rerank(model, rows, weight=1.0)
    assert found.texts == (best,) * 3
    assert told["wer"]["after"]["percent"] == pytest.approx(found.rates["after"].percent)
    unknown = electrify.rerank(model, [row["hypotheses"] for row in rows], weight=1.0)
    assert unknown.texts == found.texts
    assert electrify.rerank(model, rows, tune_lists=rows).rates["after"].percent <= min(
        found.rates["before"].percent, found.rates["after"].percent
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("rerank MODEL LISTS", "weight"),
        ("rerank MODEL LISTS --tune-file LISTS", "have no reference"),
        ("detect MODEL --file TABLE", "is a table"),
    ],
)
def test_mistakes(models_root: Path, tmp_path: Path, capsys, words: str, says: str):
    given = {"LISTS": tmp_path / "lists.jsonl", "TABLE": tmp_path / "texts.csv"}
    given["LISTS"].write_text('{"hypotheses": ["a", "b"]}\n')
    given["TABLE"].write_text("text\nthe chef\n")
    given["MODEL"] = models_root / "run" / "discriminator"
    assert says in mistake(capsys, *(str(given.get(word, word)) for word in words.split()))
