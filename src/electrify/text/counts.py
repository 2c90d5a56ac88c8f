"""What is counted in documents, and in what their tokenizer does not know."""

from __future__ import annotations

import numpy as np

# Characters in words that became [UNK], and documents that consist of them by half or more.
UNK_CHARACTERS = "unk_characters"
UNK_DOCUMENTS = "unk_documents"
# Characters that are not white space.
VISIBLE = "visible_characters"


def counted(texts: list[str], unknown: np.ndarray) -> dict[str, int]:
    """The counts of the texts themselves. unknown [texts]: characters that became [UNK]; their
    counts are left out if they are 0."""
    words = [text.split() for text in texts]
    seen = np.array([sum(map(len, found)) for found in words], np.int64)
    counts = {
        "documents": len(texts),
        "words": sum(map(len, words)),
        "characters": sum(map(len, texts)),
        VISIBLE: int(seen.sum()),
    }
    if unknown.any():
        counts[UNK_CHARACTERS] = int(unknown.sum())
        counts[UNK_DOCUMENTS] = int((2 * unknown >= np.maximum(seen, 1)).sum())
    return counts


def visible(text: str) -> int:
    """The number of characters that are not white space."""
    return sum(map(len, text.split()))
