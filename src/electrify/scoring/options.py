"""The options of `electrify detect` and `electrify evaluate`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tyro.conf import Positional

from ..cores import thread_count
from ..errors import UserError
from ..progress import show
from ..values import Count, Options, Share


@dataclass(frozen=True, kw_only=True)
class DetectConfig(Options):
    """Which tokens of a text look replaced."""

    model: Positional[str]
    """Discriminator, folder or Hub id with an RTD head (RUN/discriminator)."""
    text: Positional[str | None] = None
    """Text [default: standard input]."""
    file: str | None = None
    """File of the text (UTF-8)."""
    threshold: Share = 0.5
    """Probability from which tokens or words are marked."""
    unit: Literal["token", "word"] = "token"
    """Show tokens, or words with the probability of their most suspicious token."""
    json: bool = False
    """Write JSON, with tokens and words."""
    max_seq_length: Count | None = None
    """Tokens per window [default: the model's maximum]."""
    batch_size: Count | None = None
    """Windows per forward pass [default: up to 16, fewer above 512 tokens]."""
    threads: str = "auto"
    """CPU threads: a number, or auto (OMP_NUM_THREADS if set, else measured for long texts)."""

    def check(self) -> None:
        thread_count(self.threads)
        if self.text is not None and self.file is not None:
            raise UserError("TEXT and --file exclude each other")

    def __call__(self) -> int:
        from ..exporting.places import check_place
        from .given import given_text

        check_place(self.model)  # before a text is read, or typed, for it
        config = replace(self, text=given_text(self), file=None)

        from .showing import main

        return main(config)


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig(Options):
    """Which models are tested on what."""

    models: Positional[tuple[str, ...]]
    """Folders or Hub ids with their pre-training head (RUN/discriminator, RUN/generator, any masked
    language model)."""
    task: Literal["blimp"] = "blimp"
    """blimp: score the grammatical sentence of a minimal pair higher."""
    data_dir: str
    """Folder of BLiMP's jsonl files, or the one that has it as blimp/. Files in its supplement/ are
    reported separately. Also the BabyLM challenge's evaluation data."""
    output_dir: str | None = None
    """Folder for blimp.json and blimp.md [default: the table is only printed]."""
    max_eval_samples: Count | None = None
    """Use the first pairs of each paradigm, this many."""
    batch_tokens: Count = 8192
    """Tokens per forward pass, padding included."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    threads: str = "auto"
    """CPU threads: a number, or auto (OMP_NUM_THREADS if set, else measured in one second)."""

    def check(self) -> None:
        if not self.models:
            raise UserError("models are missing: name a folder or a Hub id")
        thread_count(self.threads)

    def __call__(self) -> int:
        from ..exporting.places import check_place
        from .blimp import table
        from .evaluate import evaluate

        for model in self.models:
            check_place(model)
        show(table(evaluate(self)))
        return 0
