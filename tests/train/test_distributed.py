"""Any number of processes and any cut of the batch train on the same rows with the same draws, and
reach the same numbers but for rounding."""

import json
import signal
import textwrap
from pathlib import Path
from typing import Any

import pytest
from batch_spy import spying

from electrify import cli
from electrify.train.loop import Run
from small import (
    TORCHRUN,
    Done,
    Process,
    logged_step,
    pretrain_words,
    same_numbers,
    steps_of,
    torchrun,
)

SPY = Path(__file__).with_name("batch_spy.py")
# Every update is logged. Without dropout, whose masks depend on the number of processes.
EXACT: dict[str, Any] = {"max_steps": 20, "logging_steps": 1, "eval_steps": 10, "save_steps": 1000}

pytestmark = pytest.mark.timeout(900)


def spied_rows(folder: Path, world: int) -> list[list[str]]:
    """For each update the hashes of the rows of all processes, in the order of the ranks."""
    texts = [(folder / f"rows.{rank}").read_text(encoding="utf-8") for rank in range(world)]
    ranks = [[json.loads(line) for line in text.splitlines()] for text in texts]
    assert all([r["step"] for r in rank] == list(range(len(rank))) for rank in ranks)
    return [[row for record in step for row in record["rows"]] for step in zip(*ranks, strict=True)]


def spy(words: list[str], folder: Path, *, processes: int) -> list[list[str]]:
    """Runs `electrify WORDS` in so many processes to its end; the rows that it trained on."""
    prefix = TORCHRUN if processes > 1 else ()
    given = [str(SPY), str(folder / "rows"), *words]
    done = Process(given, folder / "stderr.txt", prefix=prefix).end(seconds=600)
    assert done.status == 0, done.err
    return spied_rows(folder, processes)


@pytest.fixture(scope="module")
def alone(
    small_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[list[str]]]:
    """One process (this one), the whole batch at once."""
    folder = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "update", spying(Run.update, folder / "rows"))
        assert cli.main(pretrain_words(small_data, folder / "run", **EXACT)) == 0
    return folder / "run", spied_rows(folder, 1)


def test_two_processes(small_data, alone, tmp_path):
    run, rows = alone
    assert len(rows) == 20
    assert all(len(set(step)) == 4 for step in rows)
    two = spy(pretrain_words(small_data, tmp_path / "run", **EXACT), tmp_path, processes=2)
    assert two == rows
    same_numbers(run, tmp_path / "run")
    for rank in range(2):
        # 1 + 2, twice one half; 2^24 + 1 twice and one more, beyond what float32 counts; bfloat16
        # parameters.
        sums = json.loads((tmp_path / f"sums.{rank}").read_text())
        assert sums == [[3.0, 1.0], 2**25 + 3, [[0.2]], [3.0, 3.0]]
    assert (tmp_path / "run" / "generator" / "model.safetensors").is_file()


def stopped(process: Process, run: Path, *, step: int) -> Done:
    """SIGTERM to the outermost process once `step` is logged."""
    assert process.wait_for(lambda: logged_step(run) >= step), process.end().err
    process.signal(signal.SIGTERM)
    return process.end()


@pytest.mark.slow
def test_from_two_processes_to_one_and_back(small_data, alone, tmp_path):
    """Each leg ends with SIGTERM and a checkpoint; the numbers stay those of one process that was
    never disturbed."""
    run = tmp_path / "run"
    words = pretrain_words(small_data, run, **EXACT)
    # torchrun itself has no status for it.
    assert stopped(torchrun(words, tmp_path), run, step=8).status != 0
    (first,) = steps_of(run)
    assert 8 <= first < 50
    done = stopped(Process(words, tmp_path / "stderr.txt"), run, step=first + 3)
    assert done.status == 75, done.err
    assert "world_size 2 then, 1 now" in done.err
    assert first < steps_of(run)[-1] < 50
    done = torchrun(words, tmp_path).end()
    assert done.status == 0, done.err
    assert done.err.count("world_size 1 then, 2 now") == 1
    same_numbers(alone[0], run)


# The hash of the gradients after each of some backward passes over the same numbers.
AVERAGING = """
    import hashlib, json, sys
    from pathlib import Path
    import torch
    from torch import nn
    from electrify.train import dist
    world = dist.start(torch.device("cpu"), timeout_s=60.0)
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Linear(50, 50) for _ in range(6)))
    module = dist.averaging(net)
    torch.manual_seed(world.rank)
    x = torch.randn(8, 50)
    found = []
    for _ in range(3):
        net.zero_grad(set_to_none=True)
        module(x).square().sum().backward()
        flat = torch.cat([p.grad.flatten() for p in net.parameters()])
        found.append(hashlib.sha256(flat.numpy().tobytes()).hexdigest())
    Path(sys.argv[1], f"{world.rank}.json").write_text(json.dumps(found))
    dist.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_every_update_is_averaged_in_the_same_way(tmp_path: Path) -> None:
    """Or a run of three processes would go on from a checkpoint with other bits."""
    (tmp_path / "worker.py").write_text(textwrap.dedent(AVERAGING))
    words = [str(tmp_path / "worker.py"), str(tmp_path)]
    done = Process(words, tmp_path / "stderr.txt", prefix=(*TORCHRUN[:-1], "3")).end(seconds=60)
    assert done.status == 0, done.err
    assert "Warning" not in done.err
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    assert len({digest for of_rank in found for digest in of_rank}) == 1
