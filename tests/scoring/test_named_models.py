"""A model loaded by its name on the Hub is what it is as a folder: its electrify.json, which no
library fetches, says what its logits mean."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from electrify.errors import UserError
from electrify.finetuning.saved import kind_of
from electrify.hub import file_of, must_be_reachable
from electrify.scoring.detect import load_detector
from electrify.scoring.pll import load_scorer

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


def test_what_compares_candidates_gives_no_score_under_a_name(published: Publish) -> None:
    name = published("run/generator", "b", {"part": "selector", "logits": "choice"})
    with pytest.raises(UserError, match="compares a few candidates"):
        load_scorer(name)


def test_a_network_of_a_run_predicts_nothing_under_a_name(published: Publish) -> None:
    name = published("run/discriminator", "c", {"part": "discriminator", "objective": "rtd"})
    with pytest.raises(UserError, match="is the discriminator of a run"):
        kind_of(name, {"architectures": ["ModernBertForTokenClassification"]})


def test_without_the_file_and_without_a_network_it_is_said(
    published: Publish, capsys: pytest.CaptureFixture[str]
) -> None:
    name = published("run/discriminator", "e", {}, cached=False)
    for _ in range(2):
        assert load_scorer(name).kind == "rtd"
    said = capsys.readouterr().err
    assert said.count("electrify.json is not in the Hub's cache, and the Hub cannot be asked") == 1
