"""How a card writes numbers, times, and the places from which a run started."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def wall_time(seconds: Any) -> str | None:
    if not isinstance(seconds, int | float):
        return None
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 3600:.2f} h"


def start_name(start: str) -> str:
    """Where a run started from: a Hub id, or the last name of a folder."""
    own = HUB_ID.fullmatch(start) and not start.startswith(".") and not Path(start).exists()
    return start if own else Path(start).name


def number(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return f"{int(value):,}" if isinstance(value, int) or value.is_integer() else f"{value:.4g}"
