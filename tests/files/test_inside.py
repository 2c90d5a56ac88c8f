"""No write leaves the folder that the user named, and none goes into a checkpoint."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from electrify.errors import UserError
from electrify.oldfiles.inside import (
    make_inside,
    must_be_utf8,
    must_not_be_in_a_checkpoint,
    must_stay_inside,
)
from electrify.oldfiles.lock import lock


def test_a_link_on_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "real").mkdir()
    (tmp_path / "top").symlink_to(tmp_path / "real")  # the user named it
    make_inside(tmp_path / "top" / "a" / "b", tmp_path / "top")
    assert (tmp_path / "real" / "a" / "b").is_dir()
    (tmp_path / "real" / "a" / "link").symlink_to(tmp_path / "outside")
    for path in ("a/link", "a/link/c"):
        with pytest.raises(
            UserError, match="link is a link, and files would be written through it"
        ):
            make_inside(tmp_path / "top" / path, tmp_path / "top")
    (tmp_path / "real" / "dangling").symlink_to(tmp_path / "nothing")
    with pytest.raises(UserError, match="dangling is a link"):
        must_stay_inside(tmp_path / "top" / "dangling", tmp_path / "top")
    assert not list((tmp_path / "outside").iterdir())
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("beside", ["config.yaml", "run.json", "checkpoint-4/manifest.json"])
def test_a_checkpoint_is_no_output_folder(tmp_path: Path, beside: str) -> None:
    inside = tmp_path / "run" / "checkpoint-4"
    inside.mkdir(parents=True)
    (inside / "state.json").touch()
    must_not_be_in_a_checkpoint(inside)  # of whom nobody knows
    (tmp_path / "run" / beside).touch()
    (tmp_path / "link").symlink_to(inside)
    for path in (
        inside,
        inside / "ft",
        inside / "a" / "b",
        tmp_path / "link",
        inside / ".." / "checkpoint-4",
    ):
        with pytest.raises(UserError, match="checkpoint of a run"), lock(path):
            pass
    assert sorted(p.name for p in inside.iterdir()) == sorted(
        {"state.json", *([beside.split("/")[1]] if "/" in beside else [])}
    )
    must_not_be_in_a_checkpoint(tmp_path / "run" / "checkpoints" / "x")


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    must_be_utf8(tmp_path / "größe")
    with pytest.raises(UserError, match="not UTF-8"):
        must_be_utf8(tmp_path / os.fsdecode(b"\xff\xfe"))
