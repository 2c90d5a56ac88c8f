"""Model folders: replaced file by file, nothing of the user's touched, whole after a kill."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from electrify.errors import UserError
from electrify.oldfiles.folders import sha256
from electrify.oldfiles.model_folder import (
    is_whole,
    may_write,
    model_mark,
    must_be_whole,
    replaced,
    sealed,
)
from small import listing

MINE = {"part": "discriminator", "objective": "rtd", "data": "d" * 64, "run": "r" * 64}


def fill(
    target: Path,
    *,
    version: str = "1",
    names: tuple[str, ...] = ("tokenizer.json",),
    identity: dict[str, str] = MINE,
) -> None:
    with replaced(target, MINE | identity) as new:
        for name in ("config.json", "model.safetensors", *names):
            (new / name).write_text(f"{name} {version}")
        (new / "README.md").write_text(sealed(f"# A card {version}\n"))


def there(target: Path) -> dict[str, str]:
    return {
        p.name: p.read_text()
        for p in target.iterdir()
        if p.name != "electrify.json" and p.is_file()
    }


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    target = tmp_path / "model"
    fill(target, names=("tokenizer.json", "vocab.txt"))
    (target / "notes.txt").write_text("mine")
    (target / "results").mkdir()
    (target / "results" / "scores.jsonl").write_text("{}")
    fill(target, version="2")
    assert there(target) == {
        "config.json": "config.json 2", "model.safetensors": "model.safetensors 2",
        "tokenizer.json": "tokenizer.json 2",
        "README.md": sealed("# A card 2\n"), "notes.txt": "mine",
    }  # fmt: skip
    assert (target / "results" / "scores.jsonl").read_text() == "{}"
    mark = model_mark(target) or {}
    assert set(mark["files"]) == {"config.json", "model.safetensors", "tokenizer.json", "README.md"}


def test_a_file_in_the_way_is_not_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "model"
    fill(target)
    (target / "vocab.txt").write_text("my own words")
    before = listing(target)
    with pytest.raises(UserError, match=r"vocab\.txt is not a file that electrify wrote"):
        fill(target, version="2", names=("tokenizer.json", "vocab.txt"))
    assert listing(target) == before
    (target / "vocab.txt").unlink()
    (target / "tokenizer.json").unlink()
    (target / "tokenizer.json").symlink_to("/etc/passwd")
    with pytest.raises(UserError, match=r"tokenizer\.json is not a file that electrify wrote"):
        fill(target, version="2")
    assert there(target)["config.json"] == "config.json 1"


def test_a_card_that_somebody_changed_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "model"
    fill(target)
    (target / "README.md").write_text("# My own words about it\n")
    fill(target, version="2")
    assert there(target)["README.md"] == "# My own words about it\n"
    assert there(target)["config.json"] == "config.json 2"
    assert "README.md stays" in capsys.readouterr().err
    (target / "README.md").unlink()
    fill(target, version="2")
    assert there(target)["README.md"] == sealed("# A card 2\n")


@pytest.mark.parametrize(
    ("identity", "says"),
    [
        ({"part": "generator"}, "another kind"),
        ({"run": "x" * 64}, "another run"),
        ({"data": "x" * 64}, "another run"),
    ],
)
def test_another_model_is_refused(tmp_path: Path, identity: dict[str, str], says: str) -> None:
    fill(tmp_path / "model")
    before = listing(tmp_path)
    with pytest.raises(UserError, match=says):
        fill(tmp_path / "model", version="2", identity=identity)
    assert listing(tmp_path) == before


def test_a_linked_folder_is_written_through(tmp_path: Path) -> None:
    """It stays a link, and nothing is left beside it."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for version in ("1", "2"):
        fill(tmp_path / "link", version=version)
    assert (tmp_path / "link").is_symlink()
    assert there(tmp_path / "real")["config.json"] == "config.json 2"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "real"]
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    with pytest.raises(UserError, match="leads nowhere"):
        fill(tmp_path / "nowhere")


MARKS = ["{}", "[]", "not JSON", '{"format": 1}', '{"format": 1, "part": 5}']


