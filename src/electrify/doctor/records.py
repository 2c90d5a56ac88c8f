"""Reads the records in metrics.jsonl: their numbers, of which non-finite ones are written as text,
and what their warnings are about."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from ..config.pretrain import PretrainConfig
from ..train.monitor import is_about, untaught

MIN_AUC = 0.55  # one half is chance
# Words of warnings -> what they are about, in logs of earlier versions, which only had the words.
EARLIER = {
    "not finite": "non_finite",
    "went back": "went_back",
    "word frequencies": "frequencies",
    "it is still open here": "data",
    "of those before it": "spike",
    "calls every token original": "all_original",
    "calls every token replaced": "all_replaced",
    "the corpus has been seen": "epochs",
}
# Topics of which each file has warnings of its own.
ONE_FOR_EACH = ("data", "folder", "save")


def number(record: Mapping[str, Any], name: str) -> float | None:
    """A finite number of a record."""
    value = record.get(name)
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if good else None  # type: ignore[arg-type]


def as_number(value: Any) -> Any:
    """Numbers that are not finite are written as text."""
    return float(value) if value in ("nan", "inf", "-inf") else value


def not_finite(value: Any) -> bool:
    value = as_number(value)
    return isinstance(value, float) and not math.isfinite(value)


def at_chance(valid: Mapping[str, Any], config: PretrainConfig) -> tuple[str, float] | None:
    """The AUC of a discriminator that detects nothing though it learns to, with the name of the
    metric."""
    idle = untaught(config)
    found = (
        (name, auc)
        for name in sorted(valid)
        if name.endswith("_detection_auc") and not is_about(name, idle)
        if (auc := number(valid, name)) is not None
    )
    return next(((name, auc) for name, auc in found if auc < MIN_AUC), None)


def about(event: Mapping[str, Any]) -> tuple[str, str]:
    """What a warning is about: a topic of log.py, and the language model or the file that it names,
    if it names one. event: a record with a "warning"."""
    topic, text = event.get("topic"), event["warning"]
    if isinstance(topic, str) and topic not in ONE_FOR_EACH:
        return topic, str(event.get("subject", ""))
    if not isinstance(topic, str):
        topic = next((topic for words, topic in EARLIER.items() if words in text), "")
    if topic == "frequencies":
        return topic, text.partition(":")[0]
    return topic, re.split(r"\d", text)[0] if topic in (*ONE_FOR_EACH, "") else ""
