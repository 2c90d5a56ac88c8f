"""The formats of `electrify export`: a Hugging Face folder of a run, and what is made of such a
folder: a graph for onnxruntime, or a folder of sentence-transformers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from ..errors import need
from ..files import json_text, must_be_ours, written
from ..tables import DISCRIMINATOR
from ..train import CONFIG
from .folder import FILES, export
from .loading import load_config, load_tokenizer, positions_in
from .places import MARK, check_place, model_in

Format = Literal["hf", "onnx", "sentence-transformers"]
MAX_SEQ_LENGTH = 512
"""That of `electrify embed`."""
MODULES = "modules.json"


def export_as(
    name: str,
    output_dir: str,
    *,
    format: Format,  # noqa: A002 - the flag's name
    part: str,
    step: int | None,
    quantize: Literal["none", "int8"],
) -> str:
    """Exports a network of a run, or a Hugging Face folder in another format. Returns what was
    written, for the user."""
    makers: dict[str, Callable[[str], str]] = {
        "onnx": lambda model: _onnx(model, output_dir, quantize),
        "sentence-transformers": lambda model: sentence_transformer(model, Path(output_dir)),
    }
    if format == "hf":
        return str(export(name, output_dir, part=part, step=step))
    if not (Path(name) / CONFIG).is_file():
        need(step is None and part == DISCRIMINATOR, f"--part and --step are for runs, not {name}")
        return makers[format](model_in(name))
    with TemporaryDirectory() as made:
        return makers[format](str(export(name, Path(made) / part, part=part, step=step)))


def _onnx(model: str, output_dir: str, quantize: Literal["none", "int8"]) -> str:
    from .onnx import export_onnx

    return export_onnx(model, output_dir, quantize=quantize)


def sentence_transformer(model: str, target: Path) -> str:
    """Writes a copy of a Hugging Face folder that SentenceTransformer loads as the encoder of
    `electrify embed`: the mean of the states of all tokens. Raises UserError."""
    must_be_ours(target, MARK)
    check_place(model)
    source = Path(model)
    need(source.is_dir(), f"{model} is no folder here. Download it first (hf download)")
    config: Any = load_config(model)
    load_tokenizer(model, vocab_size=config.vocab_size)
    relative = not getattr(config, "position_biased_input", True)
    length = MAX_SEQ_LENGTH if relative else min(MAX_SEQ_LENGTH, positions_in(config))
    # These names are those of version 5, too.
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling")]
    modules = [
        {"idx": k, "name": str(k), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for k, (path, kind) in enumerate(kinds)
    ]
    pooling = {"word_embedding_dimension": config.hidden_size, "pooling_mode_mean_tokens": True}
    said = {
        MODULES: modules,
        "1_Pooling/config.json": pooling,
        "sentence_bert_config.json": {"max_seq_length": length, "do_lower_case": False},
    }
    with written(target.resolve()) as new:
        (new / "1_Pooling").mkdir(parents=True)
        for path in source.iterdir():
            if path.name in FILES or path.suffix == ".safetensors":
                shutil.copy2(path, new / path.name)
        for name, content in said.items():
            (new / name).write_text(f"{json_text(content, indent=1)}\n", encoding="utf-8")
    return f"{target}: SentenceTransformer({str(target)!r}) loads it"
