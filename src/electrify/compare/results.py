"""OUT/results.jsonl: one line for each encoder that was trained and measured, each sealed."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from ..errors import UserError
from ..oldfiles.reading import FileError, json_of, read_bytes
from ..oldfiles.schema import Count, Rule, SchemaError, check
from ..oldfiles.seals import sealed, unsealed
from ..oldfiles.whole import json_text, write_atomically

RESULTS = "results.jsonl"
AGAIN = "remove the line, and its run is made again"
PRETRAIN = "pretrain"
"""The name of what failed if an encoder was not trained to its end."""

Key = tuple[str, float, int, str]


def is_score(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and -1 <= x <= 1


def are_scores(x: Any) -> bool:
    """Whether it is task -> {"metric", "scores"}, with at least one score each."""
    return isinstance(x, dict) and all(
        isinstance(found, dict)
        and isinstance(found.get("metric"), str)
        and isinstance(found.get("scores"), list)
        and len(found["scores"]) > 0
        and all(map(is_score, found["scores"]))
        for found in x.values()
    )


def are_reasons(x: Any) -> bool:
    return isinstance(x, dict) and all(isinstance(reason, str) for reason in x.values())


def are_figures(x: Any) -> bool:
    return isinstance(x, dict) and all(
        is_amount(abs(value)) for value in x.values() if isinstance(value, int | float)
    )


def is_amount(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and 0 <= x <= MOST_AMOUNT


# No study computes so many FLOPs; larger numbers overflow when they are multiplied.
MOST_AMOUNT = 1e40
Amount = Annotated[float, Rule(f"a number from 0 to {MOST_AMOUNT:.0e}", is_amount)]
Scores = Annotated[
    dict[str, Any], Rule("tasks with a metric and scores between -1 and 1", are_scores)
]
Figures = Annotated[dict[str, Any], Rule("figures of plausible size", are_figures)]
Reasons = Annotated[dict[str, str], Rule("tasks with reasons", are_reasons)]


@dataclass(frozen=True)
class Result:
    """One encoder, as a line of results.jsonl."""

    entry: str
    budget: float
    seed: int
    recipe: str
    """Hash of everything that decides its scores: `Cell.identity`."""
    steps: Count
    flops: Amount
    tokens: Amount
    seconds: Amount
    parameters: Count
    scores: Scores
    """Task -> {"metric", "scores", one for each seed of the task}."""
    failed: Reasons = field(default_factory=dict)
    """Task, or PRETRAIN -> the reason."""
    validation: Figures = field(default_factory=dict)

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
    """The encoders of results.jsonl. Raises UserError for a line that we did not write."""
    path = out / RESULTS
    if not path.exists() and not path.is_symlink():
        return []
    names = {f.name for f in dataclasses.fields(Result)}
    found = []
    try:
        for number, line in enumerate(read_bytes(path, within=out).split(b"\n"), 1):
            if not line.strip():
                continue
            where = Path(f"{path}, line {number}")
            raw = json_of(line, where)
            if not isinstance(raw, dict):
                raise FileError(where, "is not a result", AGAIN)
            raw = unsealed(raw, where, must=True, advice=AGAIN)
            check(Result, raw, str(where))
            found.append(Result(**{k: v for k, v in raw.items() if k in names}))
    except (FileError, SchemaError) as e:
        raise UserError(f"{e}", "" if e.advice else AGAIN) from e
    return _folded(found)


def write_results(out: Path, results: Iterable[Result]) -> None:
    """Writes results.jsonl, whole or not at all."""
    lines = []
    for result in results:
        plain = json.loads(json_text(dataclasses.asdict(result)))
        lines.append(json_text(sealed(plain)) + "\n")
    write_atomically(out / RESULTS, "".join(lines))
