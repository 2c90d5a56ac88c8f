"""SIGKILL at every named point of a save, and at any moment."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from checkpoints import folders, holds, save

from electrify.faults import SAVE_POINTS
from electrify.train import checkpoint

DRIVER = """
    import os, sys
    from pathlib import Path
    import torch
    from electrify.train import checkpoint
    for point in sys.argv[2:]:
        if os.fork() == 0:
            os.environ["ELECTRIFY_FAULT_AT"] = point
            tensors = {"model": {"w": torch.ones(5)}, "optimizer": {}}
            folder = Path(sys.argv[1]) / point
            checkpoint.save(folder, 30, tensors=tensors, state={"step": 30}, keep=1)
            os._exit(7)
        status = os.wait()[1]
        print(point, os.WTERMSIG(status) if os.WIFSIGNALED(status) else -1)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run folder a fault point: checkpoints 10 and 20, and a process that was killed there
    while saving 30 and keeping one."""
    root = tmp_path_factory.mktemp("killed")
    for point in SAVE_POINTS:
        save(root / point, 10)
        save(root / point, 20)
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        textwrap.dedent(DRIVER),
        str(root),
        *SAVE_POINTS,
    ]
    lines = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True
    ).stdout.splitlines()
    assert lines == [f"{point} 9" for point in SAVE_POINTS]
    return root


@pytest.mark.parametrize("point", SAVE_POINTS)
def test_a_kill_at_any_point_leaves_a_whole_checkpoint(
    killed: Path, point: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = killed / point
    found = checkpoint.newest(run)
    assert found is not None
    renamed = point in ("after_rename", "during_rotation")
    assert found.step == (30 if renamed else 20)
    assert renamed or holds(found.path, 20)
    assert holds(
        run / "checkpoint-10", 10
    )  # rotation takes 20 out of sight first and is killed before 10
    assert (run / "checkpoint-20").is_dir() == (point != "during_rotation")
    leftovers = [name for name in folders(run) if name.startswith(".tmp-")]
    assert len(leftovers) == (0 if point in ("before_tmp", "after_rename") else 1)
    assert capsys.readouterr().err == ""  # a half-written folder is never taken for a checkpoint

    save(run, 40, keep=2)
    assert folders(run) == {"checkpoint-40", f"checkpoint-{found.step}"}


def test_a_fault_point_can_name_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELECTRIFY_FAULT_AT", "before_rename@6")
    save(tmp_path, 5)  # alive


SOAK = """
    import os, signal, sys, time
    from pathlib import Path
    sys.path.insert(0, sys.argv[2])
    from checkpoints import checkpoint, save
    run = Path(sys.argv[1])
    for seconds in map(float, sys.argv[3:]):
        child = os.fork()
        if child == 0:
            found = checkpoint.newest(run)
            for step in range(found.step + 1 if found else 0, 10**6):
                save(run, step, keep=2)
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        os.wait()
        found = checkpoint.newest(run)
        print(found.step if found else -1, flush=True)
"""


@pytest.mark.slow
def test_kills_at_any_moment_lose_nothing_that_was_saved(tmp_path: Path) -> None:
    chance = random.Random(0)
    moments = [str(chance.uniform(0.001, 0.08)) for _ in range(50)]
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        textwrap.dedent(SOAK),
        str(tmp_path),
        str(Path(__file__).parent),
        *moments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    steps = [int(line) for line in done.stdout.split()]
    assert len(steps) == 50
    assert steps == sorted(steps)
    assert steps[-1] > 0  # or nothing was put to the test
    assert done.stderr == ""  # nothing half-written was ever taken for a checkpoint
    found = checkpoint.newest(tmp_path)
    assert found is not None
    assert holds(found.path, found.step)
    save(tmp_path, found.step + 1, keep=2)
    assert folders(tmp_path) == {f"checkpoint-{found.step}", f"checkpoint-{found.step + 1}"}
