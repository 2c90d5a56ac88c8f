"""The tiny random models, made once for the tests of this folder."""

import json
from pathlib import Path
from typing import Any

import pytest
from toy import reviews_task
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
    task, paths = reviews_task(), (tmp_path / "reviews.jsonl", tmp_path / "held.jsonl")
    for path, part in zip(paths, (task.train, task.validation), strict=True):
        rows: list[Any] = [{"text": e.text, "label": "ab"[int(e.label)]} for e in part]  # type: ignore[union-attr]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(paths[0]), str(paths[1])
