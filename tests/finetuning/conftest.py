"""The tiny random models, made once for the tests of this folder."""

import json
from pathlib import Path

import pytest
from zoo import zoo_in

from electrify.finetuning import run


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zoo_in(tmp_path_factory.mktemp("zoo"))


@pytest.fixture
def pictures() -> None:
    """Runs of the test draw their report."""


@pytest.fixture(autouse=True)
def _without_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not otherwise: the picture takes longer than a short run."""
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr(run, "picture", lambda draw: None)


@pytest.fixture
def reviews(tmp_path: Path) -> tuple[str, str]:
    """Own files that a model can learn: the class is which word occurs."""
    kinds = {"positive": ("good", "great", "fine"), "negative": ("bad", "awful", "poor")}
    openings = [
        f"the {thing} was {more}"
        for thing in ("film", "plot", "one")
        for more in ("", "very ", "not very ")
    ]
    rows = [
        {"text": opening + word, "label": label}
        for label, words in kinds.items()
        for word in words
        for opening in openings
    ]
    paths = tmp_path / "reviews.jsonl", tmp_path / "held.jsonl"
    paths[0].write_text("".join(json.dumps(r) + "\n" for r in rows[::2] + rows[1::2]))
    paths[1].write_text("".join(json.dumps(r) + "\n" for r in rows[::3]))
    return str(paths[0]), str(paths[1])
