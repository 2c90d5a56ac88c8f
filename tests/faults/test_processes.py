"""Several processes, and something happens to one of them: the others leave with it, and the same
command continues."""

import shutil
import socket
from contextlib import ExitStack
from pathlib import Path

import breaking
import pytest
from breaking import SHORT, UPDATE, variables

from small import TORCHRUN, Process, pretrain_words, same_ending, steps_of, torchrun

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def pair(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The short run in two processes that nothing disturbed."""
    folder = tmp_path_factory.mktemp("pair")
    done = torchrun(pretrain_words(small_data, folder / "run", **SHORT), folder).end()
    assert done.status == 0, done.err
    return folder / "run"


def two(words: list[str], folder: Path, fault: str) -> Process:
    given = {"prefix": TORCHRUN, "variables": variables(fault)}
    return Process([breaking.__file__, *words], folder / "stderr.txt", **given)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("point", [f"{UPDATE}@11", "electrify.train.loop:Run.evaluate@1"])
def test_a_signal_to_one(small_data, pair, tmp_path, point, rank):
    """All stop at the same update and save. A signal in the validation after update 10 is obeyed
    after the update that follows."""
    words = pretrain_words(small_data, tmp_path / "run", **SHORT)
    done = two(words, tmp_path, f"term@{point}%{rank}").end()
    assert done.status != 0
    assert "stopped and saved at step" in done.err
    assert steps_of(tmp_path / "run") == [7, 11]
    assert torchrun(words, tmp_path).end().status == 0
    same_ending(pair, tmp_path / "run", step=24)


def test_the_writing_one_is_killed(small_data: Path, pair: Path, tmp_path: Path) -> None:
    words = pretrain_words(small_data, tmp_path / "run", **SHORT)
    assert two(words, tmp_path, f"kill@{UPDATE}@18%0").end().status != 0
    assert steps_of(tmp_path / "run") == [7, 14]
    assert torchrun(words, tmp_path).end().status == 0
    same_ending(pair, tmp_path / "run", step=24)


def test_one_hangs(small_data: Path, pair: Path, tmp_path: Path) -> None:
    """The other gives it up after --ddp-timeout, with a sentence."""
    words = [*pretrain_words(small_data, tmp_path / "run", **SHORT), "--ddp-timeout", "20"]
    done = two(words, tmp_path, f"stop@{UPDATE}@16%1").end()
    assert done.status != 0
    assert "another process of the run ended or did not answer" in done.err
    assert 'electrify/cli.py", line' not in done.err, done.err
    assert steps_of(tmp_path / "run") == [7, 14]
    assert torchrun(words, tmp_path).end().status == 0
    same_ending(pair, tmp_path / "run", step=24)


def alone(data: Path, folder: Path, *, rank: int, port: int) -> Process:
    """One of two processes, as a scheduler starts them, without torchrun."""
    place = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "MASTER_PORT": port}
    variables = {name: str(value) for name, value in place.items()} | {"MASTER_ADDR": "127.0.0.1"}
    words = pretrain_words(data, folder / "run", **SHORT)
    return Process(words, folder / f"stderr-{rank}.txt", variables=variables)


def test_what_one_process_finds_wrong_ends_both(small_data, tmp_path):
    """As on a host whose copy of the corpus is not whole: no process calls it the loss of another
    one, after which a scheduler would start them again and again."""
    shutil.copytree(small_data, tmp_path / "data")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
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
