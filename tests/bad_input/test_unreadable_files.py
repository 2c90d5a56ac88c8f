"""Files that the machine does not let us read: not damaged, not missing, and not somebody else's.
The message says so, and nothing is moved aside."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import electrify
from electrify.errors import UserError
from electrify.oldfiles.folders import open_own
from electrify.oldfiles.reading import UnreadableError
from electrify.text.shards import Corpus
from small import mistake, pretrain_words, run

MAY = "make sure that you may read it"
ADVICE = {"EACCES": MAY, "EIO": "look at the disk", "EMFILE": "raise the limit (ulimit -n)"}
Refuse = Callable[..., None]


@pytest.fixture(scope="module")
def finished(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two updates with its exported halves."""
    folder = tmp_path_factory.mktemp("unreadable") / "run"
    assert run(*pretrain_words(small_data, folder, max_steps=2)) == 0
    return folder


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Makes the machine refuse to open a file: root, as whom tests may run, may open all."""
    really = os.open

    def start(path: Path, code: str = "EACCES") -> None:
        number = getattr(errno, code)

        def refused(name: Any, *flags: Any, **more: Any) -> int:
            if os.fspath(name) == str(path):
                raise OSError(number, os.strerror(number), str(path))
            return really(name, *flags, **more)

        monkeypatch.setattr(os, "open", refused)

    return start


@pytest.mark.parametrize(
    "name",
    [
        "data/manifest.json",
        "data/unigram.npy",
        "run/run.json",
        "run/config.yaml",
        "run/checkpoint-2/state.json",
        "run/discriminator/config.json",
        "run/discriminator/model.safetensors",
    ],
)
def test_doctor_asks_for_the_permission(
    small_data: Path, finished: Path, tmp_path: Path, refuse: Refuse, name: str
) -> None:
    shutil.copytree(small_data, tmp_path / "data")
    shutil.copytree(finished, tmp_path / "run")
    refuse(tmp_path / name)
    folder = (tmp_path / name).parent if "discriminator" in name else tmp_path / name.split("/")[0]
    report = electrify.diagnose(electrify.DoctorConfig(paths=(str(folder),)))
    assert report.status == 1
    errors = [f for d in report.folders for f in d.findings if f.level == "error"]
    for f in errors:
        assert "cannot be read" in f.fact, f
        assert "Permission denied" in f.fact, f
        assert f.advice == "Make sure that you may read it."


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("config.yaml", "EACCES"),
        ("run.json", "EACCES"),
        ("run.json", "EMFILE"),
        ("tokenizer/vocab.txt", "EIO"),
        ("discriminator/electrify.json", "EACCES"),
        ("discriminator/config.json", "EMFILE"),
        ("checkpoint-2/manifest.json", "EMFILE"),
    ],
)
def test_a_run_is_not_continued_past_a_file_that_cannot_be_read(
    small_data: Path,
    finished: Path,
    tmp_path: Path,
    refuse: Refuse,
    capsys: pytest.CaptureFixture[str],
    name: str,
    code: str,
) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    before = sorted(folder.rglob("*"))
    refuse(folder / name, code)
    said = mistake(capsys, *pretrain_words(small_data, folder, max_steps=2))
    why = os.strerror(getattr(errno, code))
    assert f"{folder / name} cannot be read ({why}); {ADVICE[code]}" in said
    assert sorted(folder.rglob("*")) == before


def test_too_many_open_files_do_not_damage_a_corpus(small_data: Path, refuse: Refuse) -> None:
    refuse(small_data / "unigram.npy", "EMFILE")
    with pytest.raises(UserError, match=r"unigram\.npy cannot be read .*; raise the limit"):
        Corpus(small_data, "train").unigram()


@pytest.mark.parametrize("code", ADVICE)
def test_whose_an_unreadable_file_is_stays_unknown(
    tmp_path: Path, refuse: Refuse, code: str
) -> None:
    (tmp_path / "a").write_text("{}")
    refuse(tmp_path / "a", code)
    with pytest.raises(UnreadableError, match="cannot be read"):
        open_own(tmp_path / "a")


def test_what_is_no_regular_file_is_not_ours(tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "link", "pipe", "nothing", "file/x"):
        assert open_own(tmp_path / name) is None
    refuse(tmp_path / "pipe")
    assert open_own(tmp_path / "pipe") is None
