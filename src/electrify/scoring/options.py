"""The options of `electrify detect`, `score`, `rerank` and `evaluate`, and a text that is given."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

from ..errors import UserError, need
from ..exporting.places import check_place, model_in
from ..finetuning.options import ToRows
from ..process import thread_count
from ..progress import say, show
from ..text.streams import decoded, ending_of, read_text
from ..values import Count, NotNegative, Options, Positional, Share


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
    """Folder of BLiMP's jsonl files, or a folder with a subfolder blimp/. Files in supplement/ are
    reported separately. Also the BabyLM challenge's evaluation data."""
    output_dir: str | None = None
    """Folder for blimp.json and blimp.md [default: the table is only printed]."""
    max_eval_samples: Count | None = None
    """Use the first N pairs of each paradigm."""
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


@dataclass(frozen=True, kw_only=True)
class ScoreConfig(ToRows):
    """Which texts are scored by which model, and where the scores go."""

    model: Positional[str]
    """Run, folder or Hub id with its pre-training head. An MLM head gives a pseudo-log-likelihood.
    An RTD head gives the sum of log P(original) over the tokens, which is no likelihood of the
    text. `electric` gives minus its energy."""
    per_token: bool = False
    """Write the tokens and the score of each."""
    batch_tokens: Count = 8192
    """Tokens per forward pass, padding included."""
    architecture: str | None = None
    """Your own architecture that the model was trained with (module:Class)."""

    def __call__(self) -> int:
        from .score import score_files

        done = score_files(self)
        if self.output_file is not None:
            show(done)
        return 0


@dataclass(frozen=True, kw_only=True)
class RerankConfig(Options):
    """Which n-best lists are reranked by which model."""

    model: Positional[str]
    """A run, a folder or a Hub id with its pre-training head."""
    file: Positional[str]
    """JSON lines, one list each: hypotheses (texts, the best first; with scores, or objects with
    text and score) and, if known, reference."""
    tune_file: str | None = None
    """Lists with references on which weight and length bonus are tuned (fewest word errors)."""
    weight: NotNegative | None = None
    """Weight of the model's score in the sum with the first-pass score."""
    length_bonus: float = 0.0
    """Number added to the score for each word."""
    output_file: str | None = None
    """The lists as jsonl, with the chosen text as `reranked` [default: the texts are printed]."""
    overwrite: bool = False
    """Replace an existing output file."""
    json: bool = False
    """Write weight, bonus and word error rates as JSON."""
    batch_tokens: Count = 8192
    """Tokens per forward pass, padding included."""
    architecture: str | None = None
    """Your own architecture that the model was trained with (module:Class)."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    threads: str = "auto"
    """CPU threads: a number, or auto (OMP_NUM_THREADS if set, else measured in one second)."""

    def check(self) -> None:
        thread_count(self.threads)
        ends = (self.output_file or ".jsonl").endswith(".jsonl")
        need(ends, f"output_file must end in .jsonl, not {self.output_file!r}")
        need(
            self.tune_file is not None or self.weight is not None,
            "weight is missing: give it, or tune_file, on which it is tuned",
        )
        given = self.weight is not None or self.length_bonus != 0
        need(
            not (self.tune_file and given),
            "tune_file tunes weight and length_bonus: leave them out",
        )
        self.set("model", model_in(self.model))

    def __call__(self) -> int:
        from .rerank import as_json, rerank

        found = rerank(self)
        if self.output_file is None and not self.json:
            show("\n".join(found.texts))
        if self.json:
            show(as_json(found))
        elif found.rates:
            say(f"weight {found.weight:.4g}, length bonus {found.length_bonus:.4g}")
            for line in found.table().splitlines():
                say(line)
        return 0


def given_text(options: DetectConfig) -> str:
    """TEXT, the text of a file, or standard input. Raises UserError for one that is binary or badly
    encoded."""
    if options.text is not None:
        return options.text
    if options.file is not None:
        table = ending_of(options.file) in (".csv", ".tsv", ".jsonl", ".parquet")
        need(not table, f"{options.file} is a table, and detect reads one text", "give it as .txt")
        return read_text(options.file)
    if sys.stdin is None or sys.stdin.isatty():
        raise UserError("no text: give TEXT or --file, or pipe a text into standard input")
    return "".join(decoded([sys.stdin.buffer.read()], "standard input"))