@pytest.mark.parametrize("mark", [*MARKS, '{"format": 1, "part": "x", "electrify": "other"}'])
def test_a_mark_of_somebody_else(tmp_path: Path, mark: str) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "electrify.json").write_text(mark)
    with pytest.raises(UserError, match="is not an export of electrify"):
        fill(tmp_path / "model")
    assert listing(tmp_path).keys() == {"model/electrify.json"}


def test_an_export_of_an_earlier_version_is_replaced(tmp_path: Path) -> None:
    """Its mark has no list of files: those of the fixed list are its own."""
    target = tmp_path / "model"
    fill(target)
    old = {
        k: v
        for k, v in (model_mark(target) or {}).items()
        if k not in ("electrify", "files", "run", "seal")
    }
    (target / "electrify.json").write_text(json.dumps(old))
    (target / "notes.txt").write_text("mine")
    fill(target, version="2")
    assert there(target)["config.json"] == "config.json 2"
    assert there(target)["notes.txt"] == "mine"


def half(target: Path) -> None:
    with replaced(target, MINE) as new:
        (new / "config.json").write_text("half")
        new.write_text("not a file")


def test_an_error_while_writing_changes_nothing(tmp_path: Path) -> None:
    fill(tmp_path / "model")
    before = listing(tmp_path)
    for name in ("model", "new"):
        with pytest.raises(IsADirectoryError):
            half(tmp_path / name)
    assert listing(tmp_path) == before
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def at_replace(patch: pytest.MonkeyPatch, at: int, act: Callable[[], object]) -> None:
    """Does something before the file at this place in the order is replaced."""
    met, replace = iter(range(9)), os.replace

    def acting(source: Path, target: Path) -> None:
        if next(met) == at + 1:  # the mark comes first
            act()
        replace(source, target)

    patch.setattr(os, "replace", acting)


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("at", range(4))
def test_a_kill_between_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Nobody takes the folder for a model until the same command has made it whole."""
    target = tmp_path / "model"
    fill(target)
    (target / "notes.txt").write_text("mine")
    pid = os.fork()
    if not pid:
        at_replace(monkeypatch, at, lambda: os.kill(os.getpid(), signal.SIGKILL))
        with contextlib.suppress(BaseException):
            fill(target, version="2")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    assert not (target / "config.json").exists()
    with pytest.raises(UserError, match="was interrupted; repeat the command"):
        must_be_whole(target)
    fill(target, version="2")
    must_be_whole(target)
    fill(tmp_path / "unbroken", version="2")
    shutil.copy(target / "notes.txt", tmp_path / "unbroken")
    assert listing(target) == listing(tmp_path / "unbroken")
    assert not [p for p in target.iterdir() if p.name.startswith(".")]


def forged(target: Path, victim: str, digest: str) -> None:
    mark = {"electrify": "model", "format": 1, **MINE, "files": {victim: digest}}
    (target / "electrify.json").write_text(json.dumps(mark))


@pytest.mark.parametrize("name", ["../victim.txt", "victim.txt", "absolute"])
def test_a_mark_of_others_deletes_nothing(tmp_path: Path, name: str) -> None:
    """What a mark lists may be removed when it is replaced, so only a mark that we sealed is
    believed, and names of our files only."""
    target, victim = tmp_path / "model", tmp_path / "victim.txt"
    target.mkdir()
    victim.write_text("thesis")
    shutil.copy(victim, target)
    forged(
        target, str(victim) if name == "absolute" else name, hashlib.sha256(b"thesis").hexdigest()
    )
    with pytest.raises(UserError, match="is not an export of electrify"):
        fill(target)
    assert victim.read_text() == (target / "victim.txt").read_text() == "thesis"


def test_a_mark_that_was_edited_is_not_believed(tmp_path: Path) -> None:
    target = tmp_path / "model"
    fill(target)
    mark = json.loads((target / "electrify.json").read_text())
    (target / "electrify.json").write_text(
        json.dumps(mark | {"files": mark["files"] | {"vocab.txt": "0" * 64}})
    )
    with pytest.raises(UserError, match="or one that was changed"):
        fill(target, version="2")


@pytest.mark.parametrize("key", ["files", "electrify", "seal", "format", "part"])
def test_a_mark_with_a_damaged_key_is_not_believed(tmp_path: Path, key: str) -> None:
    """Without its list nothing in the folder would be known to be the user's."""
    target = tmp_path / "model"
    fill(target)
    (target / "tokenizer.json").write_text("mine")
    mark = (target / "electrify.json").read_text()
    (target / "electrify.json").write_text(mark.replace(f'"{key}"', f'"{key[:-1]}b"'))
    with pytest.raises(UserError, match="or one that was changed"):
        fill(target, version="2")
    assert there(target)["tokenizer.json"] == "mine"


