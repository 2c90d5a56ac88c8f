"""Several `electrify` command lines, one after the other, in the processes of one torchrun: python
many_runs.py FILE, a JSON list of objects {"words": [...], "variables": {...}}. Beside FILE, in
<run>.room.<rank>, what the tensors of each run took. Used by test_sharding.py."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from spoiled import spoil
from torch import Tensor, nn

from electrify import cli
from electrify.model.blocks import Block
from electrify.train import dist
from electrify.train.dist import is_sharded
from electrify.train.loop import Batch, Run


class Room:
    """Looks at the tensors of a run whenever a matrix has run, forward and backward, and before and
    after the optimiser."""

    def __init__(self, run: Run) -> None:
        self.run, self.peak, self.whole_blocks = run, 0, 0
        self.blocks = [part for part in run.objective.modules() if isinstance(part, Block)]
        run.state.optimizer.register_step_pre_hook(lambda *_: self.look())
        run.state.optimizer.register_step_post_hook(lambda *_: self.look())

    def held(self) -> list[Tensor]:
        """Parameters, as they are kept and as they stand in the modules now, gradients, and
        optimiser state: what is here of them."""
        parameters = [*self.run.state.named.values(), *self.run.objective.parameters()]
        state = [t for slots in self.run.state.optimizer.state.values() for t in slots.values()]
        found = [*parameters, *(p.grad for p in parameters if p.grad is not None), *state]
        return [t.to_local() if is_sharded(t) else t for t in found]

    def look(self) -> None:
        kept = [t.untyped_storage() for t in self.held()]
        storages = {s.data_ptr(): s.nbytes() for s in kept if s.nbytes()}
        self.peak = max(self.peak, sum(storages.values()))

    def after(self, module: nn.Module, _: Any, output: Any) -> None:
        """A hook on all modules, which torch calls before those of the module itself."""
        if not isinstance(module, nn.Linear):
            return
        whole = sum(not is_sharded(block.qkv.weight) for block in self.blocks)
        self.whole_blocks = max(self.whole_blocks, whole)
        self.look()
        if output.requires_grad:
            output.register_hook(lambda _: self.look())

    def write(self, path: Path) -> None:
        parameters = self.run.objective.named_parameters()
        between = sorted(name for name, p in parameters if not is_sharded(p))
        shares = {"parameters": 0, "state": 0}
        for name, p in self.run.state.named.items():
            slots = self.run.state.optimizer.state[p].items()
            own = [("parameters", p), *(("state", t) for slot, t in slots if slot != "step")]
            for what, t in own:
                shares[what] += (t.to_local() if is_sharded(t) else t).numel() * 4
            assert p.grad is None, name
        seen = {"peak": self.peak, "whole_blocks": self.whole_blocks, "whole_between": between}
        path.write_text(json.dumps(shares | seen), encoding="utf-8")


def watched(self: Run, batch: Batch) -> None:
    """`Run.update`; after it what its tensors took so far."""
    if not hasattr(self, "room"):
        self.room = Room(self)  # type: ignore[attr-defined]
    room: Room = self.room  # type: ignore[attr-defined]
    with nn.modules.module.register_module_forward_hook(room.after):
        update(self, batch)
    room.write(Path(sys.argv[1]).with_name(f"{self.job.folder.name}.room.{self.world.rank}"))


def arm() -> None:
    """With SPOILED=8=nan%1 in the environment, the loss of the eighth batch is not a number on
    rank 1."""
    what, _, rank = os.environ.get("SPOILED", "").partition("%")
    if what and rank == os.environ.get("RANK"):
        batch, _, factor = what.partition("=")
        spoil(pytest.MonkeyPatch(), {int(batch): float(factor)})


update = Run.update

if __name__ == "__main__":
    torch.set_num_threads(1)
    Run.update = watched  # type: ignore[method-assign]
    # One process group for all: the next one would find the addresses of the last in torchrun's
    # store.
    stop, dist.stop = dist.stop, lambda: None
    try:
        for job in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
            os.environ |= job["variables"]
            arm()
            status = cli.main(job["words"])
            for name in job["variables"]:
                del os.environ[name]
            if status:
                sys.exit(status)
    finally:
        stop()
    # A thread of gloo that frees a tensor now would abort the interpreter at its end (cli.program).
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
