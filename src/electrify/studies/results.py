"""OUT/results.jsonl: one line for each encoder that was trained and measured."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import json_text, write

RESULTS = "results.jsonl"
PRETRAIN = "pretrain"
"""The name of what failed if an encoder was not trained to its end."""

Key = tuple[str, float, int, str]


@dataclass(frozen=True)
class Result:
    """One encoder, as a line of results.jsonl."""

    entry: str
    budget: float
    seed: int
    recipe: str
    """Hash of everything that decides its scores: `Cell.identity`."""
    steps: int
    flops: float
    tokens: float
    seconds: float
    parameters: int
    scores: dict[str, dict[str, Any]]
    failed: dict[str, str] = field(default_factory=dict)
    """Task, or PRETRAIN -> the reason."""
    validation: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        return self.entry, self.budget, self.seed, self.recipe

    def median(self, task: str) -> float | None:
        """The score of a task: the median over its seeds."""
        found = self.scores.get(task)
        return statistics.median(found["scores"]) if found else None


def merged(had: Result | None, new: Result, tasks: Sequence[str] = ()) -> Result:
    """The line of a cell that was run again: scores are not given up for a failure that came later.
    tasks: those that are asked for."""
    if had is None or not had.scores:
        return new
    if PRETRAIN in new.failed:  # which is why the other tasks have no score yet
        missing = [task for task in tasks if task not in had.scores]
        reason = new.failed[PRETRAIN]
        return dataclasses.replace(had, failed=dict.fromkeys((*had.failed, *missing), reason))
    scores = had.scores | new.scores
    failed = {task: reason for task, reason in new.failed.items() if task not in scores}
    return dataclasses.replace(new, scores=scores, failed=failed)


def _folded(lines: Iterable[Result]) -> list[Result]:
    """One result for each encoder: the files of several folders may have been joined. A line
    without a failure is kept as it is, unless a later one has scores that it lacks."""
    kept: dict[Key, Result] = {}
    for new in lines:
        had = kept.get(new.key)
        whole = had is not None and not had.failed and new.scores.keys() <= had.scores.keys()
        if not (whole and new.failed):
            kept[new.key] = merged(had, new)
    return list(kept.values())


def read_results(out: Path) -> list[Result]:
    """The encoders of results.jsonl. Raises UserError for a line that is damaged."""
    from pydantic import TypeAdapter, ValidationError

    path = out / RESULTS
    if not path.exists():
        return []
    line_of, found = TypeAdapter(Result), []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            found.append(line_of.validate_json(line))
        except ValidationError as e:
            wrong = e.errors(include_url=False)[0]
            raise UserError(
                f"{path}, line {number} is damaged ({wrong['msg']}). Remove it, and its run is "
                "made again"
            ) from None
    return _folded(found)


def write_results(out: Path, results: Iterable[Result]) -> None:
    """Writes results.jsonl, whole or not at all."""
    lines = (json_text(dataclasses.asdict(result)) + "\n" for result in results)
    write(out / RESULTS, "".join(lines))
