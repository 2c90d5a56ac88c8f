"""Checks tokenizer folders: special tokens and their ids, duplicate ids, upper- or lower-case
letters that become [UNK]. The tokenizers library reads them; no code from a folder is run."""

from __future__ import annotations

import json
import string
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..oldfiles.reading import FileError, sha256_of
from ..oldfiles.tokenizers import MAX_FILE_BYTES, TOKENIZER_FILE, must_be_plain
from ..special import SpecialIds
from .files import named, read_bytes, read_json
from .findings import DamageError, Finding, error, note, ok, warning

# The names of special tokens in RoBERTa's family.
ROLES = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
COPY = "Copy the tokenizer that the corpus was prepared with, or prepare the corpus again."


def check_tokenizer(
    folder: Path, *, vocab_size: int, special: SpecialIds | None = None
) -> Iterator[Finding]:
    """vocab_size: rows of the embedding table into which the ids must fit. special: the ids that
    were recorded elsewhere and must be the same."""
    raw = read_json(folder / TOKENIZER_FILE, repeats=True)
    yield from duplicate_ids(raw)
    tokenizer = load(folder / TOKENIZER_FILE)
    ids = tokenizer.get_vocab(with_added_tokens=True)
    top = max(ids.values(), default=-1)
    if top >= vocab_size:
        yield error(
            "tokenizer-too-large",
            f"the tokenizer gives ids up to {top:,}, but there are {vocab_size:,} embeddings",
            f"Texts with such words would fail or read foreign memory. {COPY}",
        )
    options = options_of(folder)
    guessed = roles(options, ids)
    missing = list(special_findings(guessed, ids, special))
    yield from missing
    lacking = any(finding.code == "special-missing" for finding in missing)
    if not lacking and top < vocab_size:
        yield ok("tokenizer", f"the tokenizer has {len(ids):,} entries and every special token")
    yield from cases(tokenizer, ids, unk=ids.get(guessed.get("unk", ""), -1), options=options)


def leading_out(folder: Path) -> Iterator[Finding]:
    """What a verb would report about the folder `tokenizer` of a corpus or a run before opening
    it."""
    must_be_plain(folder, within=folder.parent)
    yield from ()


def special_findings(
    guessed: dict[str, str], ids: dict[str, int], special: SpecialIds | None
) -> Iterator[Finding]:
    """Special tokens that are missing, or have other ids than those recorded. guessed: role ->
    token."""
    needless = {"unk"} if special is None or special.unk < 0 else set()
    missing = [role for role in ROLES if role not in guessed and role not in needless]
    if missing:
        names = named((f"[{role.upper()}]" for role in missing), at_most=5)
        yield (error if special else warning)(
            "special-missing",
            f"the tokenizer has no {names}",
            "Masking and reading sequences need them: name them in tokenizer_config.json, or "
            "take a tokenizer made for BERT.",
        )
    if special is None:
        return
    odd = [
        f"{role} {getattr(special, role)} there, {ids[name]} here"
        for role, name in guessed.items()
        if ids[name] != getattr(special, role)
    ]
    if odd:
        yield error(
            "special-ids",
            f"special ids are not those that were recorded ({'; '.join(odd)})",
            COPY,
        )


def load(path: Path) -> Any:
    """Loads the library's tokenizer. (Its panics are not Exceptions.)"""
    from tokenizers import Tokenizer

    text = read_bytes(path, limit=MAX_FILE_BYTES)
    try:
        return Tokenizer.from_buffer(text)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as e:
        raise DamageError(
            "tokenizer", f"{path.name} is not a tokenizer ({' '.join(str(e).split())[:150]})", COPY
        ) from e


def tokenizer_hash(folder: Path) -> str | None:
    """The hash of tokenizer.json; None if it is missing or cannot be read, which is a separate
    finding."""
    with suppress(FileError):
        return sha256_of(folder / "tokenizer.json")
    return None


def options_of(folder: Path) -> dict[str, Any]:
    """The options in tokenizer_config.json and special_tokens_map.json, if these exist."""
    found: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).exists():
            found |= read_json(folder / name)
    return found


def roles(options: dict[str, Any], ids: dict[str, int]) -> dict[str, str]:
    """Role -> token, where the vocabulary has one: as the folder says, else by the usual names."""
    names = {
        role: (special_token(options, role), f"[{role.upper()}]", other)
        for role, other in ROLES.items()
    }
    return {
        role: name for role, candidates in names.items() for name in candidates[::-1] if name in ids
    }


