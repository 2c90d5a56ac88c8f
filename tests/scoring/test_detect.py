import io
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import ElectraForPreTraining

from electrify import detect
from electrify.cli import main
from electrify.errors import UserError
from electrify.finetuning.tasks import kind_of
from electrify.hub import file_of, must_be_reachable
from electrify.scoring.detect import load_detector
from electrify.scoring.pll import load_scorer


@pytest.fixture
def discriminator(models_root: Path) -> str:
    return str(models_root / "run" / "discriminator")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def by_hand(folder: str, ids: list[int]) -> list[float]:
    model = ElectraForPreTraining.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(input_ids=torch.tensor([[2, *ids, 3]])).logits.sigmoid()[0, 1:-1].tolist()


def test_probabilities_offsets_and_words_by_hand(discriminator: str):
    (found,) = detect(discriminator, ["The chef  cooked, the"])
    p = by_hand(discriminator, [5, 6, 7, 8, 12, 5])
    assert [t.token for t in found.tokens] == ["the", "chef", "cook", "##ed", ",", "the"]
    places = [(0, 3), (4, 8), (10, 14), (14, 16), (16, 17), (18, 21)]
    assert [(t.start, t.end) for t in found.tokens] == places
    assert [t.probability for t in found.tokens] == pytest.approx(p, abs=1e-6)
    words = [(w.token, w.start, w.end) for w in found.words]
    assert words[:3] == [("The", 0, 3), ("chef", 4, 8), ("cooked", 10, 16)]
    assert words[3:] == [(",", 16, 17), ("the", 18, 21)]
    assert [w.probability for w in found.words] == pytest.approx(
        [p[0], p[1], max(p[2:4]), p[4], p[5]], abs=1e-6
    )
    assert max(p) - min(p) > 0.1, "this test could not fail otherwise"


def test_a_batch_gives_what_each_text_alone_gives(discriminator: str):
    texts = ["the chef", "a b c d a b c d a b c d a", "meal", "the chef cooks the meal."]
    together = detect(discriminator, texts, batch_size=3)
    for text, found in zip(texts, together, strict=True):
        (alone,) = detect(discriminator, [text])
        assert found.text == text
        assert [t.probability for t in found.tokens] == pytest.approx(
            [t.probability for t in alone.tokens], abs=1e-5
        )


def test_a_long_text_is_read_in_the_windows_of_its_scores(discriminator: str):
    text = "a b c d the chef ate a meal . " * 4
    (found,) = detect(discriminator, [text], max_seq_length=10)
    ((ids, scores_T),) = load_scorer(discriminator).token_scores([text], max_seq_length=10)
    assert len(found.tokens) == len(ids) == 40
    wanted = (1 - scores_T.exp()).tolist()  # of log P(original)
    assert [t.probability for t in found.tokens] == pytest.approx(wanted, abs=1e-5)
    whole = [t.probability for t in detect(discriminator, [text])[0].tokens]
    assert whole != pytest.approx(wanted, abs=1e-2), "this test could not fail otherwise"


@pytest.fixture
def shown(discriminator: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What `electrify detect` prints."""

    def run(*words: str) -> str:
        assert main(["detect", discriminator, *words]) == 0
        return capsys.readouterr().out

    return run


def test_plain_lines_and_marks(discriminator: str, shown: Callable[..., str]):
    p = by_hand(discriminator, [5, 6, 7, 8])
    threshold = sorted(p)[2] - 1e-6
    words = ("the chef cooked", "--unit", "token", "--threshold", str(threshold))
    head, *lines = shown(*words).splitlines()
    assert head == "token\tprobability\treplaced"
    assert [line.split("\t") for line in lines] == [
        [t, f"{x:.4f}", "yes" if x >= threshold else "no"]
        for t, x in zip(["the", "chef", "cook", "##ed"], p, strict=True)
    ]


def test_the_likeliest_word_of_a_text_without_marks(discriminator: str, capsys):
    assert main(["detect", discriminator, "the chef cooked", "--threshold", "1"]) == 0
    said = capsys.readouterr()
    cells = [line.split("\t") for line in said.out.splitlines()]
    assert [row[0] for row in cells] == ["word", "the", "chef", "cooked"]
    likeliest = max(cells[1:], key=lambda row: float(row[1]))[0]
    assert f"no word reaches 1: the highest is '{likeliest}'" in said.err


def test_json(shown: Callable[..., str]):
    text = "the \x1b[31mchef"
    raw = shown(text, "--json", "--threshold", "0")
    assert "\x1b" not in raw
    found = json.loads(raw)
    assert found["text"] == text
    assert [t["token"] for t in found["tokens"]][:2] == ["the", "[UNK]"]
    assert found["marked"] == found["words"]


def test_a_file_or_standard_input(shown: Callable[..., str], tmp_path: Path, monkeypatch):
    path = tmp_path / "text.txt"
    path.write_bytes(b"\xef\xbb\xbfthe\nchef\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the chef")))
    assert shown("--file", str(path)) == shown() == shown("the chef")


Publish = Callable[..., str]


@pytest.fixture
def published(models_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Publish:
    """Puts a model with a mark into the cache of a Hub that cannot be reached. Returns its name.
    cached: whether electrify.json is there, too."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for asked in (file_of, must_be_reachable):
        asked.cache_clear()

    def publish(part: str, name: str, mark: dict[str, Any], *, cached: bool = True) -> str:
        top = tmp_path / f"models--me--{name}"
        (top / "refs").mkdir(parents=True)
        (top / "refs" / "main").write_text("1" * 40)
        snapshot = Path(shutil.copytree(models_root / part, top / "snapshots" / ("1" * 40)))
        if cached:
            (snapshot / "electrify.json").write_text(json.dumps(mark))
        return f"me/{name}"

    return publish


def test_the_mark_of_a_folder_counts_under_a_name(published: Publish) -> None:
    """Energies are energies, and a network of a run predicts nothing."""
    name = published("run/discriminator", "a", {"objective": "electric", "logits": "energy"})
    assert load_scorer(name).kind == "electric"
    with pytest.raises(UserError, match=r"its logits are energies .objective electric"):
        load_detector(name)
    name = published("run/discriminator", "c", {"part": "discriminator", "objective": "rtd"})
    with pytest.raises(UserError, match="is the discriminator of a run"):
        kind_of(name, {"architectures": ["ModernBertForTokenClassification"]})


def test_without_the_file_and_without_a_network_it_is_said(published, capsys):
    name = published("run/discriminator", "e", {}, cached=False)
    for _ in range(2):
        assert load_scorer(name).kind == "rtd"
    said = capsys.readouterr().err
    assert said.count("electrify.json is not in the Hub's cache, and the Hub cannot be asked") == 1


def test_colours_on_a_terminal(discriminator: str, monkeypatch: pytest.MonkeyPatch):
    """The text as it is, with the words above the threshold named below it."""

    def shown(text: str) -> str:
        monkeypatch.setattr("sys.stdout", Terminal())
        assert main(["detect", discriminator, text, "--threshold", "0"]) == 0
        return sys.stdout.getvalue()  # type: ignore[attr-defined]

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    text = shown("The chef\x1b[2J cooked")
    assert "\x1b[" in text  # colours, and none from the text
    assert "\x1b[2J" not in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert plain.startswith("The chef")
    assert "probability of at least 0" in plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in shown("the chef")
