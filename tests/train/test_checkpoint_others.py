"""What is called checkpoint-N, or lies in one, and is not ours: never removed, neither by a save
nor by rotation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoints import folders, holds, save

from electrify.oldfiles.run_folder import Found
from electrify.train import checkpoint
from small import listing


def mine(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "thesis.txt").write_text("years of work")
    return path


FOREIGN: dict[str, Callable[[Path], object]] = {
    "a folder": mine,
    "an empty folder": lambda path: path.mkdir(),
    "a file": lambda path: path.write_text("mine"),
    "a link": lambda path: path.symlink_to(mine(path.with_name("elsewhere"))),
    "another's manifest": lambda path: (mine(path) / "manifest.json").write_text(
        json.dumps({"format": 1, "step": 12, "files": {}})
    ),
    "a manifest of another step": lambda path: save(path.parent, 11).rename(path),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_what_stands_where_a_checkpoint_must_go_is_kept(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    FOREIGN[kind](tmp_path / "checkpoint-12")
    before = {
        name.replace("checkpoint-12", "checkpoint-12.changed", 1): digest
        for name, digest in listing(tmp_path).items()
    }
    assert holds(save(tmp_path, 12), 12)
    assert before.items() <= listing(tmp_path).items()
    assert (tmp_path / "checkpoint-12.changed").exists()
    assert (
        "is not, or not only, a checkpoint that electrify wrote: it is kept as "
        "checkpoint-12.changed" in capsys.readouterr().err
    )
    save(tmp_path, 13, keep=1)
    assert before.items() <= listing(tmp_path).items()


def test_a_damaged_checkpoint_with_a_file_of_the_user_is_kept(tmp_path: Path) -> None:
    path = save(tmp_path, 12)
    (path / "model.safetensors").write_bytes(b"damaged")
    (path / "notes.txt").write_text("mine")
    assert holds(save(tmp_path, 12), 12)
    assert (tmp_path / "checkpoint-12.changed" / "notes.txt").read_text() == "mine"


def test_a_checkpoint_that_cannot_be_read_is_not_replaced_silently(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path, 12)
    (path / "manifest.json").write_bytes((path / "manifest.json").read_bytes()[:20])
    assert holds(save(tmp_path, 12), 12)
    assert "it is kept as checkpoint-12.changed" in capsys.readouterr().err
    assert (tmp_path / "checkpoint-12.changed" / "model.safetensors").exists()


def test_a_damaged_checkpoint_of_ours_alone_is_replaced(tmp_path: Path) -> None:
    (save(tmp_path, 12) / "model.safetensors").write_bytes(b"damaged")
    assert holds(save(tmp_path, 12), 12)
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint-12"]


def test_rotation_leaves_the_files_of_the_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path, 1)
    (path / "notes.txt").write_text("mine")
    mine(path / "eval")
    (mine(tmp_path / "checkpoint-0") / "model.safetensors").write_text("mine, too")
    for step in (2, 3, 4):
        save(tmp_path, step, keep=1)
    assert folders(tmp_path) == {"checkpoint-0", "checkpoint-1", "checkpoint-4"}
    kept = {"notes.txt", "eval/thesis.txt"}
    assert listing(path).keys() == kept
    assert listing(tmp_path / "checkpoint-0").keys() == {"thesis.txt", "model.safetensors"}
    said = capsys.readouterr().err
    assert (
        said.count(
            "checkpoint-1 stays, for it holds other files (eval, notes.txt); those of the "
            "checkpoint are removed"
        )
        == 1
    )
    assert checkpoint.newest(tmp_path) == Found(tmp_path / "checkpoint-4", 4)


def test_rotation_leaves_links_alone(tmp_path: Path) -> None:
    save(tmp_path, 5).rename(tmp_path / "archive")
    (tmp_path / "checkpoint-5").symlink_to("archive")
    save(tmp_path, 6, keep=1)
    save(tmp_path, 7, keep=1)
    assert (tmp_path / "checkpoint-5").is_symlink()
    assert (tmp_path / "archive" / "manifest.json").is_file()
