import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import ElectraForPreTraining

from electrify import detect
from electrify.errors import UserError
from electrify.finetuning.tasks import kind_of
from electrify.hub import file_of, must_be_reachable
from electrify.scoring.detect import load_detector, show_detection
from electrify.scoring.options import DetectConfig, given_text
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


def test_a_long_text_is_read_in_windows_and_each_token_in_the_one_that_surrounds_it_best(
    discriminator,
):
    text = "a b c d the chef ate a meal . " * 4
    (found,) = detect(discriminator, [text], max_seq_length=10)
    ids = [14, 15, 16, 17, 5, 6, 10, 14, 11, 13] * 4
    assert len(found.tokens) == 40
    first, second = by_hand(discriminator, ids[:8]), by_hand(discriminator, ids[6:14])
    # Tokens 6 and 7 stand in both windows, 6 is deeper (1 from the edge) in the first, 7 in the
    # second.
    wanted = first[:7] + second[1:6]
    assert [t.probability for t in found.tokens[:12]] == pytest.approx(wanted, abs=1e-5)


def run(
    model: str,
    *,
    out: io.StringIO | None = None,
    stdin: bytes | None = None,
    text: str | None = None,
    file: str | None = None,
    threshold: float = 0.5,
    unit: str = "token",
    json: bool = False,
) -> str:
    """What `electrify detect` prints."""
    out = out or io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        if stdin is not None:
            patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        given = given_text(DetectConfig(model=model, text=text, file=file))
    (found,) = detect(model, [given])
    show_detection(found, out, threshold=threshold, unit=unit, as_json=json)
    return out.getvalue()


def test_the_likeliest_word_of_a_text_without_marks(discriminator: str, caplog):
    caplog.set_level("INFO", logger="electrify")
    words = dict(
        line.split("\t")[:2]
        for line in run(
            discriminator, text="the chef cooked", unit="word", threshold=1.0
        ).splitlines()[1:]
    )
    likeliest = max(words, key=lambda word: float(words[word]))
    assert f"no word reaches 1: the highest is '{likeliest}'" in caplog.text


def test_plain_lines_and_marks(discriminator: str):
    p = by_hand(discriminator, [5, 6, 7, 8])
    threshold = sorted(p)[2]
    shown = run(discriminator, text="the chef cooked", threshold=threshold - 1e-6)
    head, *lines = shown.splitlines()
    assert head == "token\tprobability\treplaced"
    assert [line.split("\t")[:2] for line in lines] == [
        [t, f"{x:.4f}"] for t, x in zip(["the", "chef", "cook", "##ed"], p, strict=True)
    ]
    assert [line.endswith("\tyes") for line in lines] == [x >= threshold for x in p]
    lines = run(discriminator, text="the chef cooked", unit="word").splitlines()
    assert [line.split("\t")[0] for line in lines] == ["word", "the", "chef", "cooked"]


def test_json(discriminator: str):
    text = "the \x1b[31mchef"
    raw = run(discriminator, text=text, json=True, threshold=0.0)
    assert "\x1b" not in raw
    found = json.loads(raw)
    assert found["text"] == text
    assert [t["token"] for t in found["tokens"]][:2] == ["the", "[UNK]"]
    assert found["marked"] == found["words"]


def test_a_file_or_standard_input(discriminator: str, tmp_path: Path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"\xef\xbb\xbfthe\nchef\n")
    given: list[dict[str, Any]] = [{"file": str(path)}, {"stdin": b"the chef"}]
    given.append({"text": "the chef"})
    assert len({run(discriminator, **how) for how in given}) == 1


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


def test_energies_are_energies_under_a_name(published: Publish) -> None:
    name = published("run/discriminator", "a", {"objective": "electric", "logits": "energy"})
    assert load_scorer(name).kind == "electric"
    with pytest.raises(UserError, match=r"its logits are energies .objective electric"):
        load_detector(name)


def test_a_network_of_a_run_predicts_nothing_under_a_name(published: Publish) -> None:
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
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    shown = run(discriminator, text="The chef\x1b[2J cooked", threshold=0.0, out=Terminal())
    assert "\x1b[" in shown  # colours, and none from the text
    assert "\x1b[2J" not in shown
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert plain.startswith("The chef")
    assert "probability of at least 0" in plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run(discriminator, text="the chef", out=Terminal())
