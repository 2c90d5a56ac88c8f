"""The options of `electrify export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import need
from ..tables import DISCRIMINATOR
from ..train import CONFIG
from ..values import Natural, Options, Positional
from .places import check_place, model_in, must_be_run


@dataclass(frozen=True, kw_only=True)
class Export(Options):
    """Which network is exported, in which format, and where to."""

    model: Positional[str]
    """Run. With --format onnx or sentence-transformers also a Hugging Face folder, such as a
    fine-tuned model."""
    output_dir: str
    """Folder to write: new, empty, or an earlier export, which is replaced."""
    part: str = DISCRIMINATOR
    """Network of a run: discriminator (also the encoder of `bert`, with its MLM head), generator,
    corrector or selector."""
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
        """Raises UserError if there is nothing of this kind to export, before torch is imported."""
        run = Path(self.model)
        if self.format == "hf" or (run / CONFIG).is_file():
            must_be_run(run)
        else:
            whole = self.part == DISCRIMINATOR and self.step is None
            need(whole, "--part and --step are for runs")
            self.set("model", model_in(self.model))
            check_place(self.model)
