"""Folders with model.onnx, as `electrify export --format onnx` writes them, run by onnxruntime:
nothing here imports torch.

Shape suffixes: N rows, B rows of a batch, L tokens, S slots of a batch, C classes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from .errors import UserError, failing_as, must_have, need
from .files import read_json
from .process import cores, thread_count
from .text.tokenizer import reading_text

Array = np.ndarray[Any, Any]
GRAPH = "model.onnx"
SEGMENTS = "token_type_ids"
MOST_SLOTS = 4096
"""Tokens of a batch, padding included: as many as fit into a CPU's caches. finetuning.loop.TOKENS
has the same number for torch, which nothing here imports."""


def is_onnx(model: str) -> bool:
    """Whether a name is that of a folder with a graph and without weights for torch."""
    folder = Path(model)
    return (folder / GRAPH).is_file() and not (folder / "model.safetensors").is_file()


def must_be_of_torch(model: str) -> None:
    """Raises UserError for a folder with a graph alone."""
    fact = f"{model} is an ONNX model, which detect and predict run"
    need(not is_onnx(model), f"{fact}. Name the model that it was exported from")


def padded(rows: Sequence[Sequence[int]], pad: int) -> tuple[Array, Array]:
    """Rows filled up with `pad` on the right, and their attention mask: [B, L] each."""
    mask_BL = np.arange(max(map(len, rows))) < np.array([[len(row)] for row in rows])
    ids_BL = np.full(mask_BL.shape, pad)
    ids_BL[mask_BL] = np.concatenate([np.asarray(row, np.int64) for row in rows])
    return ids_BL, mask_BL.astype(np.int64)


def batches(lengths: Sequence[int], most: int = MOST_SLOTS) -> Iterator[list[int]]:
    """The numbers of all rows, the shortest first, in batches of at most `most` slots (or of one
    row)."""
    batch: list[int] = []
    for k in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[k] > most:
            yield batch
            batch = []
        batch.append(k)
    if batch:
        yield batch


@dataclass(frozen=True)
class OnnxModel:
    """A graph with its tokenizer. config: its config.json. segments: whether it reads token
    types."""

    name: str
    config: dict[str, Any]
    tokenizer: Any
    session: Any
    segments: bool

    @classmethod
    def of(cls, name: str, threads: str) -> Self:
        """threads: a number, or auto (OMP_NUM_THREADS, else all cores). Raises UserError if the
        folder or the package is damaged or missing."""
        must_have(f"{name} is an ONNX model, which", "onnx", "onnxruntime")
        import onnxruntime
        from transformers import PreTrainedTokenizerFast

        asked = thread_count(threads) or thread_count(os.environ.get("OMP_NUM_THREADS") or "auto")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = asked or cores()
        options.log_severity_level = 3  # errors only
        graph = str(Path(name) / GRAPH)
        with failing_as(f"{graph} cannot be loaded"):
            session = onnxruntime.InferenceSession(
                graph, options, providers=["CPUExecutionProvider"]
            )
        # The class that reads tokenizer.json as it is written, and imports no torch.
        with failing_as(f"{name}: its tokenizer cannot be loaded"):
            tokenizer = reading_text(PreTrainedTokenizerFast.from_pretrained(name))
        segments = SEGMENTS in (put.name for put in session.get_inputs())
        return cls(name, read_json(Path(name) / "config.json"), tokenizer, session, segments)

    @property
    def positions(self) -> int:
        """The most tokens of a sequence, which `export` wrote as the tokenizer's length."""
        return self.tokenizer.model_max_length

    def outputs(self, ids_BL: Array, mask_BL: Array, types_BL: Array | None = None) -> list[Array]:
        """What the graph computes of padded rows. types_BL: their token types; None: all are 0.
        Raises UserError for numbers that are not finite."""
        inputs = {"input_ids": ids_BL, "attention_mask": mask_BL}
        if self.segments:
            inputs[SEGMENTS] = np.zeros_like(ids_BL) if types_BL is None else types_BL
        found = self.session.run(None, inputs)
        if not all(np.isfinite(x).all() for x in found):
            raise UserError(f"{self.name}: its outputs are not numbers. The model is damaged")
        return found

    def logits(
        self,
        rows: Sequence[Sequence[int]],
        types: Sequence[Sequence[int]],
        each: Callable[[int, Array], Any],
        *,
        after: Callable[[float], None],
    ) -> list[Any]:
        """What `each` makes of the number of a row and its logits, [C] or [L, C], in batches of
        similar length; those of starts and ends side by side. types: of the tokens, for a graph
        that reads them. after: called with the share of the rows after each batch."""
        found: list[Any] = [None] * len(rows)
        for batch in batches(list(map(len, rows))):
            ids_BL, mask_BL = padded([rows[k] for k in batch], self.tokenizer.pad_token_id)
            types_BL = padded([types[k] for k in batch], 0)[0] if self.segments else None
            outputs = self.outputs(ids_BL, mask_BL, types_BL)
            logits = outputs[0] if len(outputs) == 1 else np.stack(outputs, -1)
            for k, of_row in zip(batch, logits, strict=True):
                found[k] = each(k, of_row)
            after(len(batch) / len(rows))
        return found


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softmax(x: Array) -> Array:
    """Over the last axis."""
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def probabilities(logits: Array, config: Mapping[str, Any], metadata: Mapping[str, Any]) -> Array:
    """What outputs stand for, by config.json and metadata: of a detecting head [B, L], of others in
    the shape of the logits; the values of a regression as they are."""
    if metadata.get("logits") == "replaced":  # one logit a token, or two (original, replaced)
        return sigmoid(logits if logits.ndim == 2 else logits[..., 1] - logits[..., 0])
    if config.get("problem_type") == "multi_label_classification":
        return sigmoid(logits)
    return logits if logits.shape[-1] == 1 else softmax(logits)
