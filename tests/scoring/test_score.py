"""Scores per token against one token at a time, files of texts, and n-best lists."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import ElectraForMaskedLM, ElectraForPreTraining

import electrify
from electrify.cli import main
from electrify.finetuning.encoding import windows_of
from electrify.scoring.pll import load_scorer
from electrify.scoring.rerank import Lists, NBest, nbest_of, rates_of, tuned, with_errors
from small import mistake

LONG = "the chef cooked a meal , " * 6 + "a b c d"  # 46 tokens; the models read 14 at once


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


@pytest.mark.parametrize("part", ["discriminator", "generator"])
def test_a_long_text_by_hand(models_root: Path, part: str):
    folder = models_root / "run" / part
    scorer = load_scorer(str(folder))
    ((ids, scores_T),) = scorer.token_scores([LONG], batch_tokens=100)
    cls = ElectraForMaskedLM if part == "generator" else ElectraForPreTraining
    model = cls.from_pretrained(folder).eval()
    wanted = torch.zeros(len(ids), dtype=torch.float64)
    for start, stop, first, last in windows_of(len(ids), size=14):
        for token in range(first, last):
            window = torch.tensor([[2, *ids[start:stop], 3]])
            place = 1 + token - start
            if part == "generator":
                window[0, place] = 4
            with torch.no_grad():
                logits = model(input_ids=window).logits[0, place].double()
            if part == "generator":
                wanted[token] = logits.log_softmax(-1)[ids[token]]
            else:
                wanted[token] = (1 - logits.sigmoid()).log()
    torch.testing.assert_close(scores_T, wanted, atol=1e-5, rtol=0)
    whole = electrify.score(folder, LONG, per_token=True)
    assert whole.score == pytest.approx(float(wanted.sum()), abs=1e-4)
    assert whole.tokens[:3] == ("the", "chef", "cook")
    assert electrify.score(folder, [LONG, "", "a"])[1] == 0.0


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
    assert [float(row[2]) for row in rows] == pytest.approx(wanted, abs=1e-5)
    assert [row[3] for row in rows] == ["2", "6"]
    lines = tmp_path / "texts.txt"
    lines.write_text("\n".join(texts))
    capsys.readouterr()
    assert main(["score", model, str(lines), "--json", "--per-token"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found[1]["token"] == ["the", "meal", "cook", "##ed", "the", "chef"]
    assert sum(found[1]["token_score"]) == pytest.approx(found[1]["score"], abs=1e-4)
    assert main(["score", model, str(table), "--output-file", str(out)]) == 2  # it exists


def lists_of(model_H: list[float], *lists: NBest) -> Lists:
    sizes = [len(one.texts) for one in lists]
    return Lists(
        with_errors(lists),
        np.array([score for one in lists for score in one.first_pass]),
        np.array(model_H),
        np.array([len(text.split()) for one in lists for text in one.texts]),
        np.cumsum([0, *sizes])[:-1],
    )


def test_rates_by_hand():
    """Two utterances of 3 and 2 words. Before: 1 substitution and 1 deletion of 5 words; after: 1
    deletion; the oracle has no error."""
    lists = lists_of(
        [0.0, 5.0, 3.0, 2.0],
        NBest({}, ("a b d", "a b c"), (-1.0, -2.0), "a b c"),
        NBest({}, ("a", "a b"), (-1.0, -3.0), "a b"),
    )
    assert [one.errors for one in lists.lists] == [(1, 0), (1, 0)]
    chosen_U = lists.chosen(1.0, 0.0)
    assert chosen_U.tolist() == [1, 0]
    rates = rates_of(lists, chosen_U)
    assert {name: rate.percent for name, rate in rates.items()} == pytest.approx(
        {"before": 40, "after": 20, "oracle": 0, "change": -20}
    )
    assert lists.chosen(1.0, 4.0).tolist() == [1, 1]  # a word more is worth 4
    assert lists.chosen(0.0, 0.0).tolist() == [0, 0]


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
    return lists_of(scores, *lists)


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


def test_layouts_of_lists():
    """What common tools write."""
    plain = nbest_of({"hypotheses": ["a", "b"], "scores": [-1, -2], "reference": "a"}, "")
    objects = [{"text": "a", "score": -1}, {"text": "b", "score": -2}]
    assert nbest_of({"nbest": objects, "ref": "a"}, "").first_pass == plain.first_pass
    bare = nbest_of({"input": ["a", "b"], "output": "a"}, "")
    assert (bare.texts, bare.reference, bare.first_pass) == (("a", "b"), "a", (0.0, 0.0))


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
    assert "before" in found.table()
    unknown = electrify.rerank(model, [row["hypotheses"] for row in rows], weight=1.0)
    assert (unknown.texts, unknown.table()) == (found.texts, "")
    assert electrify.rerank(model, rows, tune_lists=rows).rates["after"].percent <= min(
        found.rates["before"].percent, found.rates["after"].percent
    )


MISTAKES = [
    ([], "weight"),
    (["--weight", "1", "--tune-file", "x.jsonl"], "leave them out"),
    (["--tune-file", "FILE"], "have no reference"),
]


@pytest.mark.parametrize(("flags", "says"), MISTAKES)
def test_mistakes(models_root: Path, tmp_path: Path, capsys, flags: list[str], says: str):
    file = tmp_path / "lists.jsonl"
    file.write_text('{"hypotheses": ["a", "b"]}\n')
    words = ["rerank", str(models_root / "bert"), str(file)]
    flags = [str(file) if flag == "FILE" else flag for flag in flags]
    assert says in mistake(capsys, *words, *flags)


def test_detect_refuses_a_table(models_root: Path, tmp_path: Path, capsys):
    file = tmp_path / "texts.csv"
    file.write_text("text\nthe chef\n")
    model = str(models_root / "run" / "discriminator")
    assert "is a table" in mistake(capsys, "detect", model, "--file", str(file))
