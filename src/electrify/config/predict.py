"""The options of `electrify predict`: what a fine-tuned model says about new texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..cores import thread_count
from ..errors import UserError
from .given import Checked

OUTPUTS = (".csv", ".tsv", ".jsonl")


@dataclass(frozen=True, kw_only=True)
class PredictConfig(Checked):
    """Which model predicts what about which texts, and where its predictions go."""

    HEADINGS: ClassVar = {
        "model": "the texts",
        "output_file": "what is written",
        "max_seq_length": "how the model reads and decides",
        "device": "computing",
    }
    model: str
    """A fine-tuned model, folder or Hub id: for classes or values of texts, tags of words, or
    answers to questions."""
    files: tuple[str, ...] = ()
    """The new texts: .txt (one a line), .csv, .tsv (no quoting), .jsonl, .fasta (.fa, .faa, .fna,
    .ffn), .smi; for a tagger also columns (.conll, .conllu, .txt), for questions SQuAD's .json. All
    may be compressed (.gz, .bz2, .xz, .zst)."""
    header: bool = True
    """The first line of a .csv or .tsv names its columns. --no-header: it is a text, and the
    columns are named by their numbers, from 0."""
    text_column: str | None = None
    """The column of the text; without it one that `finetune` knows by name. In a file of columns
    without a header: the number of the words' column, from 0."""
    pair_column: str | None = None
    """The column of a second text; without it sentence2, if there is one, but not where the model
    was trained on single texts."""
    output_file: str | None = None
    """Where the predictions go, as .csv, .tsv or .jsonl by the ending; without it, to standard
    output, separated by tabs. The columns of the input stay."""
    overwrite: bool = False
    """Replace an output file that is there already."""
    json: bool = False
    """Write JSON: a line for each text, or with --output-file a summary."""
    probabilities: bool = False
    """Also write the probability of every label."""
    max_seq_length: int | None = None
    """Tokens per sequence; none takes that of the model's fine-tuning where it is known, else that
    of `finetune`. Longer texts are cut, which is reported; longer sentences and contexts are read
    through windows."""
    threshold: float | None = None
    """Several labels: those with a higher probability hold; none takes .5."""
    no_answer_threshold: float | None = None
    """Questions: no answer is given where the score for that is higher; none takes the value that
    was best in the model's fine-tuning; a model trained without such questions always answers."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda, cuda:1."""
    bf16: Literal["auto", "true", "false"] = "auto"
    """Compute in bfloat16; auto does so if the processor has instructions for it, as in
    fine-tuning."""
    threads: str = "auto"
    """Threads that compute on a CPU: a number, or auto: OMP_NUM_THREADS if it is set, or the number
    that was fastest in a measurement of one second."""

    def __post_init__(self) -> None:
        super().__post_init__()
        thread_count(self.threads)
        must_be_length(self.max_seq_length)
        if self.threshold is not None and not 0 < self.threshold < 1:
            raise UserError(f"threshold must lie between 0 and 1, not {self.threshold}")
        must_end_in(self.output_file, OUTPUTS)
        if self.overwrite and self.output_file is None:
            raise UserError("overwrite is for an output_file, and none is given")


def must_be_length(max_seq_length: int | None) -> None:
    if max_seq_length is not None and max_seq_length < 16:
        raise UserError(f"max_seq_length must be at least 16, not {max_seq_length}")


def must_end_in(output_file: str | None, endings: tuple[str, ...]) -> None:
    if output_file is not None and not output_file.lower().endswith(endings):
        known = ", ".join(endings[:-1]) + f" or {endings[-1]}"
        raise UserError(f"output_file must end in {known}, not {output_file!r}")
