"""The folder of a corpus that is being made: files of the user, links, and a folder that is deleted
under the run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from electrify.config.prepare import PrepareConfig
from electrify.errors import UserError
from electrify.text import merging, prepare
from small import listing, write_text

NAMES = [
    "tokens-train-00000.bin",
    "documents-train-00000.npy",
    "tokens-valid-00000.bin",
    "unigram.npy",
    "prepare.log.json",
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_text(tmp_path / "a.txt", size=20_000)


def options(source: Path, out: Path) -> PrepareConfig:
    return PrepareConfig(
        inputs=(str(source),), output_dir=str(out), vocab_size=400, valid_fraction=0.1, workers=1
    )


def disturbed(
    source: Path, out: Path, point: str, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs `prepare` and does something after one of its functions."""

    module = merging if point in vars(merging) else prepare
    work = getattr(module, point)

    def acting(*given: object, **named: object) -> object:
        found = work(*given, **named)
        act()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(module, point, acting)
        prepare.prepare(options(source, out))


def stop() -> None:
    raise KeyboardInterrupt


@pytest.fixture
def begun(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose run was stopped when its texts were tokenised."""
    with pytest.raises(KeyboardInterrupt):
        disturbed(source, tmp_path / "data", "write_part", stop, monkeypatch)
    return tmp_path / "data"


def same_corpus(source: Path, out: Path) -> None:
    """Fails where the corpus is not the one of an undisturbed run."""
    prepare.prepare(options(source, out))
    prepare.prepare(options(source, out.with_name("whole")))
    whole = {
        name: digest
        for name, digest in listing(out.with_name("whole")).items()
        if name != prepare.LOG
    }
    assert whole.items() <= listing(out).items()


@pytest.mark.parametrize("kind", ["file", "link"])
@pytest.mark.parametrize("name", NAMES)
def test_files_of_the_user_in_a_folder_that_is_continued(
    source: Path, begun: Path, tmp_path: Path, name: str, kind: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    if kind == "link":
        (begun / name).symlink_to(secret)
    else:
        (begun / name).write_text("mine")
    before = listing(tmp_path)
    with pytest.raises(UserError, match=f"{name} is not of this corpus; move it away"):
        prepare.prepare(options(source, begun))
    assert listing(tmp_path) == before
    (begun / name).unlink()
    same_corpus(source, begun)


@pytest.mark.parametrize("name", NAMES[:4])
def test_a_file_of_the_user_that_comes_while_it_is_prepared(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    out = tmp_path / "data"
    with pytest.raises(UserError, match=f"{name} is not of this corpus"):
        disturbed(source, out, "write_part", lambda: (out / name).write_text("mine"), monkeypatch)
    assert (out / name).read_text() == "mine"
    (out / name).unlink()
    same_corpus(source, out)


@pytest.mark.parametrize("point", ["_shards"])
def test_our_own_files_are_known_after_a_stop(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    out = tmp_path / "data"
    with pytest.raises(KeyboardInterrupt):
        disturbed(source, out, point, stop, monkeypatch)
    same_corpus(source, out)
    assert not (out / "unfinished").exists()


@pytest.mark.parametrize("name", ["tokenizer", "parts", "parts/00000"])
def test_links_in_unfinished_are_not_written_through(
    source: Path, begun: Path, tmp_path: Path, name: str
) -> None:
    outside = tmp_path / "outside"
    (begun / "unfinished" / name).rename(outside)
    (begun / "unfinished" / name).symlink_to(outside)
    before = listing(outside)
    with pytest.raises(UserError, match="is a link, and files would be written through it"):
        prepare.prepare(options(source, begun))
    assert listing(outside) == before


@pytest.mark.parametrize("name", ["00000000.tmp", "00000000.part"])
def test_a_link_with_the_name_of_a_part_is_not_followed(
    source: Path, begun: Path, tmp_path: Path, name: str
) -> None:
    """A part was written through `.tmp`, over a file of the user."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    parts = begun / "unfinished" / "parts" / "00000"
    (parts / "00000000.part").unlink()
    (parts / name).symlink_to(victim)
    same_corpus(source, begun)
    assert victim.read_text() == "mine"
    assert not (begun / "unfinished").exists()


@pytest.mark.timeout(60)
def test_a_pipe_with_the_name_of_a_part_is_not_waited_for(source: Path, begun: Path) -> None:
    part = begun / "unfinished" / "parts" / "00000" / "00000000.part"
    part.unlink()
    os.mkfifo(part)
    same_corpus(source, begun)


def test_files_of_the_user_in_unfinished_stay(source: Path, begun: Path) -> None:
    for name in ("MINE", "parts/MINE", "parts/00000/MINE", "tokenizer/MINE"):
        (begun / "unfinished" / name).write_text("mine")
    same_corpus(source, begun)
    assert {name.removeprefix("unfinished/") for name in listing(begun) if "MINE" in name} == {
        "MINE", "parts/MINE", "parts/00000/MINE", "tokenizer/MINE",
    }  # fmt: skip
    same_corpus(source, begun)


def test_a_folder_of_the_user_that_took_the_name_is_left_alone(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "data"

    def act() -> None:
        shutil.rmtree(out)
        out.mkdir()
        (out / "thesis.txt").write_text("mine")

    with pytest.raises(UserError, match="run the same command again"):
        disturbed(source, out, "write_part", act, monkeypatch)
    assert listing(out).keys() == {"thesis.txt"}
    with pytest.raises(UserError, match="holds other files"):
        prepare.prepare(options(source, out))
