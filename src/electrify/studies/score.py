"""The score that decides a study, declared before the first run: that of score.yaml, a mean over
families of tasks, or the mean rank where the study has other tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Annotated

from annotated_types import MinLen

from ..errors import UserError
from ..text.streams import read_text
from ..values import plain_yaml

MEAN_RANK = "mean rank over the tasks"
DECLARED_FILE = Path(__file__).with_name("score.yaml")


@dataclass(frozen=True)
class Score:
    """Scores are fractions."""

    families: dict[str, Annotated[dict[str, float], MinLen(1)]]
    """Family -> task -> ceiling: the score of a task that counts as 1."""
    floors: dict[str, float] = field(default_factory=dict)
    """Task -> the least floor. Others have the score of random weights."""

    @property
    def tasks(self) -> list[str]:
        return [task for ceilings in self.families.values() for task in ceilings]

    def of(self, scores: Mapping[str, float], random: Mapping[str, float]) -> float:
        """The mean over the families of (score - floor) / (ceiling - floor), at least 0 for each
        task: how far below its floor an encoder is says nothing of what it learnt.

        Args:
            scores: of an encoder, by task.
            random: those of random weights.
        """

        def share(task: str, ceiling: float) -> float:
            floor = max(random[task], self.floors.get(task, random[task]))
            return max(0.0, (scores[task] - floor) / (ceiling - floor))

        families = self.families.values()
        return fmean(fmean(share(*pair) for pair in ceilings.items()) for ceilings in families)


def read_score(path: Path = DECLARED_FILE) -> Score:
    """The score in a YAML file like score.yaml. Raises UserError."""
    from pydantic import TypeAdapter, ValidationError

    try:
        values = plain_yaml(read_text(path), str(path))
        score = TypeAdapter(Score).validate_python(values)
    except ValidationError as e:
        raise UserError(f"{path} is not a score. Write families: {{NAME: {{TASK: 0.9}}}}") from e
    for name in score.floors.keys() - set(score.tasks):
        raise UserError(f"{path}: {name} has a floor and no family")
    return score
