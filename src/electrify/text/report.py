"""What `prepare` reports about a text: advice from a look at its beginning, the share of [UNK], the
statistics of the corpus as a table, and advice that follows from them. Advice changes nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any
from unicodedata import category

import numpy as np

from ..errors import UserError
from ..progress import aligned, say
from .corpus import Manifest
from .documents import BLANK_LINE, documents
from .encode import unknown_in
from .options import TRAINED, PrepareConfig
from .sources import Source
from .streams import text_chunks

SELDOM = {
    "empty_rows": "rows without text",
    "encoding_errors": "not UTF-8 (documents)",
    "nul_characters": "NUL characters removed",
    "cuts": "cuts in very long documents",
    "without_tokens": "documents without a token",
}
"""Counts that are reported where they are not 0."""
COUNTED = (
    *("documents", "words", "characters", "visible_characters", "bytes", "tokens", "unk_tokens"),
    *("unk_characters", "unk_documents", "duplicates", "blank", *SELDOM),
)
"""The names of the counts in a manifest."""
LOOKED_AT = 1 << 18  # characters of a source; fewer of many sources
LOOKED_AT_IN_ALL = 1 << 22
LEAST = 500  # visible characters; less says nothing
LEAST_LINES = 50
# Shares of characters. In prose some 3 % of the letters are upper case, four fifths of them at the
# beginning of a word.
CAPITALS = 0.05
INNER_CAPITALS = 0.5
IDEOGRAPHS = 0.3
# The characters that BERT's normalisation sets apart, except rare ones.
_IDEOGRAPH = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")


# ------------------------------------------------------------------ before: a look at the text


def beginnings(sources: list[Source], options: PrepareConfig) -> list[str]:
    """The first characters of each file: of a text as it is, of rows their texts, a line each."""
    files = [s for s in sources if s.format not in ("hub", "pydocs")]
    limit = min(LOOKED_AT, LOOKED_AT_IN_ALL // max(len(files), 1) + 2 * LEAST)
    found = []
    for source in files:
        if source.format in ("txt", "md"):
            texts = text_chunks(source.path, errors="ignore")
        else:
            texts = (text + "\n" for text in documents(source, options, counts=Counter()))
        kept = ""
        with suppress(UserError):  # whatever reads all of it says what is wrong
            while len(kept) < limit and (text := next(texts, "")):
                kept += text[: limit - len(kept)]
            found.append(kept)
    return found


def look(texts: list[str], options: PrepareConfig, formats: set[str]) -> str:
    """What the text looks like, and which flags would suit it; empty if the options do. formats:
    those of its files."""
    text = "\n".join(texts)
    words = text.split()
    visible = sum(map(len, words))
    if not options.trains_tokenizer or visible < LEAST:
        return ""
    found: dict[str, str] = {}  # what differs from prose, by the flag for it
    lines = [line for line in text.split("\n") if line.strip()]
    blank = any(BLANK_LINE.search(part.strip()) for part in texts)
    by_blanks = formats == {"txt"} and options.document_boundary == "auto"
    if by_blanks and len(lines) >= LEAST_LINES and not blank:
        found["--document-boundary line"] = "a line were a document (it has no blank line)"
    if options.lowercase and case_has_meaning(text):
        found["--no-lowercase"] = "upper case carried a meaning"
    endless = sum(len(word) for word in words if len(word) > 100 and _of_letters(word))
    if options.pre_tokenizer == "auto" and endless > visible / 2:
        found["--tokenizer bpe --pre-tokenizer none"] = "it had no spaces between words"
    elif options.tokenizer == "wordpiece" and len(_IDEOGRAPH.findall(text)) > IDEOGRAPHS * visible:
        why = "it had no spaces between words, and wordpiece took each of its characters by itself"
        found["--tokenizer unigram"] = why
    if not found:
        return ""
    why, flags = " and ".join(found.values()), " ".join(found)
    return f"the text looks as if {why}: consider {flags} (docs/other_text.md)"


def _of_letters(word: str) -> bool:
    """Whether a word has no signs. Thai and other scripts write vowels as marks between letters."""
    return all(c.isalnum() or category(c)[0] == "M" for c in word)


def case_has_meaning(text: str) -> bool:
    """Whether many letters are upper case, and most of these are inside words."""
    letters = sum(map(str.isalpha, text))
    capitals = sum(map(str.isupper, text))
    inner = len(re.findall(r"(?<=[^\W\d_])[A-Z]", text))
    return capitals > CAPITALS * letters and inner > INNER_CAPITALS * capitals


# ------------------------------------------------------------------ what a tokenizer does not know

# Nothing can be learnt from [UNK], so a large share is a mistake in the choice of the tokenizer.
# Shares of the characters that are not white space.
WARNING = 0.01
REFUSAL = 0.1
SAMPLE_TEXTS = 1_000


def share_of(counts: Mapping[str, float]) -> float:
    """The share of the characters that became [UNK], white space apart."""
    return counts["unk_characters"] / max(counts["visible_characters"], 1)


def must_know(counts: Mapping[str, float], options: PrepareConfig, *, where: str) -> None:
    """Warns if more than a hundredth of the characters became [UNK]; raises UserError if it is more
    than a tenth, unless options.allow_unk."""
    share = share_of(counts)
    if share <= WARNING:
        return
    sentence = (
        f"{share:.1%} of the characters of {where} are unknown to the tokenizer ([UNK]), half or "
        f"more of {int(counts['unk_documents']):,} of {int(counts['documents']):,} documents, and "
        "nothing is learnt from them: train a tokenizer on this very text, with a larger "
        "--vocab-size or a lower --min-frequency, or take --tokenizer character, or --tokenizer "
        "byte, which has no [UNK]"
    )
    if share > REFUSAL and not options.allow_unk:
        raise UserError(f"{sentence}; --allow-unk accepts it as it is")
    say(f"WARNING: {sentence}")


def note_on_unknown(model: str, tokenizer: Any, texts: Iterable[str]) -> str:
    """A warning if so many characters of texts that a model is to read are unknown to its
    tokenizer (of transformers); else empty. Reads the first SAMPLE_TEXTS."""
    unknown = tokenizer.unk_token_id
    if unknown is None or not tokenizer.is_fast:
        return ""
    original = getattr(tokenizer, "original", tokenizer)  # of `reading_text`
    some, content = list(islice(texts, SAMPLE_TEXTS)), original.backend_tokenizer.to_str()
    share = share_of(unknown_in(content, some, unk=unknown))
    if share <= WARNING:
        return ""
    return (
        f"warning: {share:.1%} of the characters are unknown to the tokenizer of {model} ([UNK]). "
        "Use a model made for this language or alphabet"
    )


# ------------------------------------------------------------------ after: the corpus

# An entry needs some dozens of occurrences before its embedding is more than its initial value.
RARE = 20
NONE_HELD_OUT = (
    "no document is held out for validation. Prepare with a larger --valid-fraction into another "
    "folder, or add documents"
)


def advice(manifest: Manifest, unigram_V: np.ndarray) -> Iterator[str]:
    """What `prepare` says after its work, a line each. unigram_V: how often each id occurs in the
    train split."""
    if manifest.options["valid_fraction"] and not manifest.documents("valid"):
        yield NONE_HELD_OUT
    kind, v = manifest.options["tokenizer"], manifest.vocab_size
    own = np.delete(unigram_V, manifest.special_ids.never_chosen)  # they have no occurrences
    unused, rare = int((own == 0).sum()), int((own < RARE).sum())
    # Every byte has an entry, whether the text has it or not.
    if kind not in TRAINED or kind == "byte" or rare <= v / 2:
        return
    # A smaller one has hardly more than the letters; bpe has 256 bytes before its first piece.
    size = max(512 if kind == "bpe" else 256, 1 << max(0, (v - rare).bit_length() - 1))
    cure = f"Consider --vocab-size {size}, in another folder" if size < v else "Add text"
    yield (
        f"{v:,} entries of the vocabulary are many for this text: {unused:,} ({unused / v:.1%}) "
        f"never occur and {rare:,} ({rare / v:.1%}) occur fewer than {RARE} times, so their "
        f"embeddings hardly train. {cure}"
    )


def report(manifest: Manifest) -> str:
    """The statistics of the corpus, as a table in plain text."""
    c, options = manifest.counts, manifest.options
    rows = [
        ("documents", f"{c['documents']:,}"),
        ("  of them validation", f"{manifest.documents('valid'):,}"),
        ("words", f"{c['words']:,}"),
        ("tokens", f"{c['tokens']:,}"),
        ("tokens per word", f"{c['tokens'] / max(c['words'], 1):.3f}"),
        ("[UNK] rate", f"{c['unk_tokens'] / max(c['tokens'], 1):.4%}"),
        ("  of the characters", f"{share_of(c):.4%}"),
        ("  documents at least half", f"{c['unk_documents']:,}"),
        ("duplicates dropped", f"{c['duplicates']:,}"),
        ("vocabulary", f"{manifest.vocab_size:,}"),
    ]
    if options["tokenizer"] in TRAINED:
        case = "lower" if options["lowercase"] else "kept"
        accents = "removed" if options["strip_accents"] else "kept"
        rows.append(("case", f"{case}, accents {accents}"))
    rows.append(("text", f"{c['bytes'] / 1e6:,.1f} MB"))
    rows += [(title, f"{c[name]:,}") for name, title in SELDOM.items() if c[name]]
    return "\n".join(aligned([list(row) for row in rows], names=2))