def special_token(options: dict[str, Any], role: str) -> str | None:
    value = options.get(f"{role}_token")
    value = value.get("content") if isinstance(value, dict) else value
    return value if isinstance(value, str) else None


def duplicate_ids(raw: dict[str, Any]) -> Iterator[Finding]:
    """Finds two words with the same id: which of them is read back is a matter of chance."""
    model = raw.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocab, dict):
        return
    first: dict[Any, str] = {}
    twice = [
        f"{first[i]!r} and {word!r} are {i}"
        for word, i in vocab.items()
        if isinstance(i, int) and first.setdefault(i, word) != word
    ]
    if twice:
        yield error(
            "tokenizer-ids",
            f"{len(twice):,} ids of the tokenizer are given twice: {named(twice)}",
            COPY,
        )


def lower_cased(options: dict[str, Any], ids: dict[str, int]) -> Iterator[Finding]:
    """Finds a folder that says do_lower_case false although its vocabulary is in lower case:
    transformers then leaves capitals in the text."""
    words = [w for w in ids if not (w.startswith(("[", "<")) and w.endswith(("]", ">")))]
    upper = sum(w != w.lower() for w in words)
    if options.get("do_lower_case") is False and words and upper <= len(words) // 100:
        fact = (
            f"tokenizer_config.json says do_lower_case false, and {upper:,} of {len(words):,} "
            "entries have upper-case letters"
        )
        yield warning(
            "upper-case-unknown",
            fact,
            "Every capitalised word becomes [UNK]: set do_lower_case to true.",
        )


def cases(
    tokenizer: Any, ids: dict[str, int], *, unk: int, options: dict[str, Any]
) -> Iterator[Finding]:
    """Whether the vocabulary has upper-case letters, or has entries with them that can never
    occur."""
    try:
        upper = unknown_letters(tokenizer, string.ascii_uppercase, unk)
        lower = unknown_letters(tokenizer, string.ascii_lowercase, unk)
        lowers = tokenizer.normalizer is not None and tokenizer.normalizer.normalize_str("A") == "a"
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as e:
        raise DamageError(
            "tokenizer",
            f"{TOKENIZER_FILE} breaks on single letters ({' '.join(str(e).split())[:150]})",
            COPY,
        ) from e
    if upper > len(string.ascii_uppercase) // 2 and lower < upper // 2:
        yield warning(
            "upper-case-unknown",
            f"{upper} of the 26 upper-case letters are [UNK] and {26 - lower} of the lower-case "
            "ones are known: the vocabulary is lower-case, "
            "the tokenizer does not lower-case",
            "Every capitalised word becomes [UNK]: set do_lower_case (the normaliser's "
            "`lowercase`) to true.",
        )
    elif lowers:
        yield from lower_cased(options, ids)
        yield from never_occurring(texts_of(tokenizer, ids))


def unknown_letters(tokenizer: Any, letters: str, unk: int) -> int:
    """The number of letters that become [UNK]."""
    return sum(unk in tokenizer.encode(letter, add_special_tokens=False).ids for letter in letters)


def texts_of(tokenizer: Any, pieces: Iterable[str]) -> list[str]:
    """Pieces as they appear in a text: byte-level ones write other letters for most bytes."""
    decoder = json.loads(tokenizer.to_str()).get("decoder") or {}
    if decoder.get("type") != "ByteLevel":
        return list(pieces)
    from tokenizers.decoders import ByteLevel

    level = ByteLevel()
    return [level.decode([piece]) for piece in pieces]


def never_occurring(pieces: list[str]) -> Iterator[Finding]:
    """Entries with upper-case letters although the tokenizer lower-cases its text."""
    shouted = [
        w
        for w in pieces
        if w != w.lower() and not (w.startswith(("[", "<")) and w.endswith(("]", ">")))
    ]
    if len(shouted) > len(pieces) // 10:
        yield note(
            "upper-case-unused",
            f"the tokenizer lower-cases its text, and {len(shouted):,} of {len(pieces):,} "
            "entries have upper-case letters: they never occur",
            "Either the vocabulary is that of a cased model and lower-casing is wrong, or another "
            "vocabulary would use its rows better.",
        )
