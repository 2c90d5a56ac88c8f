"""`electrify embed`: vectors of texts, from files of any size in bounded memory, or of a list of
texts; centring and whitening make their cosines comparable.

Shape suffixes: N texts, B texts of a minibatch, L tokens, D width.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np

from ..errors import UserError
from ..export.places import check_place
from ..export.quiet import quiet
from ..files import written
from ..progress import say
from ..scoring.given import given_texts
from .new_texts import BLOCK_ITEMS, Files, Head, Item
from .predict import (
    Summary,
    as_text,
    chosen_threads,
    in_blocks,
    must_be_free,
    must_be_new,
    must_fit,
)
from .saved import kept
from .tables import ending_of
from .tasks import Example

if TYPE_CHECKING:
    from .options import EmbedConfig

Array = np.ndarray[Any, Any]
Transform = Callable[[Array], Array]
After = Callable[[float], None]
MAX_SEQ_LENGTH = 512
SENTENCE_MODULES = "modules.json"
"""The file of a sentence-transformers model that lists its modules: encoder, pooling, layers."""
_LEAST_SHARE = 1e-6
"""Smallest variance of a direction, as a share of the largest: below it there are only rounding
errors, which whitening would make as large as everything else."""


# ------------------------------------------------------------------ encoders


class Embedder:
    """An encoder whose states are pooled: the mean of all tokens, or the class token."""

    def __init__(self, model: str, options: EmbedConfig) -> None:
        from . import loop
        from .model import computing_in_bf16, load_encoder
        from .texts import Texts, Truncation

        self.device = loop.device_named(options.device)
        self.bf16 = loop.computes_in_bf16(options.bf16, self.device)
        self.reader: Any = load_encoder(model, device=self.device)
        self.width = self.reader.width
        if self.bf16:
            computing_in_bf16(self.reader.encoder)
        length = self.reader.fitting(options.max_seq_length, MAX_SEQ_LENGTH)
        self.pooling = options.pooling
        self.texts = Texts(self.reader, "regression", (), max_seq_length=length, device=self.device)
        self.truncation = Truncation(self.reader, length)

    def outputs(self, encoder: Any, batch: Any) -> dict[str, Any]:
        """`vectors` [B, D] of a minibatch, in float32."""
        import torch

        from .answering import class_tokens

        states_BLD = encoder(**batch.inputs).last_hidden_state.float()
        if self.pooling == "mean":
            mask_BL1 = batch.inputs["attention_mask"][..., None].float()
            return {"vectors": (states_BLD * mask_BL1).sum(1) / mask_BL1.sum(1)}
        rows_B = torch.arange(len(states_BLD), device=states_BLD.device)
        return {"vectors": states_BLD[rows_B, class_tokens(batch, last=self.reader.last)]}

    def vectors(self, examples: Sequence[Any], *, after: After = lambda share: None) -> Array:
        """[N, D], float32. after: called with the share of the work that each forward pass did.
        Raises UserError if they are not numbers."""
        from . import loop

        rows = self.texts.rows(examples)
        number = len(examples)
        encoder = self.reader.encoder
        found = loop.predict(encoder, self, rows, after=lambda done: after(done / number))
        self.truncation.add(examples, rows.lengths_N.tolist())
        return found["vectors"].numpy()


class SentenceEmbedder:
    """A model of sentence-transformers, with its own pooling and dense layers."""

    def __init__(self, model: str, options: EmbedConfig) -> None:
        try:
            from sentence_transformers import SentenceTransformer  # type: ignore
        except ImportError as e:
            raise UserError(
                f"{model} is a model of sentence-transformers ({SENTENCE_MODULES}): pip install "
                "'electrify[sentence]'"
            ) from e
        from . import loop
        from .texts import Truncation

        if options.pooling != "mean":
            raise UserError(
                f"{model} has its own pooling ({SENTENCE_MODULES}). Leave --pooling out"
            )
        self.device = loop.device_named(options.device)
        self.bf16 = loop.computes_in_bf16(options.bf16, self.device)
        with quiet():
            self.model = SentenceTransformer(
                model, device=str(self.device), model_kwargs={"use_safetensors": True}
            )
        most = self.model.max_seq_length or MAX_SEQ_LENGTH
        if (options.max_seq_length or 0) > most:
            raise UserError(f"{model} reads at most {most} tokens. Give --max-seq-length {most}")
        length = self.model.max_seq_length = options.max_seq_length or most
        self.width = len(self.model.encode(""))
        self.reader: Any = SimpleNamespace(
            name=model,
            tokenizer=self.model.tokenizer,
            made_for=most,
            positions=most,
            width=self.width,
        )
        self.truncation = Truncation(self.reader, length)

    def vectors(self, examples: Sequence[Any], *, after: After = lambda share: None) -> Array:
        """[N, D], float32."""
        import torch

        texts = [example.text for example in examples]
        kind = self.device.type
        with torch.autocast(kind, torch.bfloat16) if self.bf16 else nullcontext():
            found_ND = self.model.encode(texts, show_progress_bar=False)
        self.truncation.add(examples, [self.truncation.length] * len(examples))
        after(1.0)
        return np.asarray(found_ND, np.float32)


def _embedder(model: str, options: EmbedConfig) -> Embedder | SentenceEmbedder:
    of_sentences = (Path(model) / SENTENCE_MODULES).is_file()
    return (SentenceEmbedder if of_sentences else Embedder)(model, options)


# ------------------------------------------------------------------ centring and whitening


def fitted(blocks: Iterable[Array], *, width: int, whiten: bool, shown: str) -> Transform:
    """The transform with which the vectors of all blocks together have the mean 0 and, if whitened,
    the identity as covariance (Su et al. 2021, 2103.15316). One pass, in float64.

    Raises UserError for too few vectors: `width` or fewer have directions without variance.
    """
    import torch

    count = 0
    shift_D = sum_D = np.zeros(width)
    products_DD = np.zeros((width, width))
    for block_ND in blocks:
        if count == 0:  # near the mean, or the products would lose digits
            shift_D = block_ND.mean(0, dtype=np.float64)
        moved_ND = block_ND - shift_D
        count += len(moved_ND)
        sum_D = sum_D + moved_ND.sum(0)
        if whiten:
            products_DD += moved_ND.T @ moved_ND
    if count == 0:
        raise UserError(f"{shown}: no texts, so there is nothing to centre on")
    mean_D = sum_D / count
    center_D = shift_D + mean_D
    if not whiten:
        return lambda vectors_ND: (vectors_ND - center_D).astype(np.float32)
    if count <= width:
        raise UserError(
            f"{shown}: {count:,} texts, and whitening vectors of width {width} needs more than "
            f"{width}. Give more texts, or --center"
        )
    covariance_DD = torch.from_numpy(products_DD / count - np.outer(mean_D, mean_D))
    variances_D, axes_DD = (x.numpy() for x in torch.linalg.eigh(covariance_DD))
    if variances_D[-1] <= 0:
        raise UserError(f"{shown}: all texts have the same vector, so nothing can be whitened")
    variances_D = variances_D.clip(variances_D[-1] * _LEAST_SHARE)
    matrix_DD = (axes_DD / np.sqrt(variances_D))[:, ::-1]
    return lambda vectors_ND: ((vectors_ND - center_D) @ matrix_DD).astype(np.float32)


# ------------------------------------------------------------------ files


def embed_files(options: EmbedConfig) -> Summary:
    """Writes a vector for every text of the files, in order, into the output file, whole or not at
    all. Mistakes in files and options are reported before the model is loaded. Raises UserError."""
    began = time.monotonic()
    model = kept(options.model)
    check_place(model)
    must_be_free(options)
    files = _files(options, options.files)
    head = files.check()
    given = options.center or options.whiten
    corpus = None if given is None else _files(options, (given,))
    if corpus is not None:
        corpus.check()
    embedder = _embedder(model, options)
    reader, number = embedder.reader, 0
    with (
        chosen_threads(options, reader, embedder.device, bf16=embedder.bf16),
        _sink(options, head, embedder.width) as write,
    ):
        transform = None
        if corpus is not None:
            title = "whiten" if options.whiten else "center"
            found = (x for _, x in in_blocks(corpus, embedder.vectors, reader, title=title))
            how = {"width": embedder.width, "whiten": options.whiten is not None}
            transform = fitted(found, shown=str(given), **how)
            embedder.truncation.clear()
        for items, vectors_ND in in_blocks(files, embedder.vectors, reader, title="embed"):
            write(items, vectors_ND if transform is None else transform(vectors_ND))
            number += len(items)
    if note := embedder.truncation.text():
        say(note)
    facts = embedder.truncation.facts() | {"width": embedder.width}
    return Summary(number, time.monotonic() - began, options.output_file, facts)


def _files(options: EmbedConfig, paths: tuple[str, ...]) -> Files:
    """The texts of files, or of the file to centre on, for which options hold where they can."""
    ending = ending_of(paths[0])
    corpus = paths != options.files
    column = None if corpus and ending == ".txt" else options.text_column
    header = options.header or (corpus and ending not in (".csv", ".tsv"))
    return Files(paths, "regression", text_column=column, header=header, pairs=False)


Write = Callable[[list[Item], Array], None]


@contextmanager
def _sink(options: EmbedConfig, head: Head, width: int) -> Iterator[Write]:
    """Takes items with their vectors for the file, which appears when the block ends without an
    error."""
    path = Path(options.output_file)
    rows = _npy if path.suffix.lower() == ".npy" else _parquet
    with written(path) as part, part.open("wb") as stream, rows(stream, head, width) as write:
        yield write


@contextmanager
def _npy(stream: IO[bytes], head: Head, width: int) -> Iterator[Write]:
    """An array [N, D] in float32. numpy's header has room for any number of rows, so it is written
    again when this number is known."""
    count = 0

    def header() -> None:
        stream.seek(0)
        shape = {"descr": "<f4", "fortran_order": False, "shape": (count, width)}
        np.lib.format.write_array_header_1_0(stream, shape)

    def write(items: list[Item], vectors_ND: Array) -> None:
        nonlocal count
        stream.write(np.ascontiguousarray(vectors_ND, "<f4").tobytes())
        count += len(items)

    header()
    yield write
    header()


@contextmanager
def _parquet(stream: IO[bytes], head: Head, width: int) -> Iterator[Write]:
    """A table with the input's columns as text, and `embedding`."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as e:
        raise UserError("writing .parquet needs pyarrow: pip install 'electrify[data]'") from e
    columns = dict.fromkeys(head.columns)
    must_be_new(["embedding"], columns)
    for other in head.others:
        must_fit(other.columns, columns, other.path, ending=".npy")
    fields = [(name, pa.string()) for name in columns]
    schema = pa.schema([*fields, ("embedding", pa.list_(pa.float32(), width))])
    with parquet.ParquetWriter(stream, schema) as writer:

        def write(items: list[Item], vectors_ND: Array) -> None:
            for item in items:
                must_fit(item.columns, columns, ending=".npy")
            cells = ([item.columns.get(name) for item in items] for name in columns)
            texts = [pa.array([c if c is None else as_text(c) for c in each]) for each in cells]
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(vectors_ND.reshape(-1)), width)
            writer.write_table(pa.table([*texts, vectors], schema=schema))

        yield write


