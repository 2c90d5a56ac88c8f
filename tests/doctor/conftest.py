"""One finished run of a few updates, made by the real verb, with its exported halves. Read only;
`run` and `data` are copies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from electrify import cli
from small import pretrain_words


@pytest.fixture(scope="session")
def finished(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("doctor") / "run"
    words = pretrain_words(
        small_data,
        run,
        max_steps=8,
        save_steps=4,
        logging_steps=1,
        eval_steps=4,
        init_words="random",
    )
    assert cli.main(words) == 0
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def data(small_data: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_data, tmp_path / "data"))


@pytest.fixture
def model(finished: Path, tmp_path: Path) -> Path:
    """The discriminator."""
    return Path(shutil.copytree(finished / "discriminator", tmp_path / "model"))
