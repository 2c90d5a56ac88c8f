"""The options of `electrify detect`, `score`, `rerank` and `evaluate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..errors import need
from ..exporting.places import model_in
from ..finetuning.options import ToRows
from ..process import thread_count
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
    """Show tokens, or words with the probability of their most suspicious token."""
    json: bool = False
    """Write JSON, with tokens and words."""
    max_seq_length: Count | None = None
    """Tokens per window [default: the model's maximum]."""
    batch_size: Count | None = None
    """Windows per forward pass [default: up to 16, fewer above 512 tokens]."""
    architecture: str | None = None
    """Your own architecture that the model was trained with (module:Class)."""
    threads: str = "auto"
    """CPU threads: a number, or auto (OMP_NUM_THREADS if set, else measured if there is much
    text)."""

    def check(self) -> None:
        thread_count(self.threads)
        self.set("model", model_in(self.model))
        need(self.text is None or self.file is None, "TEXT and --file exclude each other")


COLUMNS = ("text_column", "pair_column", "label_column", "header")


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig(Options):
    """Which models are tested on what."""

    models: Positional[tuple[str, ...]]
    """Runs, folders or Hub ids with their pre-training head (RUN, RUN/generator, any masked
    language model). Fine-tuned models if --test-file is given."""
    task: Literal["blimp"] = "blimp"
    """blimp: does the grammatical sentence of a minimal pair score higher?"""
    data_dir: str | None = None
    """Folder of BLiMP's jsonl files, or a folder with a subfolder blimp/. Files in supplement/ are
    reported separately. The evaluation data of the BabyLM challenge is read, too. It, or
    --test-file, is needed."""
    test_file: str | None = None
    """Labelled examples for fine-tuned models, in the files and columns of `finetune
    --train-file`."""
    text_column: str | None = None
    """With --test-file: column of the text [default: by its name, as in `finetune`]."""
    pair_column: str | None = None
    """With --test-file: column of the second text [default: by its name]."""
    label_column: str | None = None
    """With --test-file: column of the label [default: by its name]."""
    header: bool = True
    """With --test-file: the first line of a csv or tsv names the columns. Otherwise they are
    numbers from 0."""
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
    """CPU threads: a number, or auto (OMP_NUM_THREADS if set, else measured, for a second)."""

    def check(self) -> None:
        need(bool(self.models), "models are missing: name a folder or a Hub id")
        one = (self.data_dir is None) != (self.test_file is None)
        need(one, "evaluate needs data_dir (BLiMP) or test_file (labelled examples), not both")
        named = ", ".join(self.columns)
        need(self.test_file is not None or not named, f"{named} needs test_file")
        others = ("output_dir", "max_eval_samples", "batch_tokens", "architecture")
        for name in others if self.test_file is not None else ():
            need(getattr(self, name) == getattr(EvaluateConfig, name), f"test_file excludes {name}")
        self.set("models", tuple(map(model_in, self.models)))
        thread_count(self.threads)

    @property
    def columns(self) -> dict[str, Any]:
        """The options of columns that are given."""
        given = {name: getattr(self, name) for name in COLUMNS}
        return {name: value for name, value in given.items() if value not in (None, True)}


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


@dataclass(frozen=True, kw_only=True)
class RerankConfig(Options):
    """Which n-best lists are reranked by which model."""

    model: Positional[str]
    """A run, a folder or a Hub id with its pre-training head."""
    file: Positional[str]
    """JSON lines, one list each, with the keys `hypotheses` (texts, the best first, with a list
    `scores` beside them, or objects with `text` and `score`) and, if known, `reference`."""
    tune_file: str | None = None
    """Lists with references on which weight and length bonus are tuned (fewest word errors). It, or
    --weight, is needed."""
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
    """CPU threads: a number, or auto (OMP_NUM_THREADS if set, else measured, for a second)."""

    def check(self) -> None:
        thread_count(self.threads)
        tuned, given = self.tune_file is not None, self.weight is not None or self.length_bonus != 0
        need(tuned or self.weight is not None, "weight is missing: give it, or tune_file")
        need(not (tuned and given), "tune_file tunes weight and length_bonus: leave them out")
        self.set("model", model_in(self.model))
