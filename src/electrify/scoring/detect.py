"""Detection: gives each token of a text its probability of being replaced, in one forward pass of a
discriminator, and shows it as coloured text, as lines, or as JSON.

Shape suffixes: B windows, L tokens of a window.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any, TextIO

import numpy as np

from ..console import harmless
from ..errors import UserError, need
from ..exporting.places import mark_of
from ..onnx_models import is_onnx, padded
from ..progress import say
from ..tables import class_at
from ..text.report import note_on_unknown
from ..text.tokenizer import tokenised
from .options import DetectConfig, given_texts

# An amount of text that takes the smallest models seconds; measuring the fastest number of threads
# takes one second.
MANY_TOKENS = 20_000
# The most of a forward pass, unless the user says how many windows: memory grows with its slots.
MOST_WINDOWS = 16
MOST_SLOTS = 8192
# Windows overlap by a quarter: a token at the edge of one window, where it lacks neighbours on one
# side, is judged in the window where it has both.
OVERLAP = 4
MOST_NAMED = 20

Array = np.ndarray[Any, Any]
Window = tuple[int, int, int]  # the number of a text, and the tokens of it from start to stop


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
    words: tuple[Piece, ...] = ()


@dataclass(frozen=True)
class Detector:
    """A discriminator that is loaded."""

    model: str
    network: Any
    tokenizer: Any
    architecture: Any = None
    """The Architecture that reads the logits of the network; None of a graph."""

    @property
    def positions(self) -> int:
        """The most tokens of a window, special ones included."""
        return self.architecture.shape_of(self.network.config).max_position_embeddings

    def probabilities(self, ids_BL: Array, mask_BL: Array) -> Array:
        """Of each token of padded rows that it was replaced, [B, L]."""
        import torch

        with torch.inference_mode():
            output = self.network(
                input_ids=torch.from_numpy(ids_BL), attention_mask=torch.from_numpy(mask_BL)
            )
            return self.architecture.binary_logits(output).sigmoid().numpy()

    def computing(self, threads: str, tokens: int, most: int) -> AbstractContextManager[Any]:
        """The context in which it computes. threads: see `DetectConfig`; tokens: of all windows;
        most: of a forward pass."""
        import torch

        from ..train.machine import Threads, choose, computing_with

        chosen = Threads(torch.get_num_threads(), "own")
        if threads != "auto" or tokens >= MANY_TOKENS:
            how: dict[str, Any] = {"device": torch.device("cpu"), "bf16": False}
            chosen = choose(threads, width=self.network.config.hidden_size, tokens=most, **how)
            if chosen.text():
                say(chosen.text())
        return computing_with(chosen)


def detect(
    detector: Detector,
    texts: Iterable[str],
    *,
    max_seq_length: int | None = None,
    batch_size: int | None = None,
    threads: str = "auto",
) -> list[Detection]:
    """The probability of being replaced of every token of every text.

    Texts longer than max_seq_length (None: the model's maximum) are read in windows that overlap by
    a quarter. batch_size: windows of a forward pass; None: up to 16, and fewer long ones. threads:
    a number, or auto. Raises UserError if a text has no tokens.
    """
    model = detector.model
    options = DetectConfig(
        model=model, max_seq_length=max_seq_length, batch_size=batch_size, threads=threads
    )
    texts = given_texts(texts)
    tokenizer, positions = detector.tokenizer, detector.positions
    length = max_seq_length or positions
    need(
        8 <= length <= positions,
        f"max_seq_length must be 8 to {positions} (the positions of {model}), not {length}",
    )
    encoded = [
        encode(tokenizer, text, f"text {i}" if len(texts) > 1 else "the text")
        for i, text in enumerate(texts, 1)
    ]
    if note := note_on_unknown(model, tokenizer, texts):
        say(note)
    windows = [
        (i, start, stop)
        for i, found in enumerate(encoded)
        for start, stop in windows_of(len(found["input_ids"]), size=length - 2)
    ]
    tokens = sum(stop - start for _, start, stop in windows)
    most = batch_size * length if batch_size else min(MOST_WINDOWS * length, MOST_SLOTS)
    with detector.computing(options.threads, tokens, most):
        ids = [found["input_ids"] for found in encoded]
        probabilities = read_windows(detector, ids, batches_of(windows, batch_size))
    finite = all(np.isfinite(p).all() for p in probabilities)
    need(finite, f"{model}: its probabilities are not numbers; the model is damaged or diverged")
    names = tokenizer.original.convert_ids_to_tokens
    return [
        joined(text, found, names(found["input_ids"]), p.tolist())
        for text, found, p in zip(texts, encoded, probabilities, strict=True)
    ]


def load_detector(
    model: str, architecture: str | None = None, *, threads: str = "auto"
) -> Detector:
    """The discriminator of a folder or Hub id. architecture: one's own, `module:Class`, which is
    imported. threads: of a folder with model.onnx.

    Raises UserError if the replaced-token head is missing; the library would fill it with random
    numbers.
    """
    if is_onnx(model):
        from .detect_onnx import OnnxDetector

        return OnnxDetector.of(model, threads)
    from ..architectures import exported_as
    from ..exporting.loading import load_config, load_tokenizer, load_weights

    if architecture:
        class_at(architecture)  # now `exported_as` knows it
    config, mark = load_config(model), mark_of(model)
    advice = "detection needs a discriminator: use the discriminator/ folder of a run"
    need(
        mark.get("objective") != "mlm",
        f"{model} is a masked language model (objective mlm). Detection needs a run of another "
        "recipe, such as electra or corrective",
    )
    known = exported_as(config.model_type)
    if known is None:
        own = mark.get("architecture")
        raise UserError(
            f"{model}: a {config.model_type!r} model has no replaced-token head; {advice}"
            if own is None
            else f"{model} has an architecture of your own. Give --architecture {own}"
        )
    need(
        mark.get("logits") != "energy",
        f"{model}: its logits are energies (objective {mark.get('objective')}), not log-odds of a "
        f"replacement; {advice} with objective rtd",
    )
    known = known.for_classes(config.architectures or ())
    table = known.table(known.shape_of(config), "binary")
    discriminator, missing = load_weights(known.network_class(table.name), model, config)
    lacking = {name for row in table.head for name in row.theirs} & set(missing)
    need(
        not lacking and known.has_head(config, "binary"),
        f"{model}: the checkpoint has no replaced-token head (a generator, or a fine-tuned model)",
        advice,
    )
    need(
        not missing,
        f"{model}: the checkpoint lacks {len(missing)} weights of the encoder: "
        f"{', '.join(missing[:8])}",
    )
    tokenizer = load_tokenizer(model, vocab_size=config.vocab_size)
    framed = tokenizer.cls_token_id is not None and tokenizer.sep_token_id is not None
    need(
        framed and tokenizer.is_fast,
        f"{model}: its tokenizer has no [CLS] and [SEP], or knows no offsets",
    )
    return Detector(model, discriminator, tokenizer, known)


def encode(tokenizer: Any, text: str, name: str) -> Any:
    """The ids, offsets and words of a text. Raises UserError if it has no tokens."""
    need(bool(text.strip()), f"{name} is empty")
    found = tokenised(tokenizer, text)
    shown = repr(text.strip()[:40])
    need(
        bool(found["input_ids"]),
        f"{name} has no token that the model's tokenizer knows: {shown}",
    )
    return found


# ------------------------------------------------------------------ windows


def windows_of(n: int, *, size: int) -> list[tuple[int, int]]:
    """Windows [start, stop) that cover all n tokens. Each is `size` long (or n, the only one of a
    short text) and shares a quarter with the next."""
    if n <= size:
        return [(0, n)]
    step = max(1, size - size // OVERLAP)
    starts = [*range(0, n - size, step), n - size]
    return [(start, start + size) for start in starts]


def batches_of(windows: list[Window], batch_size: int | None) -> Iterator[list[Window]]:
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


def read_windows(
    detector: Detector, ids: list[list[int]], batches: Iterable[list[Window]]
) -> list[Array]:
    """The probability of each token of each text, from the window that surrounds it best."""
    tokenizer = detector.tokenizer
    probabilities = [np.zeros(len(of_text), np.float32) for of_text in ids]
    depths = [np.full(len(of_text), -1) for of_text in ids]
    for batch in batches:
        rows = [
            [tokenizer.cls_token_id, *ids[i][start:stop], tokenizer.sep_token_id]
            for i, start, stop in batch
        ]
        p_BL = detector.probabilities(*padded(rows, tokenizer.pad_token_id))
        for (i, start, stop), p_L in zip(batch, p_BL, strict=True):
            # A token sees more of its surroundings the farther it is from the edges of its window.
            place = np.arange(stop - start)
            inside = np.minimum(place, place[::-1])
            better = inside > depths[i][start:stop]
            probabilities[i][start:stop][better] = p_L[1 : 1 + stop - start][better]
            depths[i][start:stop][better] = inside[better]
    return probabilities


def joined(text: str, found: Any, names: list[str], probabilities: list[float]) -> Detection:
    """The tokens with their probabilities, and the words that they make up."""
    tokens: list[Piece] = []
    words: list[Piece] = []
    last: object = object()
    for name, (start, end), word, p in zip(
        names, found["offset_mapping"], found.word_ids(), probabilities, strict=True
    ):
        # Byte-level tokens include the space before them.
        while start < end - 1 and text[start].isspace():
            start += 1
        tokens.append(Piece(name, start, end, p))
        if word is not None and word == last:
            before = words.pop()
            start, end, p = before.start, max(before.end, end), max(before.probability, p)
        words.append(Piece(text[start:end], start, end, p))
        last = word
    return Detection(text, tuple(tokens), tuple(words))


# ------------------------------------------------------------------ output


def show_detection(
    detection: Detection, out: TextIO, *, threshold: float, unit: str, as_json: bool
) -> None:
    """Coloured text on a terminal (not with NO_COLOR), otherwise a table of tab-separated
    columns: the word or token, its probability of being replaced, and whether that reaches the
    threshold."""
    pieces = detection.words if unit == "word" else detection.tokens
    if as_json:
        marked = [asdict(word) for word in detection.words if word.probability >= threshold]
        # Escaped throughout, so that no character of the text can control a terminal.
        said = asdict(detection) | {"threshold": threshold, "marked": marked}
        out.write(json.dumps(said) + "\n")
    elif out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        show_coloured(detection.text, pieces, out, threshold=threshold)
    else:
        out.write(f"{unit}\tprobability\treplaced\n")
        for piece in pieces:
            replaced = "yes" if piece.probability >= threshold else "no"
            out.write(f"{harmless(piece.token)}\t{piece.probability:.4f}\t{replaced}\n")
    out.flush()


def show_coloured(text: str, pieces: tuple[Piece, ...], out: TextIO, *, threshold: float) -> None:
    """The text on backgrounds from none at 0 to red at 1, bold and underlined from the threshold,
    and a line that names these pieces."""
    from rich.console import Console
    from rich.text import Text

    shown = Text()
    at = 0
    for piece in sorted(pieces, key=lambda p: p.start):
        if piece.end <= at:
            continue
        shown.append(harmless(text[at : max(at, piece.start)], keep="\n\t"))
        strong = piece.probability >= threshold
        fade = round(255 * (1 - piece.probability))
        style = "bold underline " * strong + f"black on rgb(255,{fade},{fade})"
        plain = piece.probability < 0.05 and not strong
        inside = harmless(text[max(at, piece.start) : piece.end], keep="\n\t")
        shown.append(inside, style="" if plain else style)
        at = piece.end
    shown.append(harmless(text[at:].rstrip(), keep="\n\t"))
    marked = [p for p in pieces if p.probability >= threshold]
    legend = ", ".join(f"{harmless(p.token)} {p.probability:.2f}" for p in marked[:MOST_NAMED])
    if len(marked) > MOST_NAMED:
        legend += f" and {len(marked) - MOST_NAMED} more"
    said = f"replaced with probability of at least {threshold:g}: {legend or 'nothing'}"
    console = Console(file=out, highlight=False, markup=False, emoji=False)
    console.print(shown, soft_wrap=True)
    console.print(Text(said, style="dim"), soft_wrap=True)
