"""What `pretrain` and `export` do not take, overwrite or remove, and that what they write names no
place of the machine."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from electrify import cli
from electrify.recipe import load
from electrify.train import METRICS, dist
from electrify.train.log import read
from electrify.train.start import content_of, is_same
from small import listing, mistake, model_files, parameters_sha256, pretrain_words

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


@pytest.mark.parametrize(
    "name",
    [
        "config.yaml",
        "generator-stage/notes.txt",
        "discriminator/notes.txt",
        "tokenizer/mine.txt",
        "checkpoint-3/notes.txt",
    ],
)
def test_foreign_files_with_our_names(
    capsys: pytest.CaptureFixture[str], small_data: Path, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "run"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text("seed: 5  # mine\n")
    before = listing(folder)
    sentence = mistake(capsys, *words(small_data, folder))
    assert "holds no run.json, so it is not ours to write into" in sentence
    assert listing(folder) == before


def test_a_recipe_of_the_user_is_no_run(
    capsys: pytest.CaptureFixture[str], small_data: Path, tmp_path: Path
) -> None:
    """He wrote it as config.yaml where the run shall be: it would be overwritten by the resolved
    one."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text(
        "like: electra-tiny\ntrain:\n  max_steps: 4\n  device: cpu\n"
    )
    before = listing(folder)
    mistake(
        capsys, "pretrain", small_data, "--config", folder / "config.yaml", "--output-dir", folder
    )
    assert listing(folder) == before


def test_what_the_user_puts_into_a_model_folder_stays(small_data: Path, run: Path) -> None:
    models = model_files(run / "discriminator")
    (run / "discriminator" / "notes.txt").write_text("mine")
    (run / "discriminator" / "x").mkdir()
    (run / "discriminator" / "x" / "scores.jsonl").write_text("{}")
    before = listing(run / "discriminator")
    assert cli.main(words(small_data, run)) == 0
    assert cli.main(["export", str(run), "--output-dir", str(run / "discriminator")]) == 0
    after = listing(run / "discriminator")
    assert {k: v for k, v in after.items() if k != "README.md"} == {
        k: v for k, v in before.items() if k != "README.md"
    }
    assert models.items() <= after.items()


def test_another_half_and_another_run_are_refused(
    capsys: pytest.CaptureFixture[str], small_data: Path, run: Path, tmp_path: Path
) -> None:
    assert cli.main(words(small_data, tmp_path / "other", seed=3)) == 0
    before = listing(run)
    assert "holds another model (discriminator)" in mistake(
        capsys, "export", run, "--part", "generator", "--output-dir", run / "discriminator"
    )
    assert "holds another model (discriminator)" in mistake(
        capsys, "export", tmp_path / "other", "--output-dir", run / "discriminator"
    )
    assert listing(run) == before


def test_a_linked_target_stays_a_link(run: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "lnk").symlink_to(tmp_path / "real")
    for _ in range(2):
        assert cli.main(["export", str(run), "--output-dir", str(tmp_path / "lnk")]) == 0
    assert (tmp_path / "lnk").is_symlink()
    assert (tmp_path / "real" / "electrify.json").is_file()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lnk", "real", "run"]


def test_folders_hold_relative_paths_only(
    small_data: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    small_data: Path,
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


def test_what_tells_a_start(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder by its files; a model of the Hub by its name and the commit in the cache."""
    cached = tmp_path / "snapshots" / "abc123" / "config.json"
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: str(cached))
    content = content_of(str(finished / "discriminator"))
    copy = Path(shutil.copytree(finished / "discriminator", tmp_path / "copy"))
    (copy / "README.md").write_text("mine")
    assert is_same(str(copy), content)
    assert not is_same(str(finished / "generator"), content)
    assert content_of("me/start") == "me/start@abc123"
    assert is_same("me/start", "me/start@an-older-one"), "a run that goes on does not need it"
    assert not is_same("me/start", "me/other@abc123")


def test_the_last_updates_are_in_the_log(small_data: Path, tmp_path: Path) -> None:
    """Also those after the last multiple of logging_steps: the FLOPs of the whole run."""
    folder = tmp_path / "run"
    assert cli.main(words(small_data, folder, max_steps=5, logging_steps=3, eval_steps=0)) == 0
    lines = [r for r in read(folder / METRICS) if r["kind"] == "train"]
    assert [r["step"] for r in lines] == [3, 5]
    assert lines[1]["flops"] == pytest.approx(lines[0]["flops"] * 5 / 3)
    assert "| updates | 5 |" in (folder / "discriminator" / "README.md").read_text()


def test_hosts_may_see_a_run_under_several_names(
    small_data: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(dist, "same_across", lambda text, **_: told.append(text))
    shutil.rmtree(run / "checkpoint-4")
    monkeypatch.chdir(run.parent)
    for name in (Path(run.name), run):
        assert cli.main(words(small_data, name)) == 0
        shutil.rmtree(run / "checkpoint-4")
    assert len(told) == 2
    assert told[0] == told[1]
