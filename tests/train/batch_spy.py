"""`electrify`, writing down which rows each process trains on: python batch_spy.py FILE WORDS...
Used by test_distributed.py."""

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from electrify import cli
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
            found.append(
                digest(
                    row.ids_T,
                    row.seq_T,
                    row.pos_T,
                    row.segment_T,
                    plan.at_M[mine_M] % tokens.row_length,
                    *decided,
                )
            )
    return found


def spying(update: Callable[[Run, Batch], None], file: Path) -> Callable[[Run, Batch], None]:
    """`Run.update` that first appends the step and its rows to FILE.<rank>."""

    def spied(self: Run, batch: Batch) -> None:
        with file.with_suffix(f".{self.world.rank}").open("a", encoding="utf-8") as f:
            f.write(json.dumps({"step": self.step, "rows": rows_of(batch)}) + "\n")
        update(self, batch)

    return spied


if __name__ == "__main__":
    Run.update = spying(Run.update, Path(sys.argv[1]))
    sys.exit(cli.main(sys.argv[2:]))
