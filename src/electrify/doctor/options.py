"""The options of `electrify doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from ..progress import show
from ..values import Options


@dataclass(frozen=True, kw_only=True)
class DoctorConfig(Options):
    """Which folders are checked."""

    paths: Positional[tuple[str, ...]]
    """Corpora, runs and models. A corpus and a run given together are compared."""
    json: bool = False
    """Write JSON."""

    def __call__(self) -> int:
        from .kind import kind_of

        for path in self.paths:
            kind_of(Path(path))

        from .report import diagnose

        report = diagnose(self)
        show(report.as_json() if self.json else report.text())
        return report.status
