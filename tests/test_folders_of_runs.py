"""What `pretrain` and `export` do not take, overwrite or remove, and that what they write names no
place of the machine."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from electrify import cli
from electrify.recipe import load
from small import mistake, parameters_sha256, pretrain_words

SHORT: dict[str, Any] = {"max_steps": 4, "logging_steps": 2, "save_steps": 2}


def words(data: Path, run: Path, **fields: Any) -> list[str]:
    return pretrain_words(data, run, **SHORT | fields)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, small_data: Path) -> Path:
    """A run of four steps. Read only."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert cli.main(words(small_data, folder)) == 0
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_folders_hold_relative_paths_only(
    small_data, finished, tmp_path, monkeypatch, without_exports
):
    """Also of the folders that a run starts from; and it continues wherever it is called from."""
    for part in ("discriminator", "generator"):
        shutil.copytree(finished / part, tmp_path / "models" / part)
    folder = tmp_path / "runs" / "run"
    starts: dict[str, Any] = {
        f"init_{part}": tmp_path / "models" / part for part in ("discriminator", "generator")
    }
    assert cli.main(words(small_data, folder, **starts, max_minutes=1e-4)) == 75
    for path in folder.rglob("*"):
        if path.suffix in (".yaml", ".json", ".jsonl", ".md"):
            assert str(tmp_path) not in path.read_text(), path.name
    assert (
        "init_discriminator: ../../models/discriminator\n" in (folder / "config.yaml").read_text()
    )
    read = load(folder / "config.yaml").train.init_discriminator
    assert read is not None
    assert Path(read).resolve() == tmp_path / "models" / "discriminator"
    monkeypatch.chdir(tmp_path)
    relative = {name: f"./models/../models/{Path(start).name}" for name, start in starts.items()}
    assert cli.main(words(small_data, Path("runs/run"), **relative)) == 0
    assert cli.main(words(small_data, tmp_path / "whole", **starts)) == 0
    assert parameters_sha256(folder, 4) == parameters_sha256(tmp_path / "whole", 4)


def test_a_run_and_its_start_may_be_moved(
    small_data, finished, tmp_path, capsys, monkeypatch, without_exports
):
    """The start is known again by its content, and not needed any more where it is gone."""
    monkeypatch.chdir(tmp_path)
    start = Path(shutil.copytree(finished / "discriminator", "start"))
    run, deep = Path("run"), Path("below/run")
    stopped = {"max_minutes": 1e-6}
    assert cli.main(words(small_data, run, init_discriminator=start, **stopped)) == 75
    deep.parent.mkdir()
    run.rename(deep)
    other = Path(shutil.copytree(start, "other"))
    (other / "config.json").write_text((other / "config.json").read_text() + "\n")
    said = mistake(capsys, *words(small_data, deep, init_discriminator=other))
    assert "--init-discriminator other is not the one that it started from" in said
    moved = start.rename("renamed")
    assert cli.main(words(small_data, deep, init_discriminator=start, **stopped)) == 75
    assert cli.main(words(small_data, deep, init_discriminator=moved)) == 0
    assert cli.main(words(small_data, Path("whole"), init_discriminator=moved)) == 0
    assert parameters_sha256(deep, 4) == parameters_sha256(Path("whole"), 4)
