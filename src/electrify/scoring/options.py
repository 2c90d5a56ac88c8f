"""The options of `electrify detect` and `electrify evaluate`, and the texts that are given."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tyro.conf import Positional

from ..cores import thread_count
from ..errors import UserError, need
from ..exporting.places import check_place, model_in
from ..progress import show
from ..text.streams import decoded, read_text
from ..values import Count, Options, Share


@dataclass(frozen=True, kw_only=True)
class DetectConfig(Options):
    """Which tokens of a text look replaced."""

    model: Positional[str]
    """Discriminator: a run, a folder or a Hub id with an RTD head."""
    text: Positional[str | None] = None
    """Text [default: standard input]."""
    file: str | None = None
    """File of the text (UTF-8)."""
    threshold: Share = 0.5
    """Probability from which tokens or words are marked."""
    unit: Literal["word", "token"] = "word"
    """Show words, with the probability of their most suspicious token, or tokens."""
    json: bool = False
    """Write JSON, with tokens and words."""
    max_seq_length: Count | None = None
    """Tokens per window [default: the model's maximum]."""
    batch_size: Count | None = None
    """Windows per forward pass [default: up to 16, fewer above 512 tokens]."""
    architecture: str | None = None
    """Your own architecture that the model was trained with (module:Class)."""
    threads: str = "auto"
    """CPU threads: a number, or auto (OMP_NUM_THREADS if set, else measured for long texts)."""

    def check(self) -> None:
        thread_count(self.threads)
        self.set("model", model_in(self.model))
        need(self.text is None or self.file is None, "TEXT and --file exclude each other")

    def __call__(self) -> int:
        check_place(self.model)  # before a text is read, or typed, for it
        text = given_text(self)

        from .detect import detect, load_detector, show_detection

        (found,) = detect(
            load_detector(self.model, self.architecture, threads=self.threads),
            [text],
            max_seq_length=self.max_seq_length,
            batch_size=self.batch_size,
            threads=self.threads,
        )
        how = {"threshold": self.threshold, "unit": self.unit, "as_json": self.json}
        show_detection(found, sys.stdout, **how)
        return 0


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig(Options):
    """Which models are tested on what."""

    models: Positional[tuple[str, ...]]
    """Runs, folders or Hub ids with their pre-training head (RUN, RUN/generator, any masked
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
    architecture: str | None = None
    """Your own architecture that the models were trained with (module:Class)."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    threads: str = "auto"
    """CPU threads: a number, or auto (OMP_NUM_THREADS if set, else measured in one second)."""

    def check(self) -> None:
        need(bool(self.models), "models are missing: name a folder or a Hub id")
        self.set("models", tuple(map(model_in, self.models)))
        thread_count(self.threads)

    def __call__(self) -> int:
        for model in self.models:
            check_place(model)

        from .blimp import evaluate, table

        show(table(evaluate(self)))
        return 0


def given_text(options: DetectConfig) -> str:
    """TEXT, the text of a file, or standard input. Raises UserError for one that is binary or badly
    encoded."""
    if options.text is not None:
        return options.text
    if options.file is not None:
        return read_text(options.file)
    if sys.stdin is None or sys.stdin.isatty():
        raise UserError("no text: give TEXT or --file, or pipe a text into standard input")
    return decoded(sys.stdin.buffer.read(), "standard input")


def given_texts(texts: Iterable[str]) -> list[str]:
    """The texts that a caller in Python gives. Raises UserError for a single text, which would be
    read letter by letter."""
    if isinstance(texts, str):
        raise UserError("texts must be a list, not one text")
    return list(texts)
