"""The records in an output folder of `finetune`: finetune.json (the settings that all runs share)
and scores.jsonl (one run per line)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ..errors import UserError
from ..files import json_text, read_json

SETTINGS = "finetune.json"
"""Marks the folder as one of `finetune`."""
SCORES = "scores.jsonl"


@dataclass(frozen=True)
class Record:
    """What the program reads in a line of scores.jsonl; the line says more about the run."""

    model: str
    task: str
    seed: int
    weights: str
    data: str
    scores: dict[str, float | None]
    train_examples: int
    validation_examples: int
    updates: int
    seconds: float


def read_records(out: Path) -> list[dict[str, Any]]:
    """The runs in OUT/scores.jsonl; none if there is no such file. Raises UserError for a line that
    is damaged."""
    path = out / SCORES
    if not path.exists():
        return []
    record, found = TypeAdapter(Record), []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            raw = json.loads(line)
            record.validate_python(raw)
        except ValueError as e:  # also pydantic's, and that of bytes that are not UTF-8
            raise UserError(
                f"{path}, line {number} is damaged. Remove it, and its run is made again"
            ) from e
        scores = {name: math.nan if x is None else x for name, x in raw["scores"].items()}
        found.append(raw | {"scores": scores})
    return found


def line_of(record: dict[str, Any]) -> str:
    """The line of scores.jsonl of a run. A score that is not a number is null there."""
    return json_text(record) + "\n"


def read_settings(out: Path) -> dict[str, Any] | None:
    """The settings in OUT/finetune.json, by name; None if there is no such file. Raises
    UserError."""
    return read_json(out / SETTINGS) if (out / SETTINGS).exists() else None


def settings_text(settings: dict[str, Any]) -> str:
    """The content of finetune.json."""
    return json_text(settings, indent=1) + "\n"
