"""`electrify embed`: vectors of texts, from files of any size in bounded memory, or of a list of
texts; centring and whitening make their cosines comparable.

Shape suffixes: N texts, B texts of a minibatch, L tokens, D width.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import numpy as np

from ..errors import UserError, failing_as, must_have, need
from ..exporting.loading import quiet
from ..exporting.places import metadata_of
from ..files import written
from ..progress import Progress
from ..text.streams import ending_of
from ..values import given_texts
from . import new_texts, output
from .encoding import TextRows, fitting
from .new_texts import Files
from .options import EmbedConfig
from .output import After
from .tasks import Example

Array = np.ndarray[Any, Any]
Blocks = Iterator[tuple[list[new_texts.Item], Array]]
MAX_SEQ_LENGTH = 512
SENTENCE_MODULES = "modules.json"
"""The file of a sentence-transformers model that lists its modules: encoder, pooling, layers."""
_LEAST_SHARE = 1e-6
"""Smallest variance of a direction, as a share of the largest: below it there are only rounding
errors, which whitening would make as large as everything else."""


# ------------------------------------------------------------------ encoders


class Embedder:
    """An encoder whose states are pooled: the mean of all tokens, or the class token."""

    def __init__(self, options: EmbedConfig) -> None:
        from ..train.machine import pick_device
        from . import loop

        self.options = options
        self.device = pick_device(options.device)
        self.bf16 = loop.computes_in_bf16(options.bf16, self.device)
        self.reader, self.length = self.loaded(options.model)
        self.text_rows = TextRows(self.reader, self.length)

    def loaded(self, model: str) -> tuple[Any, int]:
        """The model with its tokenizer, and the most tokens of a text."""
        from .model import computing_in_bf16, load_encoder

        reader = load_encoder(model, device=self.device)
        if self.bf16:
            computing_in_bf16(reader.encoder)
        return reader, fitting(reader, self.options.max_seq_length, MAX_SEQ_LENGTH)

    def vectors(self, batch: Any) -> Any:
        """[B, D] of a minibatch, in float32."""
        from .loop import mean_state
        from .problems import class_tokens

        states_BLD = self.reader.encoder(**batch.inputs).last_hidden_state.float()
        if self.options.pooling == "mean":
            return mean_state(states_BLD, batch)
        places_B = class_tokens(batch, last=self.reader.last)
        return states_BLD.take_along_dim(places_B[:, None, None], 1)[:, 0]

    def __call__(self, examples: list[Any], after: After = lambda _: None) -> Array:
        """[N, D], float32. Raises UserError if they are not numbers."""
        from . import loop

        rows = loop.Rows.of(self.reader, *self.text_rows(examples))
        outputs, each = lambda batch: [self.vectors(batch)], lambda _, vector_D: vector_D
        return np.stack(loop.answers(self.reader.encoder, rows, outputs, each, after))


class SentenceEmbedder(Embedder):
    """A model of sentence-transformers, with its own pooling and dense layers."""

    def loaded(self, model: str) -> tuple[Any, int]:
        from ..text.tokenizer import reading_text

        what = f"{model} is a model of sentence-transformers ({SENTENCE_MODULES})"
        must_have(f"{what}, which", "sentence", "sentence_transformers")
        from sentence_transformers import SentenceTransformer  # type: ignore

        fact = f"{what} and has its own pooling. Leave --pooling out"
        need(self.options.pooling == "mean", fact)
        how = {"device": str(self.device), "model_kwargs": {"use_safetensors": True}}
        with quiet(), failing_as(f"{what} and cannot be loaded"):
            self.model = SentenceTransformer(model, **how)
        reading_text(self.model.tokenizer)
        most = self.model.max_seq_length or MAX_SEQ_LENGTH
        self.model.max_seq_length = min(self.options.max_seq_length or most, most)
        known = {"tokenizer": self.model.tokenizer, "name": model, "segments": False}
        width = len(self.model.encode(""))
        return SimpleNamespace(**known, width=width), self.model.max_seq_length

    def __call__(self, examples: list[Any], after: After = lambda _: None) -> Array:
        import torch

        texts = [example.text for example in examples]
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            found_ND = self.model.encode(texts, show_progress_bar=False)
        self.text_rows.count(examples, [self.length] * len(examples))
        after(1.0)
        return np.asarray(found_ND, np.float32)


def load_embedder(model: str | os.PathLike[str], **options: Any) -> Embedder:
    """options: pooling, max_seq_length, device, bf16: see `EmbedConfig`. Raises UserError."""
    given: dict[str, Any] = {"files": (), "output_file": ".npy"} | options
    return embedder_of(EmbedConfig(model=os.fspath(model), **given))


def embedder_of(options: EmbedConfig) -> Embedder:
    of_sentences = (Path(options.model) / SENTENCE_MODULES).is_file()
    return (SentenceEmbedder if of_sentences else Embedder)(options)


# ------------------------------------------------------------------ centring and whitening


def fitted(
    blocks: Iterable[Array], *, width: int, whiten: bool, shown: str
) -> Callable[[Array], Array]:
    """The transform with which the vectors of all blocks together have the mean 0 and, if whitened,
    the identity as covariance (Su et al. 2021, 2103.15316). One pass, in float64.

    Raises UserError for too few vectors: `width` or fewer have directions without variance.
    """
    import torch

    count = 0
    sum_D = np.zeros(width)
    products_DD = np.zeros((width, width))
    for block_ND in blocks:
        wide_ND = block_ND.astype(np.float64)
        count += len(wide_ND)
        sum_D += wide_ND.sum(0)
        products_DD += wide_ND.T @ wide_ND
    least = width + 1 if whiten else 1
    if count < least:
        way = f"whitening vectors of width {width}" if whiten else "centring"
        raise UserError(f"{shown}: {way} needs at least {least:,} texts, not {count:,}")
    center_D = sum_D / count
    if not whiten:
        return lambda vectors_ND: (vectors_ND - center_D).astype(np.float32)
    covariance_DD = torch.from_numpy(products_DD / count - np.outer(center_D, center_D))
    variances_D, axes_DD = (x.numpy() for x in torch.linalg.eigh(covariance_DD))
    variances_D = variances_D.clip(variances_D[-1] * _LEAST_SHARE)
    matrix_DD = (axes_DD / np.sqrt(variances_D))[:, ::-1]
    return lambda vectors_ND: ((vectors_ND - center_D) @ matrix_DD).astype(np.float32)


# ------------------------------------------------------------------ files


def embed_files(options: EmbedConfig) -> str:
    """Writes a vector for every text of the files, in order, into the output file, whole or not at
    all; returns what it did. Mistakes in files and options are reported before the model is loaded.
    Raises UserError."""
    began = time.monotonic()
    output.must_be_ready(options, options.output_file)
    files, corpus = Files.of(options, pairs=False), None
    (first, *_) = files.check()
    if given := options.center or options.whiten:
        same = ending_of(given) == ending_of(options.files[0])
        corpus = replace(files, paths=(given,)) if same else Files((given,), pairs=False)
        corpus.check()
    path = Path(options.output_file)
    is_npy = path.suffix.lower() == ".npy"
    columns = [] if is_npy else list(output.joined(first, {"embedding": None}))
    embedder = embedder_of(options)
    with output.threads_of(options, embedder), written(path) as part, part.open("wb") as stream:
        vectors = _vectors(options, embedder, files, corpus)
        if is_npy:
            _npy(stream, vectors, embedder.reader.width)
        else:
            _parquet(stream, vectors, columns, embedder.reader.width)
    output.tell([embedder.text_rows.note(), "" if corpus else closeness(options.model)])
    return output.done(options.output_file, files.texts, began)


def closeness(model: str) -> str:
    """A note on the vectors of a discriminator."""
    if metadata_of(model).get("part") not in ("discriminator", "selector"):
        return ""
    return (
        "note: the vectors of discriminators lie close together. Centre them before you compare "
        "cosines: --center FILE subtracts the mean vector of the texts in FILE"
    )


def _vectors(options: EmbedConfig, embedder: Any, files: Files, corpus: Files | None) -> Blocks:
    """Every block of the files with its vectors, which the corpus has centred or whitened."""
    transform = None
    if corpus is not None:
        title = "whiten" if options.whiten else "center"
        blocks = (block for _, block in output.in_blocks(corpus, embedder, title=title))
        width, whiten = embedder.reader.width, options.whiten is not None
        transform = fitted(blocks, width=width, whiten=whiten, shown=corpus.paths[0])
        embedder.text_rows.reset()
    for items, vectors_ND in output.in_blocks(files, embedder, title="embed"):
        yield items, vectors_ND if transform is None else transform(vectors_ND)


def _npy(stream: IO[bytes], blocks: Blocks, width: int) -> None:
    """An array [N, D] in float32. numpy's header has room for any number of rows, so it is written
    again when this number is known."""
    header = {"descr": "<f4", "fortran_order": False}
    np.lib.format.write_array_header_1_0(stream, header | {"shape": (0, width)})
    number = 0
    for items, vectors_ND in blocks:
        stream.write(np.ascontiguousarray(vectors_ND, "<f4").tobytes())
        number += len(items)
    stream.seek(0)
    np.lib.format.write_array_header_1_0(stream, header | {"shape": (number, width)})


def _parquet(stream: IO[bytes], blocks: Blocks, columns: Sequence[str], width: int) -> None:
    """A table with the input's columns as text, and `embedding`."""
    must_have("writing .parquet", "data", "pyarrow")
    import pyarrow as pa
    from pyarrow import parquet

    *columns, vector = columns
    texts = [(name, pa.string()) for name in columns]
    schema = pa.schema([*texts, (vector, pa.list_(pa.float32(), width))])
    with parquet.ParquetWriter(stream, schema) as writer:
        for items, vectors_ND in blocks:
            rows = [output.cells_of(item.columns, columns) for item in items]
            cells = map(pa.array, zip(*rows, strict=True))
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(vectors_ND.reshape(-1)), width)
            writer.write_table(pa.table([*cells, vectors], schema=schema))


