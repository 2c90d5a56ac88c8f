from __future__ import annotations

import pytest

from electrify.train import run


@pytest.fixture
def exports() -> None:
    """Runs of the test write their Hugging Face folders."""


@pytest.fixture(autouse=True)
def _without_exports(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not otherwise: to write, load and compare them is a third of a short run."""
    if "exports" not in request.fixturenames:
        monkeypatch.setattr(run, "export_run", lambda *given, **named: {})