def test_a_folder_where_a_mark_is_looked_for(tmp_path: Path) -> None:
    (tmp_path / "model" / "electrify.json").mkdir(parents=True)
    assert model_mark(tmp_path / "model") is None
    assert sha256(tmp_path) is None
    with pytest.raises(UserError, match="is not an export of electrify"):
        fill(tmp_path / "model")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_file_that_the_user_changed_is_not_overwritten(tmp_path: Path, name: str) -> None:
    """Its hash is not the one in the mark: a model trained further in place, a configuration that
    was edited."""
    target = tmp_path / "model"
    fill(target)
    (target / name).write_text("my own")
    before = listing(tmp_path)
    with pytest.raises(
        UserError, match=rf"{name} was changed after electrify wrote it; move it away or remove it"
    ):
        may_write(target, MINE)
    with pytest.raises(UserError, match=rf"{name} was changed after electrify wrote it"):
        fill(target, version="2")
    assert listing(tmp_path) == before
    assert not is_whole(target)
    (target / name).unlink()
    fill(target, version="2")
    assert there(target)[name] == f"{name} 2"
    assert is_whole(target)


def test_a_file_changed_while_its_model_is_written(tmp_path: Path) -> None:
    target = tmp_path / "model"
    fill(target)

    def meanwhile() -> None:
        with replaced(target, MINE) as new:
            (new / "config.json").write_text("config.json 2")
            (target / "config.json").write_text("mine")

    with pytest.raises(UserError, match="was changed after electrify wrote it"):
        meanwhile()
    assert there(target)["config.json"] == "mine"


@pytest.mark.parametrize("at", range(4))
def test_a_file_changed_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Until the model is whole each file is the old one, the new one, or the user's; another
    version may follow."""
    target = tmp_path / "model"
    fill(target)
    at_replace(monkeypatch, at, interrupt)
    with pytest.raises(KeyboardInterrupt):
        fill(target, version="2")
    monkeypatch.undo()
    assert not is_whole(target)
    kept = (target / "tokenizer.json").read_text()
    (target / "tokenizer.json").write_text("mine")
    with pytest.raises(UserError, match=r"tokenizer\.json was changed"):
        fill(target, version="2")
    (target / "tokenizer.json").write_text(kept)
    fill(target, version="3")
    assert there(target)["tokenizer.json"] == "tokenizer.json 3"


def test_weights_that_are_gone_make_no_whole_model(tmp_path: Path) -> None:
    target = tmp_path / "model"
    assert not is_whole(target)
    fill(target)
    assert is_whole(target)
    (target / "model.safetensors").unlink()
    assert not is_whole(target)


def test_a_link_inside_the_folder_that_the_user_named(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "models").symlink_to(tmp_path / "elsewhere")
    with (
        pytest.raises(UserError, match="models is a link"),
        replaced(tmp_path / "out" / "models" / "x", MINE, top=tmp_path / "out"),
    ):
        pass
    assert not list((tmp_path / "elsewhere").iterdir())


def test_files_have_the_modes_that_the_umask_gives(tmp_path: Path) -> None:
    """A library writes weights that only their owner may read."""
    with replaced(tmp_path / "model", MINE) as new:
        (new / "config.json").write_text("{}")
        (new / "model.safetensors").touch(mode=0o600)
    (tmp_path / "other").touch()
    found = {p.stat().st_mode for p in (tmp_path / "model").iterdir() if p.suffix != ".lock"}
    assert found == {(tmp_path / "other").stat().st_mode}
