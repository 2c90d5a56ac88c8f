"""The options of `electrify doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..errors import UserError
from .given import Checked


@dataclass(frozen=True, kw_only=True)
class DoctorConfig(Checked):
    """Which folders are examined."""

    HEADINGS: ClassVar = {"json": "what is shown"}
    paths: tuple[str, ...]
    """folders: prepared corpora, runs, models; corpora and runs given together are also compared
    with each other"""
    json: bool = False
    """write one JSON object"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.paths:
            raise UserError("name at least one folder: a prepared corpus, a run or a model")
