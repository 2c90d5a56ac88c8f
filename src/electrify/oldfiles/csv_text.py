"""Rows as CSV that every reader splits where it was joined."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Lines that end with a line feed. Python's writer quotes a carriage return only where lines
    end with one, so each row is written that way."""
    found = []
    for row in rows:
        line = io.StringIO()
        csv.writer(line, lineterminator="\r\n").writerow(row)
        found.append(line.getvalue().removesuffix("\r\n") + "\n")
    return "".join(found)
