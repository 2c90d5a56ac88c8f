"""Where words begin, as read from a tokenizer: needed to choose whole words for masking."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..errors import UserError
from ..tokens import ALWAYS_BEGINS, ALWAYS_JOINS, WordEdges
from .splitting import ONE_SPACE, SPACED_WORDS, by_length, patterns, steps
from .tokenizer import load_tokenizer
from .tokenizer_files import read_tokenizer

# The classes of characters that byte-level tokenizers separate.
LETTER = 1
DIGIT = 2
SIGN = 3


def word_edges(folder: Path) -> WordEdges:
    """How the tokens of the tokenizer in `folder` join into words.

    WordPiece: a token with the continuation prefix joins the token before it. Metaspace
    (SentencePiece): a token without the mark of a space joins. Byte-level: a token without a space
    joins a token whose last character is of the same class as its own first one (letter, digit or
    sign) or is a space that stands alone. (In a contraction, which the splitting keeps whole, the
    sign and the letters count as two words if they are two tokens.) What is split at white space
    only: everything up to the next white space is a word. Raises UserError for other tokenizers,
    those of text without words among them.
    """
    described = read_tokenizer(folder)
    pieces = load_tokenizer(folder).get_vocab()
    specials = {t["content"] for t in described.get("added_tokens", []) if t.get("special")}
    first_V = torch.full((max(pieces.values()) + 1,), ALWAYS_BEGINS, dtype=torch.int8)
    last_V = first_V.clone()
    edges = _edges(described)
    if edges is None:
        raise UserError(
            f"mask_unit word: the tokenizer in {folder} does not mark where words begin "
            "(WordPiece, byte-level and Metaspace do, and character with --pre-tokenizer "
            "whitespace); choose mask_unit token"
        )
    for piece, number in pieces.items():
        if piece not in specials:
            first_V[number], last_V[number] = edges(piece)
    return WordEdges(first_V, last_V)


def _edges(described: dict[str, Any]) -> Callable[[str], tuple[int, int]] | None:
    """Piece -> the classes of its first and of its last character, for the content of a
    tokenizer.json; None for a tokenizer that does not mark words."""
    model = described["model"]
    split = described.get("pre_tokenizer")
    parts = [*steps(split), *steps(described.get("normalizer"))]
    kinds = {step["type"]: step for step in parts}
    if model.get("type") == "WordPiece" and model.get("continuing_subword_prefix") != "":
        return _prefixed(model.get("continuing_subword_prefix") or "##")
    if by_length(split):
        return None
    if "ByteLevel" in kinds:
        return _spaced_bytes if SPACED_WORDS in patterns(split) else _byte_level
    if "Metaspace" in kinds:
        return _spaced(kinds["Metaspace"].get("replacement", "\u2581"))
    if model.get("type") == "BPE" and patterns(split) == {ONE_SPACE}:
        return _between_spaces
    return None


def _prefixed(prefix: str) -> Any:
    return lambda piece: (
        ALWAYS_JOINS if piece.startswith(prefix) and piece != prefix else ALWAYS_BEGINS,
        ALWAYS_BEGINS,
    )


def _spaced(mark: str) -> Any:
    return lambda piece: (ALWAYS_BEGINS if piece.startswith(mark) else ALWAYS_JOINS, ALWAYS_BEGINS)


def _text_of(piece: str) -> str:
    return bytes(_BYTES.get(c, 0x3F) for c in piece).decode("utf-8", "replace")


def _spaced_bytes(piece: str) -> tuple[int, int]:
    text = _text_of(piece)
    if text == " ":
        return ALWAYS_BEGINS, ALWAYS_JOINS
    return _between_spaces(text)


def _between_spaces(text: str) -> tuple[int, int]:
    """Whatever is not white space joins whatever is not white space."""
    first = ALWAYS_BEGINS if text[:1].isspace() else LETTER
    return first, SIGN if text[-1:].isspace() else LETTER


def _byte_level(piece: str) -> tuple[int, int]:
    text = _text_of(piece)
    first = ALWAYS_BEGINS if text[:1].isspace() else _kind(text[:1])
    return first, ALWAYS_JOINS if text == " " else _kind(text[-1:])


def _kind(character: str) -> int:
    # Part of a character: in most texts, such split characters are letters.
    if character == "\ufffd" or character.isalpha():
        return LETTER
    return DIGIT if character.isnumeric() else SIGN


def _byte_alphabet() -> dict[str, int]:
    """The characters with which byte-level tokenizers write the 256 bytes: printable ones stand for
    themselves, the others are numbered from U+0100 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


_BYTES = _byte_alphabet()
