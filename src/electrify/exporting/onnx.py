"""A Hugging Face folder -> a folder with model.onnx, compared with torch before it is put in place.

    DIR/model.onnx
        config.json
        tokenizer.json, tokenizer_config.json
        README.md
        electrify.json

Shape suffixes: B rows of a batch, L tokens.
"""

from __future__ import annotations

import inspect
import logging
import tarfile
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..architectures import class_in
from ..errors import failing_as, must_have, need
from ..onnx_models import GRAPH, SEGMENTS, OnnxModel, padded, probabilities
from ..progress import size
from ..text.pydocs import docstrings
from ..text.report import note_on_unknown
from ..text.tokenizer import rewrite_settings
from .agreement import ExportError
from .loading import load_config, load_tokenizer, load_weights, made_for, quiet

PACKAGES = ("onnx", "onnxruntime", "onnxscript")
TOLERANCE = 1e-4
"""How far outputs may differ from torch's, relative to their largest value where that exceeds 1."""
MOST_TOKENS = 1024
"""Of the longest rows that are compared."""
SHAPES = ((1, 1), (33, 1), (1, 2), (2, 7), (33, 16), (5, 64), (3, 130), (1, 512), (2, MOST_TOKENS))
"""Rows and tokens of the batches that are compared, as far as the model reads them."""
MEANING = {"ElectraForPreTraining": "replaced", "ForMaskedLM": "token"}
"""The `logits` in the metadata of a folder without one, by the ending of its class."""
TEXTS = 64
TEXT_TOKENS = 128
"""Passages on which the loss of quantization is measured, and the tokens of each."""
CARD = """\
---
library_name: onnx
tags: [onnx, electrify]
---

# {kind} as ONNX

{report}

```python
import onnxruntime
from transformers import PreTrainedTokenizerFast

tokenizer = PreTrainedTokenizerFast.from_pretrained("FOLDER")
session = onnxruntime.InferenceSession("FOLDER/model.onnx")
found = tokenizer(["a text", "another one"], padding=True, return_tensors="np")
inputs = {{put.name: found[put.name].astype("int64") for put in session.get_inputs()}}
print(session.run(None, inputs))
```

`electrify detect` (discriminators) and `electrify predict` (fine-tuned models) run such folders
without PyTorch: `pip install 'electrify[onnx]'`.
"""


def write_onnx(model: str, folder: Path, metadata: dict[str, Any], *, quantize: str) -> str:
    """Writes the graph of a model folder or Hub id with its tokenizer into the folder, and adds to
    the metadata what was compared. Returns that, for the user. Raises UserError if the model has no
    head or cannot be exported, ExportError if onnxruntime does not compute the same."""
    must_have("--format onnx", "onnx", *PACKAGES)
    network, tokenizer = load_network(model)
    kind, positions, path = type(network).__name__, made_for(network), folder / GRAPH
    metadata["class"] = kind
    for ending, meaning in MEANING.items():
        if kind.endswith(ending):
            metadata.setdefault("logits", meaning)
    write_tokenizer(folder, tokenizer.original, positions)
    with quiet():
        network.config.save_pretrained(folder)
    graph = Graph(network)
    write_graph(path, graph, positions)
    with failing_as("onnxruntime cannot run this model"):
        exact = OnnxModel.of(str(folder), "auto")
        worst, shapes = compared(exact, graph, positions)
    metadata |= {"difference": worst, "compared": shapes}
    inputs, outputs = ", ".join(graph.inputs), ", ".join(graph.outputs)
    report = [
        f"reads {inputs} (int64, batch x length, up to {positions:,} tokens), gives {outputs}",
        f"compared with torch on batches of {', '.join(shapes)} tokens: difference {worst:.1e}",
    ]
    if quantize == "int8":
        quantize_int8(path)
        loss = loss_of(exact, OnnxModel.of(str(folder), "auto"), metadata)
        metadata |= {"quantization": "int8"} | loss
        report.append(
            "int8: probabilities (of a regression: values) differ from float32 by at most "
            f"{loss['largest_loss']:.1e}, on average by {loss['mean_loss']:.1e}"
        )
    text = CARD.format(kind=kind, report="\n".join(f"- {line}" for line in report))
    (folder / "README.md").write_text(text, encoding="utf-8")
    return "\n".join([f"{kind}, {size(path.stat().st_size)}", *report])


# ------------------------------------------------------------------ the graph


def load_network(model: str) -> tuple[Any, Any]:
    """The class that config.json names, with its weights, and the tokenizer. Raises UserError if
    the library has no such class, or if weights are missing."""
    config = load_config(model)
    cls, names = class_in(config), config.architectures or ["a model without a class"]
    need(
        cls is not None and not cls.__name__.endswith("Model"),
        f"{model}: {names[0]} has no head. Export a discriminator, a masked language model or a "
        "fine-tuned model",
    )
    network, missing = load_weights(cls, model, config)
    need(not missing, f"{model} lacks weights ({', '.join(missing[:4])})")
    return network, load_tokenizer(model, vocab_size=config.vocab_size)


