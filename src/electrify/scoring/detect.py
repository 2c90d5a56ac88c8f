"""Detection: gives each token of a text its probability of being replaced, in one forward pass of a
discriminator.

Shape suffixes: B windows, L tokens of a window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..architectures import exported_as
from ..architectures.architecture import Architecture
from ..errors import UserError
from ..exporting.folders import (
    load_config,
    load_tokenizer,
    load_weights,
    logits_of,
    saved_objective,
)
from ..progress import say
from ..tables import KEPT
from ..text.report import note_on_unknown
from ..train.machine import Threads, choose, computing_with
from .given import given_texts
from .options import DetectConfig

# An amount of text that takes the smallest models seconds; measuring the fastest number of threads
# takes one second.
MANY_TOKENS = 20_000
# The most of a forward pass, unless the user says how many windows: memory grows with its slots.
MOST_WINDOWS = 16
MOST_SLOTS = 8192
# Windows overlap by a quarter: a token at the edge of one window, where it lacks neighbours on one
# side, is judged in the window where it has both.
_OVERLAP = 4


@dataclass(frozen=True)
class Piece:
    """A token or a word of a text: it is text[start:end] (offsets in characters)."""

    token: str
    start: int
    end: int
    probability: float


@dataclass(frozen=True)
class Detection:
    """A text with its tokens (word pieces as the model sees them) and its words (a word's
    probability is the highest of its tokens)."""

    text: str
    tokens: tuple[Piece, ...]
    words: tuple[Piece, ...] = field(default=())


def detect(
    model: str,
    texts: Iterable[str],
    *,
    max_seq_length: int | None = None,
    batch_size: int | None = None,
    threads: str = "auto",
) -> list[Detection]:
    """The probability of being replaced of every token of every text.

    model: folder or Hub id of an ElectraForPreTraining. Texts longer than max_seq_length (None: the
    model's maximum) are read in windows that overlap by a quarter. batch_size: windows of a forward
    pass; None: up to 16, and fewer long ones. threads: a number, or auto. Raises UserError if the
    model has no replaced-token head, or if a text has no tokens.
    """
    options = DetectConfig(
        model=model, max_seq_length=max_seq_length, batch_size=batch_size, threads=threads
    )
    model, threads = options.model, options.threads
    texts = given_texts(texts)
    discriminator, tokenizer, architecture = load_discriminator(model)
    positions = architecture.shape_of(discriminator.config).max_position_embeddings
    length = _window_length(max_seq_length, positions, model)
    encoded = [
        _encode(tokenizer, text, name=f"text {i + 1}" if len(texts) > 1 else "the text")
        for i, text in enumerate(texts)
    ]
    if note := note_on_unknown(model, tokenizer, texts):
        say(note)
    windows = [
        (i, start, stop)
        for i, e in enumerate(encoded)
        for start, stop in windows_of(len(e.ids), size=length - 2)
    ]
    tokens = sum(stop - start for _, start, stop in windows)
    width = discriminator.config.hidden_size
    batch_tokens = batch_size * length if batch_size else min(MOST_WINDOWS * length, MOST_SLOTS)
    with computing_with(_threads(threads, tokens, width=width, batch_tokens=batch_tokens)):
        probabilities = _of_windows(
            discriminator, tokenizer, architecture, encoded, windows, batch_size=batch_size
        )
    return [_detection(e, p.tolist()) for e, p in zip(encoded, probabilities, strict=True)]


def _window_length(asked: int | None, positions: int, model: str) -> int:
    length = positions if asked is None else asked
    if not 8 <= length <= positions:
        raise UserError(
            f"max_seq_length must be 8 to {positions} (the positions of {model}), not {length}"
        )
    return length


def _threads(given: str, tokens: int, *, width: int, batch_tokens: int) -> Threads:
    """The number of threads. It is measured only if there is enough text to make that worth while;
    otherwise it is torch's own number, or the requested one."""
    if given == "auto" and tokens < MANY_TOKENS:
        return Threads(torch.get_num_threads(), "own")
    threads = choose(
        given, device=torch.device("cpu"), width=width, tokens=batch_tokens, bf16=False
    )
    if threads.text():
        say(threads.text())
    return threads


def _of_windows(
    discriminator: Any,
    tokenizer: Any,
    architecture: Architecture,
    encoded: list[_Encoded],
    windows: list[tuple[int, int, int]],
    *,
    batch_size: int | None,
) -> list[torch.Tensor]:
    """The probability of each token of each text. windows: (text, start, stop)."""
    probabilities = [torch.zeros(len(e.ids)) for e in encoded]
    depths = [torch.full((len(e.ids),), -1) for e in encoded]
    for batch in batches_of(windows, batch_size):
        rows = [
            [tokenizer.cls_token_id, *encoded[i].ids[start:stop], tokenizer.sep_token_id]
            for i, start, stop in batch
        ]
        for (i, start, stop), row in zip(
            batch,
            _probabilities(discriminator, architecture, rows, pad=tokenizer.pad_token_id),
            strict=True,
        ):
            # A token sees more of its surroundings the farther it is from the edges of its window.
            inside = torch.minimum(torch.arange(stop - start), torch.arange(stop - start).flip(0))
            better = inside > depths[i][start:stop]
            probabilities[i][start:stop][better] = row[1 : 1 + stop - start][better]
            depths[i][start:stop][better] = inside[better]
    if not all(bool(p.isfinite().all()) for p in probabilities):
        raise UserError(
            f"{discriminator.config.name_or_path}: its probabilities are not numbers; the model is "
            "damaged or diverged"
        )
    return probabilities


def load_discriminator(model: str) -> tuple[Any, Any, Architecture]:
    """Model, tokenizer, and the architecture that reads the model's logits.

    Raises UserError if the replaced-token head is missing; the library would fill it with random
    numbers.
    """
    if Path(model, KEPT, "config.json").is_file() and not Path(model, "config.json").is_file():
        raise UserError(f"{model}: a run, not a model; use {Path(model) / 'discriminator'}")
    config = load_config(model)
    advice = "detection needs a discriminator: use the discriminator/ folder of a run"
    architecture = exported_as(config.model_type)
    if architecture is None:
        raise UserError(
            f"{model}: a {config.model_type!r} model has no replaced-token head; {advice}"
        )
    if logits_of(model) == "energy":
        energies = (
            f"its logits are energies (objective {saved_objective(model)}), not log-odds of a "
            "replacement"
        )
        raise UserError(f"{model}: {energies}; {advice} with objective rtd")
    architecture = architecture.for_classes(config.architectures or ())
    table = architecture.table(architecture.shape_of(config), "binary")
    discriminator, missing = load_weights(architecture.network_class(table.name), model, config)
    lacking = {name for row in table.head for name in row.theirs} & set(missing)
    if lacking or not architecture.has_head(config, "binary"):
        raise UserError(
            f"{model}: the checkpoint has no replaced-token head (a generator, or a fine-tuned "
            f"model); {advice}"
        )
    if missing:
        raise UserError(
            f"{model}: the checkpoint lacks {len(missing)} weights of the encoder: "
            f"{', '.join(missing[:8])}"
        )
    tokenizer = load_tokenizer(model, vocab_size=config.vocab_size)
    if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None or not tokenizer.is_fast:
        raise UserError(f"{model}: its tokenizer has no [CLS] and [SEP], or knows no offsets")
    return discriminator, tokenizer, architecture


@dataclass(frozen=True)
class _Encoded:
    text: str
    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]
    words: list[int | None]


