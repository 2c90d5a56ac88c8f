"""The options of `electrify embed`: vectors of texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..cores import thread_count
from ..errors import UserError
from .given import Checked
from .predict import must_be_length, must_end_in

OUTPUTS = (".npy", ".parquet")


@dataclass(frozen=True, kw_only=True)
class EmbedConfig(Checked):
    """Which model makes vectors of which texts, and where they go."""

    HEADINGS: ClassVar = {
        "model": "the texts",
        "output_file": "what is written",
        "pooling": "the vectors",
        "device": "computing",
    }
    model: str
    """Any encoder that AutoModel loads: folder or Hub id."""
    files: tuple[str, ...] = ()
    """The texts: .txt (one a line), .csv, .tsv (no quoting), .jsonl, .fasta (.fa, .faa, .fna,
    .ffn), .smi, also compressed."""
    header: bool = True
    """The first line of a .csv or .tsv names its columns. --no-header: it is a text, and the
    columns are named by their numbers, from 0."""
    text_column: str | None = None
    """The column of the text; without it one that `finetune` knows by name."""
    output_file: str
    """Where the vectors go: .npy (float32, a row for each text, in the order of the files) or
    .parquet (with the columns of the input as text, and `embedding`)."""
    overwrite: bool = False
    """Replace an output file that is there already."""
    json: bool = False
    """Write the summary as JSON."""
    pooling: Literal["mean", "cls"] = "mean"
    """mean: the mean of all states of a text, special tokens included; cls: the state of the class
    token, which an encoder that was not fine-tuned on texts has not learned to use."""
    center: str | None = None
    """A file of texts, read as the others are; the mean of their vectors is subtracted. The vectors
    of a discriminator lie close together (cosines of .78 to .97 for unrelated texts): without
    centring, cosines say little."""
    whiten: str | None = None
    """A file of texts, more than the model is wide; vectors are centred on them, and scaled so that
    all directions have the same variance over them (2103.15316)."""
    max_seq_length: int | None = None
    """Tokens per text, longer ones are cut, which is reported; none takes the model's maximum, at
    most 512."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda, cuda:1."""
    bf16: Literal["auto", "true", "false"] = "auto"
    """Compute in bfloat16; auto does so if the processor has instructions for it."""
    threads: str = "auto"
    """Threads that compute on a CPU: a number, or auto: OMP_NUM_THREADS if it is set, or the number
    that was fastest in a measurement of one second."""

    def __post_init__(self) -> None:
        super().__post_init__()
        thread_count(self.threads)
        must_be_length(self.max_seq_length)
        must_end_in(self.output_file, OUTPUTS)
        if self.center is not None and self.whiten is not None:
            raise UserError("--center and --whiten exclude each other: whitening centres, too")
