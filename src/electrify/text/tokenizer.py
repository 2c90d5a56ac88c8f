"""The tokenizer of a corpus as a Hugging Face folder: written so that AutoTokenizer gives the ids that were trained, or taken over from elsewhere."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..tokens import SpecialIds
from .shards import sha256_of

TOKENIZER_FILE = "tokenizer.json"
MAX_LENGTH = 512
# The largest published ones (a quarter of a million pieces) stay below 40 MB; a file beyond this is a mistake or an attack on memory.
MAX_FILE_BYTES = 1 << 28
_ROLES = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_NAMES = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}


def save_trained(tokenizer: Any, folder: Path, *, kind: str, lowercase: bool, strip_accents: bool) -> None:
    """A trained `tokenizers.Tokenizer` as a folder for AutoTokenizer: tokenizer.json, tokenizer_config.json and, for WordPiece, vocab.txt.

    transformers builds a BertTokenizer from the vocabulary and these settings, ignoring the normaliser in tokenizer.json, so both must say the same.
    """
    settings: dict[str, Any] = {**_NAMES, "model_max_length": MAX_LENGTH, "model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
    settings["clean_up_tokenization_spaces"] = False
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    files = {TOKENIZER_FILE: tokenizer.to_str(pretty=True)}
    if kind == "wordpiece":
        settings |= {"tokenizer_class": "BertTokenizer", "do_lower_case": lowercase, "strip_accents": strip_accents, "tokenize_chinese_chars": True}
        vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
        files["vocab.txt"] = "".join(f"{token}\n" for token, _ in vocabulary)
    files["tokenizer_config.json"] = json.dumps(settings, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        part = folder / (name + ".part")
        with part.open("w", encoding="utf-8", newline="\n") as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        part.replace(folder / name)


def save_existing(name: str, folder: Path) -> None:
    """The tokenizer in a folder or on the Hub, written to `folder`. Raises UserError where it cannot be had or lacks a role."""
    tokenizer = load_tokenizer(name)
    special_ids(tokenizer)
    if tokenizer.model_max_length > 1 << 20:  # transformers' way of saying that nobody set it
        tokenizer.model_max_length = MAX_LENGTH
    tokenizer.save_pretrained(str(folder))
    if not (folder / TOKENIZER_FILE).is_file():
        raise UserError(f"the tokenizer {name} has no fast version (tokenizer.json), which `prepare` needs")


def load_tokenizer(name: str | Path) -> Any:
    """The transformers tokenizer of a folder or of the Hub. Raises UserError where there is none, it is damaged, or it is no fast tokenizer."""
    folder = Path(name)
    file = folder / TOKENIZER_FILE
    if folder.is_dir() and not any((folder / f).is_file() for f in (TOKENIZER_FILE, "vocab.txt", "tokenizer_config.json")):
        raise UserError(f"{folder} holds no tokenizer: it has neither {TOKENIZER_FILE} nor vocab.txt")
    if file.is_file() and file.stat().st_size > MAX_FILE_BYTES:
        raise UserError(f"{file} has {file.stat().st_size >> 20} MB; a tokenizer has at most {MAX_FILE_BYTES >> 20}")
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(name))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as e:  # a panic of the Rust library (bad regular expression, bad vocabulary) is no Exception
        what = (
            f"{folder} holds a damaged tokenizer"
            if folder.is_dir()
            else f"{str(name)!r} is neither a folder here nor a tokenizer that can be reached"
        )
        raise UserError(f"{what} ({type(e).__name__}: {' '.join(str(e).split())[:300]})") from e
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise UserError(f"the tokenizer {name} has no fast version (tokenizer.json), which electrify needs")
    return tokenizer


def special_ids(tokenizer: Any) -> SpecialIds:
    """The ids of the tokens with a role ([MASK] or <mask>, ...); [UNK] is -1 where there is none. Raises UserError naming roles without a token."""
    ids: dict[str, Any] = {role: getattr(tokenizer, f"{role}_token_id", None) for role in (*_ROLES, "unk")}
    missing = [shown for role, shown in _ROLES.items() if ids[role] is None]
    if missing:
        where = getattr(tokenizer, "name_or_path", "") or "this tokenizer"
        raise UserError(f"the tokenizer {where} has no {', '.join(missing)} token; choose one made for BERT-like models, or train one here")
    unk = -1 if ids["unk"] is None else int(ids["unk"])
    known = {int(i) for i in ids.values() if i is not None}
    if len(known) < len(_ROLES) + (unk >= 0):
        raise UserError(f"the tokenizer uses one token for several roles ({', '.join(f'{k}={v}' for k, v in ids.items())}); each needs its own")
    special = {int(i) for i in tokenizer.all_special_ids} | {int(i) for i, t in tokenizer.added_tokens_decoder.items() if t.special}
    return SpecialIds(int(ids["pad"]), unk, int(ids["cls"]), int(ids["sep"]), int(ids["mask"]), others=tuple(sorted(special - known)))


def vocabulary_size(tokenizer: Any) -> int:
    """Rows that an embedding needs: the largest id plus one."""
    return max(tokenizer.get_vocab().values()) + 1


def tokenizer_sha256(folder: Path) -> str:
    """The identity of a vocabulary: the hash of tokenizer.json."""
    return sha256_of(folder / TOKENIZER_FILE)
