"""The options of `electrify export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from ..progress import show
from ..tables import KEPT
from ..values import Natural, Options


@dataclass(frozen=True, kw_only=True)
class ExportConfig(Options):
    """Which network of a run is exported, and where to."""

    run: Positional[str]
    """Folder made by `electrify pretrain`."""
    output_dir: str
    """Folder to write: new, empty, or an earlier export, which is replaced."""
    part: str = KEPT
    """Network: discriminator (of a bert run too), generator, corrector or selector."""
    format: Literal["hf"] = "hf"
    """hf: config.json, model.safetensors (float32), tokenizer files, README.md."""
    step: Natural | None = None
    """Checkpoint to export [default: the newest complete one]."""

    def __call__(self) -> int:
        from .places import must_be_run

        must_be_run(Path(self.run))

        from .hf import export

        folder = Path(self.output_dir)
        show(export(Path(self.run), output_dir=folder, part=self.part, step=self.step))
        return 0
