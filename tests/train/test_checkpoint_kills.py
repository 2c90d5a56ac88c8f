"""SIGKILL at any moment of a save."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from checkpoints import folders, holds, save

from electrify.train import checkpoint

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
            for step in range(found[2]["step"] + 1 if found else 0, 10**6):
                save(run, step, keep=2)
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        os.wait()
        found = checkpoint.newest(run)
        print(found[2]["step"] if found else -1, flush=True)
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
    step = found[2]["step"]
    assert holds(found[0], step)
    save(tmp_path, step + 1, keep=2)
    assert folders(tmp_path) == {f"checkpoint-{step}", f"checkpoint-{step + 1}"}
