"""Two real processes with gloo, and one without anything."""

import json
import os
import platform
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as td

from electrify.train import machine
from electrify.train.rendezvous import agree

CPU = torch.device("cpu")
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK")

# Every answer of every function on each rank; then steps until all agree to stop, though only rank
# 1 was asked to.
WORKER = """
    import json, math, os, signal, sys
    from pathlib import Path
    import torch
    from electrify.errors import UserError
    from electrify.train import dist
    from electrify.train.signals import SAVED_EXIT, Stop

    def error(call):
        try:
            return call() or ""
        except UserError as e:
            return str(e)

    world = dist.start(torch.device("cpu"), timeout_s=60.0)
    r = world.rank
    out = {"world": [r, world.size, str(world.device), world.is_main]}
    a = torch.tensor([r + 1.0, 0.5])
    b = torch.tensor(2**24 + 1 + r)
    c = torch.tensor([[0.1]], dtype=torch.float64)
    p = torch.full((2,), 1.0 + r, dtype=torch.bfloat16, requires_grad=True)
    views = [a, b, c, p]
    dist.sum_across(views)
    out["sum"] = [t.tolist() for t in views]
    dist.sum_across([])
    out["any"] = [dist.any_across(flag) for flag in (False, r == 0, r == 1, True)]
    out["same"] = [
        error(lambda: dist.same_across("x", what="corpus")),
        error(lambda: dist.same_across(f"x{r}", what="corpus")),
    ]
    with Stop() as stop:
        for step in range(1, 100):
            if r == 1 and step == 3:
                os.kill(os.getpid(), signal.SIGTERM)
            if dist.any_across(stop.requested):
                break
    out["stopped"] = [step, stop.requested]
    torch.distributed.barrier()
    Path(sys.argv[1], f"{r}.json").write_text(json.dumps(out))
    dist.stop()
    sys.exit(0 if torch.distributed.is_initialized() is False else 1)
"""


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
    module = dist.averaging(net, "float32")
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


def torchrun(tmp_path: Path, script: str, *, processes: int = 2) -> subprocess.Popen[str]:
    (tmp_path / "worker.py").write_text(textwrap.dedent(script))
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(processes),
        str(tmp_path / "worker.py"),
        str(tmp_path),
    ]
    environment = {k: v for k, v in os.environ.items() if k not in VARIABLES} | {
        "OMP_NUM_THREADS": "1"
    }
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("two")
    with torchrun(folder, WORKER) as process:
        err = process.communicate(timeout=60)[1]
    assert process.returncode == 0, err
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.timeout(90)
def test_two_processes_give_the_same_answers(answers: list[dict[str, Any]]) -> None:
    assert [a.pop("world") for a in answers] == [[0, 2, "cpu", True], [1, 2, "cpu", False]]
    assert [a.pop("stopped") for a in answers] == [
        [3, False],
        [3, True],
    ]  # asked on one rank, both at the same step
    assert answers[0] == answers[1]
    total = answers[0]
    # 1 + 2, twice one half; 2^24 + 1 twice and one more, beyond what float32 counts; bfloat16
    # parameters.
    assert total["sum"] == [[3.0, 1.0], 2**25 + 3, [[0.2]], [3.0, 3.0]]
    assert total["any"] == [False, True, True, True]
    assert total["same"] == [
        "",
        "corpus on rank 1 is not that of rank 0; every process must be given the same",
    ]


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_every_update_is_averaged_in_the_same_way(tmp_path: Path) -> None:
    """Or a run of three processes would go on from a checkpoint with other bits."""
    with torchrun(tmp_path, AVERAGING, processes=3) as process:
        err = process.communicate(timeout=60)[1]
    assert process.returncode == 0, err
    assert "Warning" not in err
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    assert len({digest for of_rank in found for digest in of_rank}) == 1


@pytest.fixture
def store() -> td.Store:
    return td.HashStore()


@pytest.mark.parametrize("size", [1, 2, 5])
def test_all_agree_on_a_new_name_every_time(store: td.Store, size: int) -> None:
    names = []
    with ThreadPoolExecutor(size) as threads:
        for _ in range(4):
            found = set(
                threads.map(
                    lambda rank: agree(store, rank=rank, size=size, timeout_s=30), range(size)
                )
            )
            assert len(found) == 1
            names += found
    assert len(set(names)) == 4


def test_describe_says_what_a_result_depends_on_and_not_where_it_ran() -> None:
    facts = machine.describe(CPU)
    assert facts["device"] == "cpu"
    assert torch.__version__.startswith(facts["torch"])  # the package may lack "+cu130"
    assert facts["python"] == platform.python_version()
    assert facts["threads"] == torch.get_num_threads()
    assert 1 <= facts["cores"] <= (os.cpu_count() or 1)
    assert facts["transformers"]
    text = json.dumps(facts)
    assert platform.node() not in text
    assert str(Path.home()) + "/" not in text
    assert str(Path(__file__).parents[2]) not in text
