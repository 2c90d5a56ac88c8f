"""What processes agree on and average; what a result depends on."""

import json
import os
import platform
import textwrap
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as td
from running import CPU

from electrify.train import machine
from electrify.train.rendezvous import agree
from small import TORCHRUN, Process

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


@pytest.mark.parametrize("size", [1, 2, 5])
def test_all_agree_on_a_new_name_every_time(size: int) -> None:
    names, asked = [], partial(agree, td.HashStore(), size=size, timeout_s=30.0)
    with ThreadPoolExecutor(size) as threads:
        for _ in range(4):
            (name,) = {*threads.map(lambda rank: asked(rank=rank), range(size))}
            names.append(name)
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
