"""The options of `electrify evaluate`: tests that need no training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..cores import thread_count
from ..errors import UserError
from .given import Checked


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig(Checked):
    """Which models are tested on what."""

    HEADINGS: ClassVar = {"models": "test, data and results", "batch_tokens": "computing"}
    models: tuple[str, ...]
    """Folders or Hub ids with the head that they were pre-trained with (RUN/discriminator,
    RUN/generator, any masked language model)."""
    task: Literal["blimp"] = "blimp"
    """blimp: of two sentences, the grammatical one should get the higher score."""
    data_dir: str
    """The folder of BLiMP's .jsonl files, one for each paradigm, or the one that has it as blimp/;
    those in its folder supplement are reported separately. Also the BabyLM challenge's evaluation
    data (blimp_filtered/ and supplement_filtered/)."""
    output_dir: str | None = None
    """Folder for blimp.json (every paradigm) and blimp.md; without it the table is only printed."""
    max_eval_samples: int | None = None
    """Use only this many pairs of each paradigm, the first ones."""
    batch_tokens: int = 8192
    """Tokens per forward pass, padding included."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda, cuda:1."""
    threads: str = "auto"
    """Threads that compute on a CPU: a number, or auto: OMP_NUM_THREADS if it is set, or the number
    that was fastest in a measurement of one second."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.models:
            raise UserError("no model is given: name a folder or a Hub id")
        thread_count(self.threads)
        for name in ("max_eval_samples", "batch_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name} must be at least 1, not {value}")
