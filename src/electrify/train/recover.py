"""What a run keeps of itself and takes up again, and how it goes on behind updates that were refused.

Those are written down with their rows; a run that rolls back goes to its newest checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import UserError
from . import checkpoint
from .dist import together
from .guard import BEGIN_ANEW, Verdict
from .home import Place
from .optim import load_optimizer_tensors, optimizer_tensors
from .saved import must_be_moments, must_go_on
from .sharding import gathered, like
from .state import Window

if TYPE_CHECKING:
    from .log import MetricsLog
    from .loop import Run


def save(run: Run, log: MetricsLog, *, leaving: bool) -> None:
    """A checkpoint of the step that the run is at. Called on all ranks; rank 0 writes. Where the disk fails the run goes on until the next one,
    and raises UserError only where it is leaving.

    Before that, folder and data are looked at: raises UserError, and saves nothing, where the data was changed under the run; saves, and raises it,
    where the folder is not the run's any more (home.py).
    """
    state = {
        "step": run.step,
        "tokens": run.tokens,
        "seconds": run.meter.seconds(),
        "joules": run.meter.joules() or 0.0,
        "window": run.window.save(),
        "validation": run.validation,
        "monitor": run.monitor.state(),
        "fingerprint": run.fingerprint,
        "guard": run.guard.state(),
        "left_out": run.left_out,
    }
    named = {n: p.detach() for n, p in run.named.items()}
    groups = {"model": named, "optimizer": optimizer_tensors(run.optimizer, run.named)}
    tensors = {group: gathered(named, keep=run.world.is_main) for group, named in groups.items()}
    with together():
        lost = data_lost(run)
        if run.world.is_main:
            place = settled(run, log, lost)
            try:
                checkpoint.save(place.folder, run.step, tensors=tensors, state=state, keep=run.config.save_total_limit)
            except UserError as e:
                if leaving or place.ends:
                    raise UserError(f"{e}: free some space and run the same command again") from e
                run.warn(log, f"{e}: the run goes on, and tries again at its next save")
            if place.ends:
                raise UserError(place.ends)


def data_lost(run: Run) -> list[str]:
    """What was lost of the corpus and is still open here. Raises UserError where what is open was changed: what has been trained since the last save
    may rest on it and is not saved."""
    corpora = [run.loader.corpus] + ([run.valid.corpus] if run.valid else [])
    return [sentence for corpus in corpora for sentence in corpus.mapped.lost()]


def settled(run: Run, log: MetricsLog, lost: list[str]) -> Place:
    """The folder for the next checkpoint, made whole again, and the warnings about it and about the data. Raises UserError where it
    cannot be written."""
    place = run.home.settle() if run.home else Place(run.folder)
    again = ["metrics.jsonl was lost while the run trained; it is written again"] if not place.ends and log.put_back() else []
    open_here = "it is still open here, so the run goes on; put it back before the run is continued"
    new = [sentence for sentence in lost if sentence not in run.lost]
    run.lost = lost
    for warning in (*place.warnings, *again, *(f"{sentence}: {open_here}" for sentence in new)):
        run.warn(log, warning)
    return place


def resume(run: Run, tensors: dict[str, dict[str, Tensor]], state: dict[str, Any]) -> None:
    """Continues from what a checkpoint holds. Raises UserError where it belongs to another model, naming what differs."""
    model = tensors["model"]
    mine, theirs = {n: tuple(p.shape) for n, p in run.named.items()}, {n: tuple(t.shape) for n, t in model.items()}
    if mine != theirs:
        odd = sorted(n for n in mine.keys() | theirs.keys() if mine.get(n) != theirs.get(n))
        raise UserError(
            f"the checkpoint in {run.folder} holds another model: {odd[0]} is {theirs.get(odd[0])} there and {mine.get(odd[0])} here "
            f"({len(odd)} differ)"
        )
    with torch.no_grad():
        for n, p in run.named.items():
            p.copy_(like(p, model[n]))
    must_be_moments(run.folder, tensors["optimizer"], run.named)
    load_optimizer_tensors(run.optimizer, run.named, tensors["optimizer"])
    run.step, run.tokens = state["step"], state["tokens"]
    run.meter.seconds_before, run.meter.joules_before = state["seconds"], state["joules"]
    run.window.load(state["window"], rank=run.world.rank)
    run.validation = state["validation"]
    run.monitor.restore(state["monitor"])
    run.left_out = state.get("left_out", 0)
    if "guard" in state:  # checkpoints of the first versions have none
        run.guard.restore(state["guard"])


def judged(run: Run, log: MetricsLog) -> bool:
    """Asks the guard; all ranks do so at the same updates. True where the run has gone back: what comes next is another update than it was."""
    verdicts, before = run.guard.settle(), run.step
    refused = [v for v in verdicts if v.refused]
    back = any(run.guard.policies[v.kind] == "rollback" for v in refused)
    rows = {v.step: run.loader.rows(v.step - 1 + run.left_out).tolist() for v in verdicts}
    if back:
        go_back(run, behind=refused[-1])
        log.rewind(run.step)
    for v in verdicts:
        left_out = f"left out ({run.guard.refused[v.kind]} so far, {run.guard.limits[v.kind]} allowed)"
        run.warn(log, f"{v.text}: {left_out if v.refused else 'trained on; --spike skip leaves such updates out'}", rows=rows[v.step])
    if back:
        run.warn(log, f"went back from update {before} to the checkpoint of {run.step}; the batches between them are left out")
    return back


def go_back(run: Run, *, behind: Verdict) -> None:
    """To the newest checkpoint, and on with the batches behind that of `behind`. What was refused and the time spent still count."""
    found = checkpoint.newest(run.folder)
    if found is None:
        flag = behind.kind.replace("_", "-")
        raise UserError(
            f"{behind.text} and there is no checkpoint yet to go back to, so the run stopped; the same command with --{flag} skip leaves such "
            f"updates out, or {BEGIN_ANEW}"
        )
    counted, meter = run.guard.refused.copy(), run.meter
    spent = meter.seconds_before, meter.joules_before
    left_out = behind.step + run.left_out - found.step
    run.window = Window(run.world.device)
    tensors, state = checkpoint.load(found.path)
    must_go_on(found.path, tensors, state)
    resume(run, tensors, state)
    run.guard.refused, run.left_out = counted, left_out
    meter.seconds_before, meter.joules_before = spent
    meter.went_back(step=run.step, tokens=run.tokens_seen())
