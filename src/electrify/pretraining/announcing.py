"""What a run says as it begins or continues."""

from __future__ import annotations

from ..progress import say
from ..train.claim import Loaded
from ..train.folder import OWN_SOURCE
from ..train.loop import Run


def changed(run: Run, loaded: Loaded | None, lost: list[str]) -> list[str]:
    """The differences from the last time this run was started, for a warning."""
    if not loaded:
        return []
    found = []
    if lost:
        found.append(
            f"{run.context.folder} had lost {', '.join(lost)}, or it was changed: it is written "
            "again, and what was there is kept"
        )
    now = run.context.fingerprint
    then = loaded.state["fingerprint"]
    if OWN_SOURCE in then and then[OWN_SOURCE] != now.get(OWN_SOURCE):
        found.append(
            f"the source of a row of your own has changed: the updates after step {run.step:,} are "
            "made by the new one"
        )
    odd = [
        f"{k} {v} then, {now.get(k)} now"
        for k, v in then.items()
        if k != OWN_SOURCE and v != now.get(k)
    ]
    if odd:
        found.append(
            f"continuing under other conditions ({'; '.join(odd)}): the data is the same, the last "
            "bits may differ"
        )
    return found


def announce(run: Run, parameters: int) -> None:
    loader = run.data.loader
    config = run.config
    epochs = loader.epoch(config.max_steps)
    phases = loader.phases.all
    rows = ", ".join(
        f"{s.num_rows:,} rows of {length} ({100 * s.fill_rate:.1f} % filled)"
        for length, s in loader.streams.items()
    )
    batch = f"batch {phases[0].batch_rows} rows"
    if len(phases) > 1:
        parts = (
            f"{p.batch_rows} x {p.row_length}" + f" from step {p.first:,}" * (p.first > 0)
            for p in phases
        )
        batch = "batches of " + ", then ".join(parts)
    say(
        f"{parameters / 1e6:.1f} M parameters, {rows}, {batch}, {config.max_steps:,} steps = "
        f"{epochs:.1f} epochs" + (f", continuing after step {run.step:,}" if run.step else "")
    )
    why = run.data.unvalidated(config.eval_rows, processes=run.world.size)
    if config.eval_steps and why:
        say(f"warning: {why}")
