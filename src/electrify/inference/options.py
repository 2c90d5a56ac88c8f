"""The options of `electrify predict` and `electrify embed`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge
from tyro.conf import Positional

from ..cores import thread_count
from ..errors import UserError
from ..progress import show
from ..values import Inside, Options


def must_end_in(output_file: str | None, endings: tuple[str, ...]) -> None:
    if output_file is not None and not output_file.lower().endswith(endings):
        raise UserError(f"output_file must end in {' or '.join(endings)}, not {output_file!r}")


@dataclass(frozen=True, kw_only=True)
class PredictConfig(Options):
    """Which model predicts what, and where the predictions go."""

    model: Positional[str]
    """Fine-tuned model, folder or Hub id: classification, regression, tagging or question
    answering."""
    files: Positional[tuple[str, ...]]
    """Texts: txt (one per line), csv, tsv (no quoting), jsonl, fasta (fa, faa, fna, ffn), smi, for
    tagging also columns (conll, conllu, txt), for questions SQuAD's json. All may be compressed."""
    header: bool = True
    """The first line of a csv or tsv names the columns. Otherwise they are numbers from 0."""
    text_column: str | None = None
    """Column of the text [default: one that finetune knows by name]."""
    pair_column: str | None = None
    """Column of the second text [default: sentence2, if the model was trained on pairs]."""
    output_file: str | None = None
    """Predictions as csv, tsv or jsonl, with the columns of the input [default: standard output, as
    tsv]."""
    overwrite: bool = False
    """Replace an existing output file."""
    json: bool = False
    """Write JSON, with --output-file a summary."""
    probabilities: bool = False
    """Write the probability of every label."""
    max_seq_length: Annotated[int, Ge(16)] | None = None
    """Tokens per sequence [default: that of the model's fine-tuning]. Longer texts are truncated,
    longer sentences and contexts read in windows."""
    threshold: Inside | None = None
    """Multilabel: probability above which a label holds [default: 0.5]."""
    no_answer_threshold: float | None = None
    """Questions: score above which there is no answer [default: the best of the model's
    fine-tuning]."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    bf16: Literal["auto", "true", "false"] = "auto"
    """Compute in bfloat16. auto: if the processor has instructions for it."""
    threads: str = "auto"
    """CPU threads: a number, or auto (OMP_NUM_THREADS if set, else measured in one second)."""

    def check(self) -> None:
        thread_count(self.threads)
        must_end_in(self.output_file, (".csv", ".tsv", ".jsonl"))
        if self.overwrite and self.output_file is None:
            raise UserError("overwrite needs output_file")

    def __call__(self) -> int:
        from ..export.places import check_place
        from .kinds import kept, kind_in, pairs_in
        from .output import must_be_free
        from .source import Files

        model = kept(self.model)
        check_place(model)
        kind = kind_in(model)
        must_be_free(self)
        if kind is not None:  # for a model on the Hub it is known later
            Files(self, kind, pairs=pairs_in(model)).check()

        from .predict import predict_files

        summary = predict_files(self)
        if self.output_file is not None:
            show(summary.as_json() if self.json else summary.text())
        return 0


@dataclass(frozen=True, kw_only=True)
class EmbedConfig(Options):
    """Which model makes vectors of which texts, and where they go."""

    model: Positional[str]
    """Encoder, folder or Hub id."""
    files: Positional[tuple[str, ...]]
    """Texts: txt (one per line), csv, tsv (no quoting), jsonl, fasta (fa, faa, fna, ffn), smi, also
    compressed."""
    header: bool = True
    """The first line of a csv or tsv names the columns. Otherwise they are numbers from 0."""
    text_column: str | None = None
    """Column of the text [default: one that finetune knows by name]."""
    output_file: str
    """Vectors as npy (float32, a row per text) or parquet (with the columns of the input)."""
    overwrite: bool = False
    """Replace an existing output file."""
    json: bool = False
    """Write the summary as JSON."""
    pooling: Literal["mean", "cls"] = "mean"
    """Mean of all states of a text, or the state of the class token."""
    center: str | None = None
    """File of texts whose mean vector is subtracted. The vectors of discriminators lie close
    together (cosines of 0.78 to 0.97 for unrelated texts) without centring."""
    whiten: str | None = None
    """File of texts, more than the hidden size, on which vectors are centred and whitened
    (2103.15316)."""
    max_seq_length: Annotated[int, Ge(16)] | None = None
    """Tokens per text [default: the model's maximum, at most 512]. Longer texts are truncated."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    bf16: Literal["auto", "true", "false"] = "auto"
    """Compute in bfloat16. auto: if the processor has instructions for it."""
    threads: str = "auto"
    """CPU threads: a number, or auto (OMP_NUM_THREADS if set, else measured in one second)."""

    def check(self) -> None:
        thread_count(self.threads)
        must_end_in(self.output_file, (".npy", ".parquet"))
        if self.center is not None and self.whiten is not None:
            raise UserError("center and whiten exclude each other: whitening centres too")

    def __call__(self) -> int:
        from ..export.places import check_place
        from .kinds import kept
        from .output import must_be_free
        from .source import Files, fitted_on

        check_place(kept(self.model))
        must_be_free(self)
        Files(self, "regression").check()
        fitted_on(self)

        from .embed import embed_files

        summary = embed_files(self)
        show(summary.as_json() if self.json else summary.text())
        return 0