# ------------------------------------------------------------------ from Python


def embed(
    model: str | os.PathLike[str],
    texts: Iterable[str],
    *,
    pooling: Literal["mean", "cls"] = "mean",
    center: Iterable[str] | None = None,
    whiten: Iterable[str] | None = None,
    max_seq_length: int | None = None,
    device: str = "auto",
    bf16: Literal["auto", "true", "false"] = "auto",
) -> Array:
    """The vectors of texts, [N, D] in float32.

    Args:
        center, whiten: Texts on whose vectors these are centred or whitened.

    The other arguments are those of `EmbedConfig`. Raises UserError.
    """
    from .model import unknown_note
    from .options import EmbedConfig

    options = EmbedConfig(
        model=os.fspath(model),
        files=(),
        output_file=".npy",  # nobody writes it
        pooling=pooling,
        max_seq_length=max_seq_length,
        device=device,
        bf16=bf16,
    )
    if center is not None and whiten is not None:
        raise UserError("center and whiten exclude each other: whitening centres too")
    given = given_texts(texts)
    corpus = whiten if center is None else center
    corpus = None if corpus is None else given_texts(corpus)
    embedder = _embedder(kept(options.model), options)
    found = [np.empty((0, embedder.width), np.float32), *_blocks(embedder, given)]
    for note in (unknown_note(embedder.reader, given), embedder.truncation.text()):
        if note:
            say(note)
    if corpus is not None:
        how = {"width": embedder.width, "whiten": whiten is not None}
        transform = fitted(_blocks(embedder, corpus), shown="the corpus", **how)
        found = list(map(transform, found))
    return np.concatenate(found)


def _blocks(embedder: Any, texts: Sequence[str]) -> Iterator[Array]:
    for at in range(0, len(texts), BLOCK_ITEMS):
        yield embedder.vectors([Example(text) for text in texts[at : at + BLOCK_ITEMS]])
