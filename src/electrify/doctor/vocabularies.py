"""Compares the tokenizer of a Hugging Face folder with its config.json: ids, padding, the longest
text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..oldfiles.schema import is_count
from ..oldfiles.tokenizers import VOCABULARY_FILES
from .files import is_regular, named, read_bytes
from .findings import Finding, error, note, warning
from .kinds import CONFIG
from .tokenizers import check_tokenizer, load, lower_cased, options_of, roles

NO_LIMIT = 1 << 20  # transformers says 1e30 where nobody set the length of the longest text


def tokenizer_findings(folder: Path, config: dict[str, Any]) -> Iterator[Finding]:
    there = [n for n in VOCABULARY_FILES if is_regular(folder / n)]
    if not there:
        yield warning(
            "no-tokenizer",
            "the folder has no tokenizer",
            "Copy the files of the one that it was trained with into it; without them nobody can "
            "use the model.",
        )
        return
    vocab_size = size_of(config) or 0
    options = options_of(folder)
    ids: dict[str, int] = {}
    if "tokenizer.json" in there and vocab_size:
        yield from check_tokenizer(folder, vocab_size=vocab_size)
        ids = tokenizer_ids(folder)
        if "vocab.txt" in there:
            yield from two_vocabularies(folder, ids)
    elif "vocab.txt" in there and vocab_size:
        ids = words_of(folder / "vocab.txt")
        yield from word_findings(ids, options, vocab_size)
    else:
        yield note(
            "not-examined",
            f"the tokenizer ({named(there)}) has no tokenizer.json, so its ids were not looked at",
        )
    pad = ids.get(roles(options, ids).get("pad", ""))
    said = config.get("pad_token_id")
    if pad is not None and isinstance(said, int) and pad != said:
        yield warning(
            "pad",
            f"pad_token_id is {said} in {CONFIG} and {pad} in the tokenizer",
            "One of the two is of another model; the embedding of the wrong one stays untrained.",
        )
    yield from longest(options, config.get("max_position_embeddings"))


def size_of(config: dict[str, Any]) -> int | None:
    """The size of the vocabulary that a config.json names; None for what is not one, such as the
    lists of some models."""
    size = config.get("vocab_size")
    return size if isinstance(size, int) and not isinstance(size, bool) else None


def words_of(path: Path) -> dict[str, int]:
    """The words of a vocab.txt, each with its line number as its id."""
    text = read_bytes(path).decode("utf-8", "replace").removesuffix("\n")
    lines = text.split("\n") if text else []
    return {word.removesuffix("\r"): i for i, word in enumerate(lines)}


def two_vocabularies(folder: Path, ids: dict[str, int]) -> Iterator[Finding]:
    """Compares vocab.txt with tokenizer.json (ids), if both exist: older programs read the first,
    newer ones the second."""
    words = words_of(folder / "vocab.txt")
    listed = {word: i for word, i in words.items() if word.strip()}
    odd = [
        f"{w!r} is {i} and {ids.get(w, 'missing')}" for w, i in listed.items() if ids.get(w) != i
    ]
    odd += [
        f"{w!r} is missing and {i}" for w, i in ids.items() if w not in listed and i < len(listed)
    ]
    if odd:
        fact = f"vocab.txt and tokenizer.json disagree about {len(odd):,} words: {named(odd)}"
        advice = (
            "One of the two is of another model, and which one is read depends on the program: "
            "remove the wrong one."
        )
        yield error("two-vocabularies", fact, advice)


def word_findings(
    ids: dict[str, int], options: dict[str, Any], vocab_size: int
) -> Iterator[Finding]:
    """Checks a vocab.txt that is the only tokenizer file: upper and lower case, special tokens,
    size."""
    yield from lower_cased(options, ids)
    known = roles(options, ids)
    wanted = ("pad", "unk", "cls", "sep", "mask")
    missing = [f"[{role.upper()}]" for role in wanted if role not in known]
    if missing:
        yield warning(
            "special-missing",
            f"vocab.txt has no {named(missing, at_most=5)}",
            "Masking and reading sequences need them: take a tokenizer made for BERT.",
        )
    if len(ids) > vocab_size:
        yield error(
            "tokenizer-too-large",
            f"vocab.txt has {len(ids):,} words and there are {vocab_size:,} embeddings",
            "Copy the tokenizer that belongs to these weights.",
        )


def tokenizer_ids(folder: Path) -> dict[str, int]:
    return load(folder / "tokenizer.json").get_vocab(with_added_tokens=True)


def longest(options: dict[str, Any], positions: Any) -> Iterator[Finding]:
    said = options.get("model_max_length")
    if not is_count(positions):
        return
    if not isinstance(said, int | float) or said > NO_LIMIT:
        fact = (
            f"tokenizer_config.json sets no model_max_length, and the model has {positions:,} "
            "positions"
        )
        yield note(
            "max-length",
            fact,
            (
                'Longer texts break it unless every caller truncates: set "model_max_length": '
                f"{positions}."
            ),
        )
    elif said > positions:
        fact = (
            f"model_max_length is {said:,} in tokenizer_config.json, and the model has "
            f"{positions:,} positions"
        )
        yield warning(
            "max-length",
            fact,
            f"Texts between the two break it with an index error: set it to {positions}.",
        )
