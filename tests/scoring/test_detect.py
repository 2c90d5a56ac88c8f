"""Which words were replaced: numbers by hand, windows, the command, the mark of a folder."""

import io
import json
import math
import shutil
from pathlib import Path

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
    (scored,) = load_scorer(discriminator).token_scores([text], max_seq_length=10)
    assert len(found.tokens) == len(scored.tokens) == 40
    wanted = [1 - math.exp(score) for score in scored.token_scores]  # of log P(original)
    assert [t.probability for t in found.tokens] == pytest.approx(wanted, abs=1e-5)
    whole = [t.probability for t in detect(discriminator, [text])[0].tokens]
    assert whole != pytest.approx(wanted, abs=1e-2), "this test could not fail otherwise"


def test_the_command(discriminator: str, tmp_path: Path, capsys, monkeypatch):
    """Marked lines, JSON, a file and standard input."""

    def shown(*words: str) -> str:
        assert main(["detect", discriminator, *words]) == 0
        return capsys.readouterr().out

    p = by_hand(discriminator, [5, 6, 7, 8])
    threshold = sorted(p)[2] - 1e-6
    how = ("--unit", "token", "--threshold", str(threshold))
    head, *lines = shown("the chef cooked", *how).splitlines()
    assert head == "token\tprobability\treplaced"
    assert [line.split("\t") for line in lines] == [
        [t, f"{x:.4f}", "yes" if x >= threshold else "no"]
        for t, x in zip(["the", "chef", "cook", "##ed"], p, strict=True)
    ]
    found = json.loads(shown("the chef", "--json", "--threshold", "0"))
    assert [t["token"] for t in found["tokens"]] == ["the", "chef"]
    assert found["marked"] == found["words"]
    path = tmp_path / "text.txt"
    path.write_bytes(b"\xef\xbb\xbfthe\nchef\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the chef")))
    assert shown("--file", str(path)) == shown() == shown("the chef")


def test_the_mark_of_a_folder_counts_under_a_name(discriminator, tmp_path, monkeypatch):
    """Of a model in the cache of a Hub that cannot be reached: energies are energies, and a network
    of a run predicts nothing."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for asked in (file_of, must_be_reachable):
        asked.cache_clear()
    top = tmp_path / "models--me--energies"
    (top / "refs").mkdir(parents=True)
    (top / "refs" / "main").write_text("1" * 40)
    snapshot = Path(shutil.copytree(discriminator, top / "snapshots" / ("1" * 40)))
    mark = {"part": "discriminator", "objective": "electric", "logits": "energy"}
    (snapshot / "electrify.json").write_text(json.dumps(mark))
    assert load_scorer("me/energies").kind == "electric"
    with pytest.raises(UserError, match=r"its logits are energies .objective electric"):
        load_detector("me/energies")
    with pytest.raises(UserError, match="is the discriminator of a run"):
        kind_of("me/energies", {"architectures": ["ModernBertForTokenClassification"]})
