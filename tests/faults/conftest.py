from pathlib import Path

import pytest
from breaking import SHORT, run

from small import pretrain_words


@pytest.fixture(scope="session")
def unbroken(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("unbroken")
    run(pretrain_words(small_data, folder / "run", **SHORT), folder)
    return folder / "run"
