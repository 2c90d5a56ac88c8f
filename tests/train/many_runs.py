"""Several `electrify` command lines, one after the other, in the processes of one torchrun: python
many_runs.py FILE, a JSON list of objects {"words": [...], "variables": {...}}. Beside FILE, in
<run>.room.<rank>, what the tensors of each run took. Used by test_sharding.py."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from spoiled import arm
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
        storages = {
            s.data_ptr(): s.nbytes()
            for s in (t.untyped_storage() for t in self.held())
            if s.nbytes()
        }
        self.peak = max(self.peak, sum(storages.values()))

    def after(self, module: nn.Module, _: Any, output: Any) -> None:
        """A hook on all modules, which torch calls before those of the module itself."""
        if not isinstance(module, nn.Linear):
            return
        self.whole_blocks = max(
            self.whole_blocks, sum(not is_sharded(block.qkv.weight) for block in self.blocks)
        )
        self.look()
        if output.requires_grad:
            output.register_hook(lambda _: self.look())

    def write(self, path: Path) -> None:
        between = sorted(
            name for name, p in self.run.objective.named_parameters() if not is_sharded(p)
        )
        shares = {"parameters": 0, "state": 0}
        for name, p in self.run.state.named.items():
            mine = [
                ("parameters", p),
                *(
                    ("state", t)
                    for slot, t in self.run.state.optimizer.state[p].items()
                    if slot != "step"
                ),
            ]
            for what, t in mine:
                shares[what] += (t.to_local() if is_sharded(t) else t).numel() * 4
            assert p.grad is None, name
        facts = shares | {
            "peak": self.peak,
            "whole_blocks": self.whole_blocks,
            "whole_between": between,
        }
        path.write_text(json.dumps(facts), encoding="utf-8")


def watched(self: Run, batch: Batch) -> None:
    """`Run.update`; after it what its tensors took so far."""
    if not hasattr(self, "room"):
        self.room = Room(self)  # type: ignore[attr-defined]
    room: Room = self.room  # type: ignore[attr-defined]
    with nn.modules.module.register_module_forward_hook(room.after):
        update(self, batch)
    room.write(Path(sys.argv[1]).with_name(f"{self.context.folder.name}.room.{self.world.rank}"))


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
