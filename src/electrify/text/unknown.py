"""What a tokenizer does not know ([UNK]) in a corpus: nothing can be learnt from it, so a large
share is a mistake in the choice of the tokenizer, and not in the text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from ..errors import UserError
from ..progress import say
from .counts import UNK_CHARACTERS, UNK_DOCUMENTS, VISIBLE, counted
from .encode import Encoder
from .options import PrepareConfig

# Shares of the characters that are not white space.
WARNING = 0.01
REFUSAL = 0.1
SAMPLE = 1_000_000  # characters
SAMPLE_TEXTS = 1_000


def share_of(counts: Mapping[str, float]) -> float:
    """The share of the characters that became [UNK], white space apart."""
    return counts[UNK_CHARACTERS] / max(counts[VISIBLE], 1)


def must_know_sample(tokenizer: Any, texts: list[str], options: PrepareConfig, *, unk: int) -> None:
    """Raises UserError if a tokenizer does not know the text that it was trained on, before the
    rest is tokenised. texts: the sample in random order."""
    kept: list[str] = []
    size = 0
    for text in texts:
        if size > SAMPLE:
            break
        kept.append(text[:SAMPLE])
        size += len(text)
    encode = Encoder(tokenizer.to_str(), unk=unk)
    counts = {UNK_CHARACTERS: 0, UNK_DOCUMENTS: 0} | counted(kept, encode(kept)[2])
    _must_know(counts, options, where="a sample of the text")


def must_know(counts: Mapping[str, float], options: PrepareConfig, *, where: str) -> None:
    """Warns if more than a hundredth of the characters became [UNK]; raises UserError if it is more
    than a tenth, unless options.allow_unk."""
    share = _must_know(counts, options, where=where)
    if share > WARNING:
        say(f"WARNING: {_fact(counts, share, where)}: {_cure(options)}")


def _must_know(counts: Mapping[str, float], options: PrepareConfig, *, where: str) -> float:
    share = share_of({UNK_CHARACTERS: 0, **counts})
    if share > REFUSAL and not options.allow_unk:
        raise UserError(
            f"{_fact(counts, share, where)}: {_cure(options)}; --allow-unk accepts it as it is"
        )
    return share


def _fact(counts: Mapping[str, float], share: float, where: str) -> str:
    lost = int(counts.get(UNK_DOCUMENTS, 0))
    return (
        f"{share:.1%} of the characters of {where} are unknown to the tokenizer ([UNK]), half or "
        f"more of {lost:,} of {int(counts['documents']):,} documents, and nothing is learnt from "
        "them"
    )


def _cure(options: PrepareConfig) -> str:
    if not options.trains_tokenizer:
        return (
            "train a tokenizer on this very text (leave --tokenizer out), or take one that was "
            "made for it"
        )
    if options.tokenizer == "character":
        return "give a larger --vocab-size or a lower --min-frequency, or take --tokenizer byte"
    return (
        "give a larger --vocab-size or a lower --min-frequency, or take --tokenizer character, or "
        "--tokenizer byte, which has no [UNK]"
    )


def note_on_unknown(model: str, tokenizer: Any, texts: Iterable[str]) -> str:
    """A warning if so many characters of texts that a model is to read are unknown to its
    tokenizer (of transformers); else empty. Reads the first SAMPLE_TEXTS."""
    unknown = tokenizer.unk_token_id
    some = list(islice(texts, SAMPLE_TEXTS))
    if unknown is None or not tokenizer.is_fast or not some:
        return ""
    found = tokenizer(some, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    lost = visible = 0
    for text, ids, offsets in zip(some, found["input_ids"], found["offset_mapping"], strict=True):
        visible += len("".join(text.split()))
        lost += sum(b - a for i, (a, b) in zip(ids, offsets, strict=True) if i == unknown)
    share = lost / max(1, visible)
    if share <= WARNING:
        return ""
    return (
        f"warning: {share:.1%} of the characters are unknown to the tokenizer of {model} ([UNK]). "
        "Use a model made for this language or alphabet"
    )
