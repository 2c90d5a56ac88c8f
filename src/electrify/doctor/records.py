"""Reads numbers from the records in metrics.jsonl, in which non-finite ones are written as text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MIN_AUC = 0.55  # one half is chance


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


def at_chance(valid: Mapping[str, Any]) -> tuple[str, float] | None:
    """The AUC of a discriminator that detects nothing, with the name of the metric."""
    found = (
        (name, auc)
        for name in sorted(valid)
        if name.endswith("_detection_auc") and (auc := number(valid, name)) is not None
    )
    return next(((name, auc) for name, auc in found if auc < MIN_AUC), None)
