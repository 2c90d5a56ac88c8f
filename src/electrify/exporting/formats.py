"""The formats of `electrify export`: a Hugging Face folder of a run, and what is made of such a
folder: a graph for onnxruntime, or a folder of sentence-transformers."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..errors import need
from ..files import json_text, must_be_ours, written
from ..tables import DISCRIMINATOR
from ..train import CONFIG
from .folder import FILES, export
from .loading import load_config, load_tokenizer, positions_in
from .places import MARK, check_place, mark_of, model_in

MAX_SEQ_LENGTH = 512
"""That of `electrify embed`."""


def export_as(options: Any) -> str:
    """Exports a network of a run, or a Hugging Face folder in another format. options: cli.Export.
    Returns what was written, for the user. Raises UserError."""
    name, target = options.model, Path(options.output_dir)
    network = {"part": options.part, "step": options.step}
    if options.format == "hf":
        return str(export(name, target, **network))
    must_be_ours(target, MARK)
    earlier = mark_of(str(target)) if target.is_dir() else {}
    same = not earlier or earlier.get("format") == options.format
    need(same, f"{target} holds another model", "choose another --output-dir")
    with TemporaryDirectory() as made:
        if (Path(name) / CONFIG).is_file():
            model = str(export(name, Path(made) / options.part, **network))
        else:
            usual = network == {"part": DISCRIMINATOR, "step": None}
            need(usual, "--part and --step are for runs")
            model = model_in(name)
            check_place(model)
        if options.format == "sentence-transformers":
            return sentence_transformer(model, target)
        from .onnx import export_onnx

        return export_onnx(model, target, quantize=options.quantize)


def sentence_transformer(model: str, target: Path) -> str:
    """Writes a copy of a Hugging Face folder that SentenceTransformer loads as the encoder of
    `electrify embed`: the mean of the states of all tokens. Raises UserError."""
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
        "modules.json": modules,
        "1_Pooling/config.json": pooling,
        "sentence_bert_config.json": {"max_seq_length": length, "do_lower_case": False},
        MARK: mark_of(model) | {"format": "sentence-transformers"},
    }
    with written(target.resolve()) as new:
        (new / "1_Pooling").mkdir(parents=True)
        for path in source.iterdir():
            if path.name in FILES or path.suffix == ".safetensors":
                shutil.copy2(path, new / path.name)
        for name, content in said.items():
            (new / name).write_text(f"{json_text(content, indent=1)}\n", encoding="utf-8")
    return f"{target}: SentenceTransformer({str(target)!r}) loads it"
