"""The tokenizer of a corpus as a Hugging Face folder: a trained one, written so that AutoTokenizer
gives the same ids, or an existing one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..console import brief
from ..errors import UserError, failing_as
from ..files import sha256, written
from ..hub import must_be_reachable
from ..special import SpecialIds
from .frame import must_frame, reframe
from .manifest import TOKENIZER, Manifest
from .options import MAX_VOCABULARY
from .tokenizer_files import (
    TOKENIZER_FILE,
    copy_tokenizer,
    must_be_readable,
    read_settings,
    without_origin,
    write_settings,
)

MAX_LENGTH = 512
_ROLES = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_NAMES = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


def save_trained(
    tokenizer: Any, folder: Path, *, kind: str, lowercase: bool, strip_accents: bool
) -> None:
    """A trained `tokenizers.Tokenizer` as a folder for AutoTokenizer: tokenizer.json,
    tokenizer_config.json and, for WordPiece as BERT has it, vocab.txt.

    transformers builds a BertTokenizer from the vocabulary and these settings, and ignores the
    normaliser and the pre-tokenizer in tokenizer.json, so both must say the same.
    """
    like_bert = json.loads(tokenizer.to_str())["pre_tokenizer"] == {"type": "BertPreTokenizer"}
    settings: dict[str, Any] = {
        **_NAMES,
        "model_max_length": MAX_LENGTH,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }
    settings["clean_up_tokenization_spaces"] = False
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    files = {TOKENIZER_FILE: tokenizer.to_str(pretty=True)}
    if kind == "wordpiece" and like_bert:
        settings |= {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": lowercase,
            "strip_accents": strip_accents,
            "tokenize_chinese_chars": True,
        }
        vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
        files["vocab.txt"] = "".join(f"{token}\n" for token, _ in vocabulary)
    files["tokenizer_config.json"] = (
        json.dumps(settings, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
    )
    with written(folder) as part:
        part.mkdir(parents=True)
        for name, text in files.items():
            (part / name).write_text(text, encoding="utf-8")


def save_existing(name: str, folder: Path) -> None:
    """Writes the tokenizer in a folder or on the Hub to `folder`. Raises UserError if it cannot be
    loaded, or lacks a special token."""
    tokenizer = load_tokenizer(name)
    special = special_ids(tokenizer)
    vocabulary_size(tokenizer)  # before the library writes a file with a line for every unused id
    if tokenizer.model_max_length > 1 << 20:  # transformers' way of saying that nobody set it
        tokenizer.model_max_length = MAX_LENGTH
    tokenizer.chat_template = None  # an encoder has no chat
    tokenizer.padding_side = tokenizer.truncation_side = "right"  # positions count from the left
    reframe(tokenizer, special, name=name)
    with TemporaryDirectory() as made:
        part = Path(made)
        with failing_as(f"{folder} could not be written"):
            tokenizer.save_pretrained(str(part))
        if not (part / TOKENIZER_FILE).is_file():
            raise UserError(
                f"the tokenizer {name} has no fast version (tokenizer.json), which `prepare` needs"
            )
        must_frame(part, special, name=name)
        write_settings(part, without_origin(read_settings(part)))
        with written(folder) as whole:
            copy_tokenizer(part, whole)


def load_tokenizer(name: str | Path) -> Any:
    """The transformers tokenizer in a folder or on the Hub. Raises UserError if there is none, or
    it is damaged, or it is not a fast tokenizer."""
    folder = Path(name)
    if folder.is_dir() and not any(
        (folder / f).is_file() for f in (TOKENIZER_FILE, "vocab.txt", "tokenizer_config.json")
    ):
        inside = folder / TOKENIZER
        hint = f"; name {inside}" if (inside / TOKENIZER_FILE).is_file() else ""
        raise UserError(
            f"{folder} holds no tokenizer: it has neither {TOKENIZER_FILE} nor vocab.txt{hint}"
        )
    what = f"{folder} holds a damaged tokenizer"
    if not folder.is_dir():
        must_be_reachable(str(name), "tokenizer")
        what = f"the tokenizer {brief(str(name))} cannot be loaded from the Hub"
    else:
        must_be_readable(folder)
    from transformers import AutoTokenizer

    with failing_as(what), without_code(str(name)):
        tokenizer = AutoTokenizer.from_pretrained(str(name), trust_remote_code=False)
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise UserError(
            f"the tokenizer {name} has no fast version (tokenizer.json), which electrify needs"
        )
    must_be_steady(tokenizer, str(name))
    return tokenizer


@contextmanager
def without_code(name: str) -> Iterator[None]:
    """A context that raises a UserError if the library reports that a model brings its own code."""
    try:
        yield
    except ValueError as e:
        if "custom code" not in str(e):
            raise
        raise UserError(
            f"{name} brings Python code of its own (auto_map), which electrify never runs; choose "
            "one that transformers knows"
        ) from e


def must_be_steady(tokenizer: Any, name: str) -> None:
    """Raises UserError if a tokenizer is random (BPE with dropout), or if one of its tokens has two
    roles that a model must tell apart."""
    model = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
    dropout = getattr(model, "dropout", None)
    if dropout:
        raise UserError(
            f"{name}: its tokenizer has a dropout of {dropout:g}: a text gives different "
            "tokens each time; remove `dropout` from the model in tokenizer.json"
        )
    ids = {role: getattr(tokenizer, f"{role}_token_id", None) for role in (*_ROLES, "unk")}
    for one, other in combinations(ids, 2):
        # Left-to-right models use the token for unknown words as padding.
        if ids[one] is not None and ids[one] == ids[other] and {one, other} != {"pad", "unk"}:
            raise UserError(
                f"{name}: its tokenizer uses one token for several roles ({one}={ids[one]}, "
                f"{other}={ids[other]}); each needs its own: "
                "look at tokenizer_config.json"
            )


def special_ids(tokenizer: Any) -> SpecialIds:
    """The ids of the tokens with a role ([MASK] or <mask>, ...); [UNK] is -1 if there is none.
    Raises UserError naming the roles without a token."""
    ids: dict[str, Any] = {
        role: getattr(tokenizer, f"{role}_token_id", None) for role in (*_ROLES, "unk")
    }
    missing = [shown for role, shown in _ROLES.items() if ids[role] is None]
    if missing:
        where = getattr(tokenizer, "name_or_path", "") or "this tokenizer"
        raise UserError(
            f"the tokenizer {where} has no {', '.join(missing)} token; choose one made for "
            "BERT-like models, or train one here"
        )
    unk = -1 if ids["unk"] is None else int(ids["unk"])
    known = {int(i) for i in ids.values() if i is not None}
    if len(known) < len(_ROLES) + (unk >= 0):
        raise UserError(
            "the tokenizer uses one token for several roles "
            f"({', '.join(f'{k}={v}' for k, v in ids.items())}); each needs its own"
        )
    special = {int(i) for i in tokenizer.all_special_ids} | {
        int(i) for i, t in tokenizer.added_tokens_decoder.items() if t.special
    }
    return SpecialIds(
        int(ids["pad"]),
        unk,
        int(ids["cls"]),
        int(ids["sep"]),
        int(ids["mask"]),
        others=tuple(sorted(special - known)),
    )


def vocabulary_size(tokenizer: Any) -> int:
    """The number of rows that an embedding table needs: the largest id plus one. Raises UserError
    if the ids cannot be those of a vocabulary."""
    ids = list(tokenizer.get_vocab().values())
    size = max(ids, default=-1) + 1
    if len(set(ids)) < len(ids):
        raise UserError("the tokenizer gives several tokens one id; it is damaged")
    if size > max(MAX_VOCABULARY, 2 * len(ids)):
        raise UserError(
            f"the tokenizer has {len(ids):,} tokens with ids up to {size - 1:,}; it is damaged: "
            "ids count from 0 without large holes"
        )
    return size


def must_be_of(manifest: Manifest, folder: Path) -> None:
    """Raises UserError if a tokenizer cannot be loaded, or is not the one that the ids of a corpus
    come from: its special tokens, or the number of its tokens, differ."""
    tokenizer = load_tokenizer(folder)
    found = special_ids(tokenizer)
    size = vocabulary_size(tokenizer)
    if size != manifest.vocab_size:
        odd = f"has {size:,} tokens, and manifest.json counts {manifest.vocab_size:,}"
    elif differing := [
        f"{role} is {getattr(found, role)}, and manifest.json says {value}"
        for role, value in asdict(manifest.special_ids).items()
        if role in (*_ROLES, "unk") and getattr(found, role) != value
    ]:
        odd = f"has other special tokens ({'; '.join(differing)})"
    else:
        return
    raise UserError(f"{folder} {odd}; the two do not belong together: prepare the corpus again")


def tokenizer_sha256(folder: Path) -> str:
    """The identity of a vocabulary: the hash of tokenizer.json."""
    return sha256(folder / TOKENIZER_FILE)