# ------------------------------------------------------------------ from Python


def embed(
    embedder: Embedder,
    texts: Iterable[str],
    *,
    center: Iterable[str] | None = None,
    whiten: Iterable[str] | None = None,
    normalize_embeddings: bool = False,
    batch_size: int | None = None,
    show_progress_bar: bool = False,
    convert_to_tensor: bool = False,
) -> Any:
    """The vectors of texts, [N, D] in float32. See `electrify.embed`. Raises UserError."""
    both = center is not None and whiten is not None
    need(not both, "center and whiten exclude each other: whitening centres too")
    given, corpus = given_texts(texts), whiten if center is None else center
    width, size = embedder.reader.width, batch_size or new_texts.BLOCK_ITEMS
    found = [np.empty((0, width), np.float32)]
    embedder.text_rows.reset()
    with Progress(len(given), title="embed", unit="texts") as bar:
        for block_ND in _blocks(embedder, given, size):
            found.append(block_ND)
            if show_progress_bar:
                bar.advance(len(block_ND))
    found_ND = np.concatenate(found)
    unknown = output.unknown_note(embedder, map(Example, given))
    output.tell([unknown, embedder.text_rows.note()])
    if corpus is not None:
        blocks = _blocks(embedder, given_texts(corpus), size)
        how: dict[str, Any] = {"width": width, "whiten": whiten is not None}
        found_ND = fitted(blocks, shown="the corpus", **how)(found_ND)
    if normalize_embeddings:
        found_ND /= np.linalg.norm(found_ND, axis=1, keepdims=True).clip(1e-12)
    if convert_to_tensor:
        import torch

        return torch.from_numpy(found_ND)
    return found_ND


def _blocks(embedder: Any, texts: Sequence[str], size: int) -> Iterator[Array]:
    for at in range(0, len(texts), size):
        yield embedder([Example(text) for text in texts[at : at + size]])