def _encode(tokenizer: Any, text: str, *, name: str) -> _Encoded:
    if not text.strip():
        raise UserError(f"{name} is empty")
    found = tokenizer(
        text,
        add_special_tokens=False,
        return_offsets_mapping=True,
        return_attention_mask=False,
        verbose=False,
    )
    if not found["input_ids"]:
        raise UserError(
            f"{name} has no token that the model's tokenizer knows: {text.strip()[:40]!r}"
        )
    offsets = [_trimmed(text, start, end) for start, end in found["offset_mapping"]]
    return _Encoded(
        text,
        found["input_ids"],
        tokenizer.convert_ids_to_tokens(found["input_ids"]),
        offsets,
        found.word_ids(),
    )


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Byte-level tokens include the space before them; the offsets become those of the visible
    part."""
    while start < end - 1 and text[start].isspace():
        start += 1
    return start, end


def windows_of(n: int, *, size: int) -> list[tuple[int, int]]:
    """Windows [start, stop) that cover all n tokens. Each is `size` long (or n, the only one of a
    short text) and shares a quarter with the next."""
    if n <= size:
        return [(0, n)]
    step = max(1, size - size // _OVERLAP)
    starts = [*range(0, n - size, step), n - size]
    return [(start, start + size) for start in starts]


def batches_of(
    windows: list[tuple[int, int, int]], batch_size: int | None
) -> Iterator[list[tuple[int, int, int]]]:
    """The windows, the shortest first. batch_size: at once; None: at most MOST_WINDOWS with their
    special tokens in MOST_SLOTS, or a single one."""
    windows = sorted(windows, key=lambda w: w[2] - w[1])
    lengths = [stop - start + 2 for _, start, stop in windows]
    at = 0
    while at < len(windows):
        fit = (n for n in range(MOST_WINDOWS, 1, -1) if n * lengths[at : at + n][-1] <= MOST_SLOTS)
        size = batch_size or next(fit, 1)
        yield windows[at : at + size]
        at += size


def _probabilities(
    discriminator: Any, architecture: Architecture, rows: list[list[int]], *, pad: int
) -> torch.Tensor:
    longest = max(map(len, rows))
    ids_BL = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
    mask_BL = torch.arange(longest) < torch.tensor([[len(row)] for row in rows])
    with torch.inference_mode():
        output = discriminator(input_ids=ids_BL, attention_mask=mask_BL.long())
        return architecture.binary_logits(output).sigmoid()


def _detection(e: _Encoded, probabilities: list[float]) -> Detection:
    tokens = tuple(
        Piece(t, start, end, p)
        for t, (start, end), p in zip(e.tokens, e.offsets, probabilities, strict=True)
    )
    words: list[Piece] = []
    last: object = object()
    for piece, word in zip(tokens, e.words, strict=True):
        if word is not None and word == last:
            start = words[-1].start
            end = max(words[-1].end, piece.end)
            words[-1] = Piece(
                e.text[start:end], start, end, max(words[-1].probability, piece.probability)
            )
        else:
            words.append(
                Piece(e.text[piece.start : piece.end], piece.start, piece.end, piece.probability)
            )
        last = word
    return Detection(e.text, tokens, tuple(words))
