"""Where words begin, as read from a tokenizer: needed to choose whole words for masking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ..errors import UserError
from ..files.tokenizers import read_tokenizer
from ..tokens import ALWAYS_BEGINS, ALWAYS_JOINS, WordEdges
from .tokenizer import load_tokenizer

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
    sign and the letters count as two words if they are two tokens.) Raises UserError for other
    tokenizers.
    """
    described = read_tokenizer(folder)
    pieces = load_tokenizer(folder).get_vocab()
    specials = {t["content"] for t in described.get("added_tokens", []) if t.get("special")}
    first_V = torch.full((max(pieces.values()) + 1,), ALWAYS_BEGINS, dtype=torch.int8)
    last_V = first_V.clone()
    parts = [p for p in (described.get("pre_tokenizer"), described.get("normalizer")) if p]
    kinds = {
        step["type"]: step
        for part in parts
        for step in [part, *part.get("pretokenizers", []), *part.get("normalizers", [])]
    }
    if described["model"].get("type") == "WordPiece":
        edges = _prefixed(described["model"].get("continuing_subword_prefix") or "##")
    elif "ByteLevel" in kinds:
        edges = _byte_level
    elif "Metaspace" in kinds:
        edges = _spaced(kinds["Metaspace"].get("replacement", "\u2581"))
    else:
        raise UserError(
            f"mask_unit word: the tokenizer in {folder} does not mark where words begin "
            "(WordPiece, byte-level and Metaspace do)"
        )
    for piece, number in pieces.items():
        if piece not in specials:
            first_V[number], last_V[number] = edges(piece)
    return WordEdges(first_V, last_V)


def _prefixed(prefix: str) -> Any:
    return lambda piece: (
        ALWAYS_JOINS if piece.startswith(prefix) and piece != prefix else ALWAYS_BEGINS,
        ALWAYS_BEGINS,
    )


def _spaced(mark: str) -> Any:
    return lambda piece: (ALWAYS_BEGINS if piece.startswith(mark) else ALWAYS_JOINS, ALWAYS_BEGINS)


def _byte_level(piece: str) -> tuple[int, int]:
    raw = bytes(_BYTES.get(c, 0x3F) for c in piece)
    text = raw.decode("utf-8", "replace")
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
