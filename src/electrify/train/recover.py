"""What is done about refused updates: they are written down with their rows, and a run that rolls back goes to its newest checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UserError
from . import checkpoint
from .finite import not_finite
from .state import Window

if TYPE_CHECKING:
    from .log import MetricsLog
    from .loop import Run


def refused(run: Run, log: MetricsLog) -> bool:
    """Asks the guard; all ranks do so at the same updates. True where the run has gone back: what comes next is another update than it was."""
    bad, before = run.guard.settle(), run.step
    back = bool(bad) and run.guard.policy == "rollback"
    rows = {n: run.loader.rows(n - 1 + run.left_out).tolist() for n in bad}
    if back:
        go_back(run, behind=bad[-1])
        log.rewind(run.step)
    for n in bad:
        run.warn(log, f"the loss or gradient of update {n} is not finite: left out, the {run.guard.refused}. of {run.guard.limit}", rows=rows[n])
    if back:
        run.warn(log, f"went back from update {before} to the checkpoint of {run.step}; the batches between them are left out")
    return back


def go_back(run: Run, *, behind: int) -> None:
    """To the newest checkpoint, and on with the batches behind that of update `behind`. What was refused and the time spent still count."""
    found = checkpoint.newest(run.folder)
    if found is None:
        raise UserError(f"{not_finite(behind)}; there is no checkpoint yet to go back to")
    counted, meter = run.guard.refused, run.meter
    spent = meter.seconds_before, meter.joules_before
    left_out = behind + run.left_out - found.step
    run.window = Window(run.world.device)
    run.resume(*checkpoint.load(found.path))
    run.guard.refused, run.left_out = counted, left_out
    meter.seconds_before, meter.joules_before = spent
    meter.went_back(step=run.step, tokens=run.tokens_seen())
