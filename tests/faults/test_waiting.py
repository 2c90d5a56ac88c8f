"""Processes that meet: they say for whom they wait, and hear signals all the while."""

import shutil
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from breaking import SHORT

from small import Process, pretrain_words

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
def port() -> int:
    """A free one."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def alone(data: Path, folder: Path, *, rank: int, port: int, **fields: Any) -> Process:
    """One of two processes, as a scheduler starts them, without torchrun."""
    place = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "MASTER_PORT": port}
    variables = {name: str(value) for name, value in place.items()} | {"MASTER_ADDR": "127.0.0.1"}
    words = pretrain_words(data, folder / "run", **SHORT | fields)
    return Process(words, folder / f"stderr-{rank}.txt", variables=variables)


def test_what_one_process_finds_wrong_ends_both(small_data, tmp_path, port):
    """As on a host whose copy of the corpus is not whole: no process calls it the loss of another
    one, after which a scheduler would start them again and again."""
    shutil.copytree(small_data, tmp_path / "data")
    next((tmp_path / "data").glob("tokens-train-*")).unlink()
    with ExitStack() as held:
        both = [
            held.enter_context(alone(data, tmp_path, rank=rank, port=port))
            for rank, data in enumerate((small_data, tmp_path / "data"))
        ]
        done = [process.end() for process in both]
    assert [d.status for d in done] == [2, 2]
    assert "has 0 bytes where the manifest says" in done[1].err
    assert "another process" not in done[0].err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("rank", [0, 1])
def test_whoever_does_not_come_is_named(small_data, tmp_path, port, rank):
    done = alone(small_data, tmp_path, rank=rank, port=port, ddp_timeout=1).end()
    missing = [
        "not all 2 processes came within 1 s: rank 1 is missing",
        f"nobody answers at 127.0.0.1:{port} after 1 s",
    ]
    assert missing[rank] in done.err.splitlines()[-1]
    assert "frame #" not in done.err
    assert done.status == 2
