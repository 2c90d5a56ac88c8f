"""The options of `electrify export` and `electrify push`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import need
from ..methods import DISCRIMINATOR
from ..train import CONFIG
from ..values import Natural, Options, Positional
from .places import check_place, model_in


@dataclass(frozen=True, kw_only=True)
class Export(Options):
    """Which network is exported, in which format, and where to."""

    model: Positional[str]
    """Run. With --format onnx or sentence-transformers also a Hugging Face folder, such as a
    fine-tuned model."""
    output_dir: str
    """Folder to write: new, empty, or an earlier export, which is replaced."""
    part: str = DISCRIMINATOR
    """Network of a run: discriminator (of `bert` recipes the encoder with its MLM head), generator,
    corrector (of `corrective`) or selector (of `selective`)."""
    format: Literal["hf", "onnx", "sentence-transformers"] = "hf"
    """hf: config.json, model.safetensors (float32), tokenizer files, README.md. onnx: model.onnx,
    for detect, predict and onnxruntime. sentence-transformers: hf with mean pooling."""
    quantize: Literal["none", "int8"] = "none"
    """--format onnx: weights of matrix products in int8. How far outputs move is measured and
    printed."""
    step: Natural | None = None
    """Checkpoint of a run to export [default: the newest complete one]."""

    def check(self) -> None:
        need(self.quantize == "none" or self.format == "onnx", "quantize is for --format onnx")

    def must_exist(self) -> None:
        """Raises UserError if there is nothing of this kind to export, before torch is imported,
        and sets `model` to the one that a folder holds. Not part of `check`: it may ask the Hub."""
        if (Path(self.model) / CONFIG).is_file():
            return
        fact = f"{self.model} is not a run folder: it has no {CONFIG}"
        need(self.format != "hf", fact, "give the --output-dir of electrify pretrain")
        whole = self.part == DISCRIMINATOR and self.step is None
        need(whole, "--part and --step are for runs")
        self.set("model", model_in(self.model))
        check_place(self.model)


@dataclass(frozen=True, kw_only=True)
class Push(Options):
    """Which folder is uploaded, and where to."""

    folder: Positional[str]
    """Model folder: an export, a fine-tuned model, or a run, of which discriminator/ is sent."""
    repo_id: Positional[str]
    """Repository on the Hub, USER/NAME. It is made if it does not exist. The token is the one of
    `hf auth login` or HF_TOKEN."""
    private: bool = True
    """Make a new repository private. An existing one stays as it is."""
    dry_run: bool = False
    """List the files with their sizes, and send nothing."""
    revision: str | None = None
    """Branch, which is made if it does not exist [default: main]."""
    commit_message: str | None = None
    """Message of the commit [default: that of huggingface_hub]."""

    def check(self) -> None:
        need("/" in self.repo_id, f"repo_id must be USER/NAME, not {self.repo_id!r}")
