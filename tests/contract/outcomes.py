"""Outcomes: what is measured, recorded and compared."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("recorded.json")
# Between processors. Scores of few examples jump where one is decided otherwise.
RELATIVE, ABSOLUTE = 2e-4, 1e-6
OF_FEW = ("accuracy", "precision", "recall", "auc", "score", "f1", "matthews", "blimp")
OF_FEW += ("spearman", "pearson", "ece", "frozen", "protocol", "published/", "own files")
OF_FEW_TOLERANCE = 0.06

Outcome = dict[str, Any]
"""Names -> numbers, texts, lists and such tables. What stands under BITS is compared only with
another checkout on the same machine."""
BITS = "bits"


def differences(was: Any, now: Any, *, exact: bool, at: str = "") -> list[str]:
    """Where two outcomes differ."""
    if isinstance(was, dict) and isinstance(now, dict):
        names = [n for n in {**was, **now} if exact or n != BITS]
        missing = "nothing"
        return [
            line
            for n in names
            for line in differences(
                was.get(n, missing), now.get(n, missing), exact=exact, at=f"{at}/{n}"
            )
        ]
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        pairs = zip(was, now, strict=True)
        return [
            line
            for i, (a, b) in enumerate(pairs)
            for line in differences(a, b, exact=exact, at=f"{at}/{i}")
        ]
    if was == now or (not exact and _near(was, now, at)):
        return []
    return [f"{at}: was {was!r}, is {now!r}"]


def _near(was: Any, now: Any, at: str) -> bool:
    if not all(isinstance(x, int | float) and not isinstance(x, bool) for x in (was, now)):
        return False
    if isinstance(was, int) and isinstance(now, int):
        return False
    loose = any(word in at for word in OF_FEW)
    return math.isclose(was, now, rel_tol=RELATIVE, abs_tol=OF_FEW_TOLERANCE if loose else ABSOLUTE)


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {n: rounded(v) for n, v in value.items() if n != BITS}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def record(part: str, outcome: Outcome) -> None:
    """A line for each name of each part."""
    everything = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    everything[part] = rounded(outcome)
    parts = []
    for name, values in sorted(everything.items()):
        lines = [f"  {json.dumps(n)}: {json.dumps(v)}" for n, v in values.items()]
        parts.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
    RECORDED.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
