"""The records in an output folder of `finetune`: finetune.json (the settings that all runs share)
and scores.jsonl (one run per line), each sealed."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from ..errors import UserError
from ..oldfiles.folders import KEY
from ..oldfiles.reading import FileError, json_of, read_object, read_text
from ..oldfiles.schema import Count, Rule, SchemaError, check
from ..oldfiles.seals import SEAL, sealed, unsealed
from ..oldfiles.whole import json_text

SETTINGS = "finetune.json"
SCORES = "scores.jsonl"
KIND = "finetune"
ELSEWHERE = "choose another --output-dir"
AGAIN = f"remove that file, and its runs are made again, or {ELSEWHERE}"
Scores = Annotated[
    dict[str, float | None],
    Rule("an object with scores", lambda x: isinstance(x, dict) and len(x) > 0),
]


@dataclass(frozen=True)
class Record:
    """One run, as a line of scores.jsonl."""

    model: str
    task: str
    seed: Annotated[
        int, Rule("an integer", lambda x: isinstance(x, int) and not isinstance(x, bool))
    ]
    weights: str
    data: str
    scores: Scores
    train_examples: Count
    validation_examples: Count
    updates: Count
    seconds: float
    curve: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_records(out: Path) -> list[dict[str, Any]]:
    """The runs in OUT/scores.jsonl; none if there is no such file. Raises UserError if a line is
    not what a run wrote."""
    path = out / SCORES
    if not path.exists() and not path.is_symlink():
        return []
    text = read_text(path, within=out)
    if not text.endswith("\n"):
        raise UserError(f"{path}: not a file of scores: its last line is cut; {AGAIN}")
    return [
        _record(line, f"{path}, line {number}")
        for number, line in enumerate(text.removesuffix("\n").split("\n"), 1)
    ]


def _record(line: str, where: str) -> dict[str, Any]:
    try:
        raw = json_of(line, Path(where))
        if isinstance(raw, dict):
            raw = unsealed(raw, Path(where), must=True, advice="")
        check(Record, raw, where, more=True)
    except (FileError, SchemaError) as e:
        raise UserError(f"{e}; {AGAIN}") from e
    return raw | {
        "scores": {
            name: math.nan if score is None else score for name, score in raw["scores"].items()
        }
    }


def line_of(record: dict[str, Any]) -> str:
    """The line of scores.jsonl of a run. A score that is not a number is null there."""
    plain = json.loads(json_text({k: v for k, v in record.items() if k != SEAL}))
    return json_text(sealed(plain)) + "\n"


def read_settings(out: Path) -> dict[str, Any] | None:
    """The settings in OUT/finetune.json, by name; None if there is no such file. Raises
    UserError."""
    path = out / SETTINGS
    if not path.exists() and not path.is_symlink():
        return None
    try:
        raw = read_object(path, within=out)
        if raw.get(KEY) != KIND:
            raise FileError(path, "was not written by electrify finetune")
        raw = unsealed(raw, path, must=True, advice="")
    except FileError as e:
        raise UserError(f"{e}; {ELSEWHERE}") from e
    return {name: value for name, value in raw.items() if name != KEY}


def settings_text(settings: dict[str, Any]) -> str:
    """The content of finetune.json."""
    return json_text(sealed({KEY: KIND} | settings), indent=1) + "\n"