class Graph(nn.Module):
    """A network as a function of tensors: input_ids, attention_mask and, if it has segments,
    token_type_ids [B, L] -> logits, or start_logits and end_logits."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        several = (getattr(network.config, "type_vocab_size", None) or 0) > 1
        read = inspect.signature(network.base_model.forward).parameters
        segments = several and SEGMENTS in read
        self.inputs = ["input_ids", "attention_mask", *[SEGMENTS] * segments]
        self.outputs = ["logits"]
        if type(network).__name__.endswith("ForQuestionAnswering"):
            self.outputs = ["start_logits", "end_logits"]

    def forward(self, *inputs_BL: Tensor) -> tuple[Tensor, ...]:
        output = self.network(**dict(zip(self.inputs, inputs_BL, strict=True)))
        return tuple(getattr(output, name) for name in self.outputs)


def write_graph(path: Path, graph: Graph, positions: int) -> None:
    """Raises UserError if torch cannot export it."""
    ids_BL = torch.randint(5, graph.network.config.vocab_size, (2, 8))
    example = (ids_BL, torch.ones_like(ids_BL), torch.zeros_like(ids_BL))[: len(graph.inputs)]
    free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=positions)}
    for name in ("torch.onnx", "onnxscript"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with failing_as("torch.onnx cannot export this model"), quiet(), torch.no_grad():
        program: Any = torch.onnx.export(
            graph.eval(),
            example,
            input_names=graph.inputs,
            output_names=graph.outputs,
            dynamic_shapes=(tuple(free for _ in example),),
            dynamo=True,
            verbose=False,
        )
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # the lines of source files that made it, with their paths
    with failing_as(f"{path} could not be written"):
        program.save(str(path))


def write_tokenizer(folder: Path, tokenizer: Any, positions: int) -> None:
    """tokenizer.json as it is computed with, without truncation, and the length that sequences may
    have."""
    tokenizer.model_max_length = positions
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.save_pretrained(folder)
    rewrite_settings(folder)


# ------------------------------------------------------------------ agreement


def compared(model: OnnxModel, graph: Graph, positions: int) -> tuple[float, list[str]]:
    """The largest difference between onnxruntime and torch over real tokens, and the shapes of the
    batches. Raises ExportError if it exceeds TOLERANCE."""
    of_texts = type(graph.network).__name__.endswith("ForSequenceClassification")
    rng, vocabulary = np.random.default_rng(0), model.config["vocab_size"]
    batches = dict.fromkeys((rows, min(most, positions)) for rows, most in SHAPES)
    worst, shapes = 0.0, [f"{rows}x{length}" for rows, length in batches]
    for rows, length in batches:
        # Each row is shorter than the one before it, so that all lengths of padding occur.
        lengths = [max(1, length - k * length // rows) for k in range(rows)]
        ids = [rng.integers(5, vocabulary, n).tolist() for n in lengths]
        ids_BL, mask_BL = padded(ids, model.tokenizer.pad_token_id)
        types_BL = mask_BL * (np.arange(length) > length // 2)
        inputs = [torch.from_numpy(x) for x in (ids_BL, mask_BL, types_BL)[: len(graph.inputs)]]
        with torch.inference_mode():
            wanted = graph(*inputs)
        at = slice(None) if of_texts else mask_BL > 0
        for ours, theirs in zip(model.outputs(ids_BL, mask_BL, types_BL), wanted, strict=True):
            a, b = ours[at], theirs.numpy()[at]
            worst = max(worst, float(np.abs(a - b).max() / max(1.0, np.abs(b).max())))
    if not worst <= TOLERANCE:
        raise ExportError(
            f"onnxruntime computes other numbers than torch (difference {worst:.1e} on batches of "
            f"{', '.join(shapes)} tokens); nothing was written"
        )
    return worst, shapes


# ------------------------------------------------------------------ int8


def quantize_int8(path: Path) -> None:
    """Weights of matrix products in int8, a scale for each output, in the place of the graph."""
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    ready = path.with_name("ready.onnx")
    with failing_as("onnxruntime cannot quantize this model"), quiet():
        quant_pre_process(str(path), str(ready), skip_symbolic_shape=True)
        # 7 bits: without VNNI, sums of two products of 8 bits overflow.
        how = {"weight_type": QuantType.QInt8, "per_channel": True, "reduce_range": True}
        quantize_dynamic(str(ready), str(path), **how)
    ready.unlink()


def loss_of(
    exact: OnnxModel, quantized: OnnxModel, metadata: Mapping[str, Any]
) -> dict[str, float]:
    """How far the probabilities (the values of a regression) of two models differ on passages of
    Python's documentation, or on random ids if the tokenizer does not know its words."""
    tokenizer = exact.tokenizer
    files = [Path(str(module.__file__)) for module in (tarfile, typing)]
    texts = [text for file in files for text in docstrings(file)][:TEXTS]
    length = min(TEXT_TOKENS, exact.positions)
    rows = tokenizer(texts, truncation=True, max_length=length)["input_ids"]
    if note_on_unknown(exact.name, tokenizer, texts):
        rng = np.random.default_rng(0)
        rows = rng.integers(5, exact.config["vocab_size"], (TEXTS, length))
    differences = []
    for row in rows:
        inputs = padded([row], 0)
        for pair in zip(exact.outputs(*inputs), quantized.outputs(*inputs), strict=True):
            a, b = (probabilities(logits, exact.config, metadata) for logits in pair)
            differences.append(np.abs(a - b).ravel())
    every = np.concatenate(differences)
    return {"largest_loss": float(every.max()), "mean_loss": float(every.mean())}
