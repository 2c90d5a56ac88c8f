import pytest


@pytest.fixture
def exports() -> None:
    """Runs of the test write their Hugging Face folders, which they do not otherwise."""


@pytest.fixture(autouse=True)
def _no_exports_unasked(request: pytest.FixtureRequest) -> None:
    if "exports" not in request.fixturenames:
        request.getfixturevalue("without_exports")
