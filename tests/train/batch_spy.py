"""`electrify`, writing down which rows each process trains on, and before what some sums over the
processes are (sums.<rank>): python batch_spy.py FILE WORDS... Used by test_distributed.py."""

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from electrify import cli
from electrify.train import dist
from electrify.train.loop import Batch, Run


def digest(*tensors: Tensor) -> str:
    return hashlib.sha256(b"".join(t.contiguous().numpy().tobytes() for t in tensors)).hexdigest()


def rows_of(batch: Batch) -> list[str]:
    """A hash a row: its tokens, which are chosen, and what is shown and drawn with there."""
    found = []
    for tokens, plan in batch:
        for r in range(tokens.num_rows):
            row, mine_M = tokens.rows(r, r + 1), plan.at_M // tokens.row_length == r
            if plan.valid_M is not None:
                mine_M &= plan.valid_M
            decided = [t[mine_M] for t in (plan.shown_M, plan.uniform_M) if t is not None]
            assert decided, "nothing is drawn"
            fields = (row.ids_T, row.seq_T, row.pos_T, row.segment_T)
            found.append(digest(*fields, plan.at_M[mine_M] % tokens.row_length, *decided))
    return found


def spying(update: Callable[[Run, Batch], None], file: Path) -> Callable[[Run, Batch], None]:
    """`Run.update` that first appends the step and its rows to FILE.<rank>."""

    def spied(self: Run, batch: Batch) -> None:
        with file.with_suffix(f".{self.world.rank}").open("a", encoding="utf-8") as f:
            f.write(json.dumps({"step": self.step, "rows": rows_of(batch)}) + "\n")
        update(self, batch)

    return spied


def sums(world: dist.World) -> list[object]:
    """Of tensors of every kind over the processes."""
    r = world.rank
    views = [torch.tensor([r + 1.0, 0.5]), torch.tensor(2**24 + 1 + r)]
    views += [torch.tensor([[0.1]], dtype=torch.float64)]
    views += [torch.full((2,), 1.0 + r, dtype=torch.bfloat16, requires_grad=True)]
    dist.sum_across(views)
    return [t.tolist() for t in views]


if __name__ == "__main__":
    file = Path(sys.argv[1])
    Run.update = spying(Run.update, file)
    world = dist.start(torch.device("cpu"), timeout_s=60.0)
    file.with_name(f"sums.{world.rank}").write_text(json.dumps(sums(world)))
    # The run is in the same group, and its torchrun wants to see it left.
    stop, dist.stop = dist.stop, lambda: None
    status = cli.main(sys.argv[2:])
    stop()
    sys.exit(0 if status == 0 and not torch.distributed.is_initialized() else 1)
