"""One encoder of a study, as a process of its own: pre-trains it, measures it, and writes its
outcome.

    python -m electrify.studies.one_run FOLDER      FOLDER/work.json -> FOLDER/outcome.json

The outcome is there once the encoder is trained, and grows with each task. A process of its own
keeps an encoder that fails from taking others down with it.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import Unfinished, UserError
from ..files import json_text, read_json, write
from ..process import Stop, Stopped, wait_briefly
from ..progress import show_progress
from ..recipe import parse
from ..train import FACTS, GENERATOR_STAGE, METRICS
from .measures import measure_named, measured, network_of
from .options import CompareConfig

WORK = "work.json"
OUTCOME = "outcome.json"
RUN = "run"


def main(folder: Path) -> None:
    """Does the work in a folder. The last line of the log says why it ended early."""
    wait_briefly()
    show_progress()
    work = read_json(folder / WORK)
    core = work.pop("core")
    if core is not None:
        os.sched_setaffinity(0, {core})
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        with Stop(at_once=True):
            pretrain_and_measure(folder, **work)
    except UserError as e:
        sys.exit(str(e))
    except (Unfinished, Stopped) as e:
        sys.exit(f"stopped: {e}")


def end_with_parent() -> None:
    """Ends this process when the study does, even by SIGKILL: the pipe of its standard input is
    then closed."""
    os.read(0, 1)  # sys.stdin would be locked when this process ends
    os._exit(1)


def pretrain_and_measure(
    folder: Path,
    *,
    config: dict[str, Any],
    recipe: str,
    prefix: str | None = None,
    milestones: Sequence[int] = (),
) -> None:
    """Writes the outcome. A task that fails leaves its reason there, and the others go on.

    Args:
        folder: of this encoder.
        config: the options of the study.
        recipe: YAML.
        prefix: the checkpoint of a longer run from which this one starts.
        milestones: updates whose checkpoints shorter runs start from.

    Raises:
        Unfinished: if the training was stopped.
    """
    from ..train.run import pretrain

    asked, run, own = CompareConfig(**config), folder / RUN, parse(recipe, "recipe")
    result = pretrain(
        asked.data,
        output_dir=run,
        recipe=own,
        milestones=frozenset(milestones),
        prefix=Path(prefix) if prefix else None,
    )
    # A signal in the last update or save is too late for the training, not for what follows.
    if not result.finished or result.signalled:
        raise Unfinished("training was stopped and saved")
    last, first = last_values(run), last_values(run / GENERATOR_STAGE)
    outcome: dict[str, Any] = {
        "steps": result.step,
        "flops": last.get("flops", 0.0),  # including those of the first stage
        "tokens": result.tokens + first.get("tokens", 0.0),
        "seconds": result.seconds + first.get("seconds", 0.0),
        "parameters": read_json(run / FACTS)["parameters"],
        "validation": result.validation,
        "scores": {},
        "failed": {},
    }
    began = time.monotonic()
    write(folder / OUTCOME, json_text(outcome, indent=1))
    for measure in [measure_named(name, asked.data_dir) for name in asked.tasks]:
        try:
            model = result.exported[network_of(measure, own)]
            found = measured(measure, model, asked, folder / measure.name.replace(":", "-"))
            if not all(map(math.isfinite, found["scores"])):
                raise UserError(f"{found['metric']} is not a number")
            outcome["scores"][measure.name] = found
        except Exception as e:  # noqa: BLE001 - the other tasks go on
            traceback.print_exc()
            what = str(e) if isinstance(e, UserError) else f"{type(e).__name__}: {e}"
            outcome["failed"][measure.name] = what
        outcome["task_seconds"] = time.monotonic() - began
        write(folder / OUTCOME, json_text(outcome, indent=1))


def last_values(run: Path) -> dict[str, Any]:
    """The last value of each field in a run's log; empty if there is none."""
    from ..train import log

    values: dict[str, Any] = {}
    for record in log.read(run / METRICS) if (run / METRICS).is_file() else ():
        values |= record
    return values


if __name__ == "__main__":
    main(Path(sys.argv[1]))
