"""The process of one cell: trains an encoder, measures it, and writes what it found.

    python -m electrify.studies.cell < Work as JSON   ->   FOLDER/outcome.json

The outcome is there as soon as the encoder is trained, and grows with each task: the study reads
from it how far the cell has come. A cell has a process of its own, so that a cell that fails does
not take others down with it.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from ..cores import wait_briefly
from ..errors import OutputError, SpaceError, Unfinished, UserError, is_of_memory
from ..files import json_text, read_json
from ..files import write as write_file
from ..progress import say
from ..train import FACTS, GENERATOR_STAGE, METRICS
from ..train.signals import SAVED_EXIT, Stop, Stopped
from . import measures

if TYPE_CHECKING:
    from ..recipe import Recipe

OUTCOME = "outcome.json"
RUN = "run"
LOG = "log.txt"
TAIL = 1 << 14
"""Bytes at the end of a log that are looked at."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is to be done."""

    data: str
    folder: str
    """The folder of the cell."""
    recipe: str
    """YAML."""
    starts: dict[str, str] = field(default_factory=dict)
    """The hash of each folder from which the recipe starts, when the study was planned."""
    corpus: str | None = None
    """The fingerprint of the corpus when the study was planned; None if that does not matter."""
    tasks: tuple[str, ...] = ()
    measuring: measures.Measuring | None = None
    """How the tasks are measured; None if the training alone is asked for."""
    trunk: str | None = None
    """The checkpoint of a longer run from which this one starts."""
    milestones: tuple[int, ...] = ()
    """Updates whose checkpoints shorter runs start from."""
    core: int | None = None
    """The core that it keeps to; None leaves that to the system."""
    parent: int
    """The process that waits for it."""


@dataclass(frozen=True)
class Outcome:
    """The results of one cell."""

    steps: int
    flops: float
    tokens: float
    seconds: float
    parameters: int
    validation: dict[str, Any]
    scores: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def main() -> int:
    """Reads the work and does it. The exit status is that of the verbs."""
    wait_briefly()
    work = TypeAdapter(Work).validate_json(sys.stdin.read())
    if work.core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {work.core})
    from ..text.workers import die_with

    die_with(work.parent)
    try:
        with Stop(at_once=True):
            do(work)
    except UserError as e:
        say(as_of_a_cell(e, work))
        return 2
    except (Unfinished, Stopped) as e:
        say(f"stopped: {e}")
        return SAVED_EXIT
    return 0


def as_of_a_cell(error: UserError, work: Work) -> str:
    """The sentence, with advice that can be followed: a cell has no options. What is not to be
    measured has no folder that stays."""
    if isinstance(error, SpaceError):
        return f"{error.fact}; free some space and run the same command again"
    if not isinstance(error, OutputError) or work.measuring is None:
        return str(error)
    return f"{error.fact}; move {work.folder} elsewhere, and the encoder is trained again"


def do(work: Work) -> None:
    """Trains and measures. A task that fails is written down with its reason, and the others go
    on. Raises Unfinished if the training was stopped."""
    from ..recipe import parse
    from ..train.run import pretrain

    folder = Path(work.folder)
    run = folder / RUN
    config = parse(work.recipe, "recipe")
    must_be_as_planned(work, config)
    result = pretrain(
        Path(work.data),
        output_dir=run,
        config=config,
        milestones=frozenset(work.milestones),
        trunk=Path(work.trunk) if work.trunk else None,
    )
    # A signal in the last update or save is too late for the training, not for what follows.
    if not result.summary.finished or result.summary.signalled:
        raise Unfinished("training was stopped and saved")
    first = run / GENERATOR_STAGE
    outcome = Outcome(
        result.summary.step,
        _last(run, "flops") or 0.0,  # including those of the first stage
        result.summary.tokens + (_last(first, "tokens") or 0.0),
        result.summary.seconds + (_last(first, "seconds") or 0.0),
        read_json(run / FACTS)["parameters"],
        result.summary.validation,
    )
    write(outcome, folder)
    for task, found in measured(work, config, result.exported):
        if isinstance(found, str):
            outcome.failed[task] = found
        else:
            outcome.scores[task] = asdict(found)
        write(outcome, folder)


def write(outcome: Outcome, folder: Path) -> None:
    """Replaces the outcome of a cell."""
    write_file(folder / OUTCOME, json_text(asdict(outcome), indent=1) + "\n")


def must_be_as_planned(work: Work, config: Recipe) -> None:
    """Raises UserError if its results would be taken for those of other weights or of another
    corpus."""
    from ..text.corpus import read_manifest
    from ..train.start import content_of, with_shapes

    again = "run the same command again"
    if not all(os.path.isdir(os.path.expanduser(start)) for start in work.starts):
        with_shapes(config, {}, vocab_size=None)  # asks the Hub which commit is the newest now
    for start, planned in work.starts.items():
        if content_of(start) != planned:
            raise UserError(f"{start}, where it starts, was changed since the study began", again)
    if work.corpus is not None and read_manifest(Path(work.data)).fingerprint != work.corpus:
        raise UserError(
            f"the corpus {work.data} was changed since the study began", f"put it back and {again}"
        )


def _last(run: Path, name: str) -> float | None:
    """The number of this name in the last record of a run's log that has one; None if there is
    none."""
    from ..train import log

    records = log.read(run / METRICS) if (run / METRICS).is_file() else []
    found = [r[name] for r in records if name in r]
    return float(found[-1]) if found else None


def output_name(task: str) -> str:
    """The name of the folder that a task writes into."""
    return task.replace(":", "-")


def measured(
    work: Work, config: Recipe, networks: Mapping[str, Path]
) -> Iterator[tuple[str, measures.Found | str]]:
    """Each task with what was found, or the reason why it failed. networks: those that the run
    left, by the names of their folders."""
    for name in work.tasks:
        assert work.measuring is not None
        try:
            model = networks[measures.network_of(name, config)]
            out = Path(work.folder) / output_name(name)
            found = measures.measure(name, model, work.measuring, out)
            if not all(map(math.isfinite, found.scores)):
                raise UserError(f"{found.metric} is not a number")
        except Exception as e:
            reason = reason_of(e)
            if reason is None:
                raise
            say(f"{name} failed: {reason}")
            yield name, reason
        else:
            say(f"{name} measured: {found.metric} {100 * found.median:.1f}")
            yield name, found


def reason_of(error: Exception) -> str | None:
    """Why a task failed that leaves the others as they are; None if that is a fault of ours."""
    if is_of_memory(error):
        said = " ".join(str(error).split())[:200]
        return (
            "memory ran out"
            + f" ({said})" * bool(said)
            + "; free some and run the same command again"
        )
    return str(error) if isinstance(error, UserError) else None


def tail(path: Path, since: int = 0) -> bytes:
    """The last bytes of a file from byte `since` on; nothing if there is none."""
    if not path.is_file():
        return b""
    with path.open("rb") as stream:
        stream.seek(max(since, path.stat().st_size - TAIL))
        return stream.read(TAIL)


def last_words(log: bytes) -> str:
    """The last line that a process wrote, as the reason of its failure. log: the end of its log."""
    lines = log.decode("utf-8", "replace").splitlines()
    said = [line.strip() for line in lines if line.strip()]
    return said[-1] if said else "no reason given"


if __name__ == "__main__":
    sys.exit(main())
