"""Detection: gives each token of a text its probability of being replaced, in one forward pass of a
discriminator, and shows it as a table or as JSON.

Shape suffixes: B windows, L tokens of a window.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from ..errors import need
from ..exporting.places import metadata_of
from ..names import Named
from ..onnx_models import Array, OnnxModel, is_onnx, padded
from ..onnx_models import probabilities as probabilities_of
from ..progress import harmless, say
from ..text.report import note_on_unknown
from ..text.tokenizer import tokenised
from ..values import given_texts
from .options import DetectConfig
from .windows import Row, of_tokens, places

if TYPE_CHECKING:
    from .pll import Scorer

# An amount of text that takes the smallest models seconds; measuring the fastest number of threads
# takes one second.
MANY_TOKENS = 20_000
# The most of a forward pass, unless the user says how many windows: memory grows with its slots.
MOST_WINDOWS = 16
MOST_SLOTS = 8192
REPLACED = {"logits": "replaced"}
"""In the metadata of a graph that detects."""


@dataclass(frozen=True)
class Piece(Named):
    """A token or a word of a text: it is text[start:end] (offsets in characters)."""

    token: str
    start: int
    end: int
    probability: float
    threshold: float = field(default=0.5, repr=False)
    """Of `replaced`."""

    def __iter__(self) -> Iterator[Any]:
        """For `word, probability = ...`."""
        return iter((self.token, self.probability))

    def __getitem__(self, name: str) -> Any:
        """`piece["word"]`, as of a pipeline of transformers."""
        return getattr(self, name)

    @property
    def text(self) -> str:
        """The same as `token`."""
        return self.token

    @property
    def replaced(self) -> bool:
        """Whether its probability reaches the threshold."""
        return self.probability >= self.threshold


@dataclass(frozen=True)
class Detection(Named):
    """A text with its tokens (word pieces as the model sees them) and its words (a word's
    probability is the highest of its tokens)."""

    text: str
    tokens: tuple[Piece, ...]
    words: tuple[Piece, ...] = ()

    def __iter__(self) -> Iterator[Piece]:
        return iter(self.words)

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        found = asdict(self)
        for piece in (*found["tokens"], *found["words"]):
            del piece["threshold"]
        return found

    @property
    def probabilities(self) -> list[float]:
        """Of each word, that it was replaced."""
        return [word.probability for word in self.words]


class OnnxDetector(OnnxModel):
    """A graph with a head that detects, as pll.Scorer."""

    def probabilities(self, rows: Sequence[list[int]]) -> Array:
        """Of each token that it was replaced, [B, L]."""
        (logits,) = self.outputs(*padded(rows, self.tokenizer.pad_token_id))
        return probabilities_of(logits, {}, REPLACED)

    def computing(self, threads: str, *, tokens: int) -> AbstractContextManager[None]:
        """onnxruntime has the threads that it was given when the graph was loaded."""
        return nullcontext()


def detect(
    detector: Scorer | OnnxDetector,
    texts: Iterable[str],
    *,
    max_seq_length: int | None = None,
    batch_size: int | None = None,
    threads: str = "auto",
    threshold: float = 0.5,
) -> list[Detection]:
    """The probability of being replaced of every token of every text.

    Texts longer than max_seq_length (None: the model's maximum) are read in windows that overlap by
    a quarter. batch_size: windows of a forward pass; None: up to 16, and fewer long ones. threads:
    a number, or auto. Raises UserError if a text has no tokens.
    """
    model, positions, texts = detector.name, detector.positions, given_texts(texts)
    given = {"max_seq_length": max_seq_length, "batch_size": batch_size, "threads": threads}
    DetectConfig(model=model, threshold=threshold, **given)  # says what is wrong with them
    length = max_seq_length or positions
    need(
        8 <= length <= positions,
        f"max_seq_length must be 8 to {positions} (the positions of {model}), not {length}",
    )
    encoded = [tokenised(detector.tokenizer, text) for text in texts]
    ids = [found["input_ids"] for found in encoded]
    for text, own in zip(texts, ids, strict=True):
        need(
            bool(text.strip() and own),
            f"there is no token that the model's tokenizer knows in the text {text.strip()[:40]!r}",
        )
    if note := note_on_unknown(model, detector.tokenizer, texts):
        say(note)
    most, slots = batch_size or MOST_WINDOWS, sys.maxsize if batch_size else MOST_SLOTS

    def numbers(batch: list[Row]) -> Array:
        return detector.probabilities([row.ids for row in batch])[places(batch)]

    few = threads == "auto" and sum(map(len, ids)) < MANY_TOKENS
    tokens = min(most * length, slots)
    with nullcontext() if few else detector.computing(threads, tokens=tokens):
        found = of_tokens(detector, ids, numbers, length=length, most=most, slots=slots)
    names = detector.tokenizer.convert_ids_to_tokens
    return [
        joined(text, its, names(its["input_ids"]), p.tolist(), threshold)
        for text, its, p in zip(texts, encoded, found, strict=True)
    ]


def load_detector(
    model: str, architecture: str | None = None, *, threads: str = "auto"
) -> Scorer | OnnxDetector:
    """The discriminator of a folder or Hub id. architecture: one's own, `module:Class`, which is
    imported. threads: of a folder with model.onnx.

    Raises UserError if the replaced-token head is missing.
    """
    if is_onnx(model):
        detects = REPLACED.items() <= metadata_of(model).items()
        need(detects, f"{model}: the graph has no replaced-token head. Export a discriminator")
        return OnnxDetector.of(model, threads)
    from .pll import load_scorer

    detector = load_scorer(model, architecture=architecture, detects=True)
    energies = detector.kind == "electric"
    what = "its logits are energies (objective electric)" * energies or "a masked language model"
    need(
        detector.kind == "rtd",
        f"{model}: {what}. Detection needs a discriminator, such as the discriminator/ folder of a "
        "run of electra or corrective",
    )
    need(detector.tokenizer.is_fast, f"{model}: its tokenizer knows no offsets")
    return detector


def joined(
    text: str, found: Any, names: list[str], probabilities: list[float], threshold: float
) -> Detection:
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
        tokens.append(Piece(name, start, end, p, threshold))
        if word is not None and word == last:
            before = words.pop()
            start, end, p = before.start, max(before.end, end), max(before.probability, p)
        words.append(Piece(text[start:end], start, end, p, threshold))
        last = word
    return Detection(text, tuple(tokens), tuple(words))


# ------------------------------------------------------------------ output


def show_detection(found: Detection, out: TextIO, *, unit: str, as_json: bool) -> None:
    """A table of tab-separated columns: the word or token, its probability of being replaced, and
    whether that reaches the threshold; or JSON."""
    pieces = found.words if unit == "word" else found.tokens
    threshold = pieces[0].threshold
    if as_json:
        plain = found.plain()
        marked = [word for word in plain["words"] if word["probability"] >= threshold]
        # Escaped throughout, so that no character of the text can control a terminal.
        out.write(json.dumps(plain | {"threshold": threshold, "marked": marked}) + "\n")
        return
    out.write(f"{unit}\tprobability\treplaced\n")
    for piece in pieces:
        replaced = "yes" if piece.replaced else "no"
        out.write(f"{harmless(piece.token)}\t{piece.probability:.4f}\t{replaced}\n")
    highest = max(pieces, key=lambda piece: piece.probability)
    if not highest.replaced:
        named = f"{harmless(highest.token)!r} ({highest.probability:.2f})"
        say(f"no {unit} reaches --threshold {threshold:g}: the highest is {named}")
