"""The files of a tokenizer: a fixed list, see text/tokenizer_files.py. Goes with the folders that
fine-tuning writes."""

from __future__ import annotations

import json
from pathlib import Path

SETTINGS_FILE = "tokenizer_config.json"
# Those that hold a vocabulary: a tokenizer is one of them, with or without settings.
VOCABULARY_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "spm.model",
    "tokenizer.model",
)
TOKENIZER_FILES = (
    *VOCABULARY_FILES,
    SETTINGS_FILE,
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
    "chat_template.jinja",
)
# Where a tokenizer came from and how it was loaded there, which is of no use to whoever gets it;
# and code and templates, which an encoder's tokenizer does not have.
_ORIGIN = (
    "auto_map",
    "cache_dir",
    "chat_template",
    "code_revision",
    "custom_pipelines",
    "fast_tokenizer_files",
    "is_local",
    "local_files_only",
    "name_or_path",
    "proxies",
    "revision",
    "special_tokens_map_file",
    "subfolder",
    "token",
    "tokenizer_file",
    "trust_remote_code",
    "use_auth_token",
)


def forget_origin(folder: Path) -> None:
    """Writes tokenizer_config.json, which the library has written there, as it is published. What
    begins with `_` is the library's own."""
    path = folder / SETTINGS_FILE
    settings = json.loads(path.read_text(encoding="utf-8"))
    kept = {k: v for k, v in settings.items() if k not in _ORIGIN and not k.startswith("_")}
    text = json.dumps(kept, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
    path.write_text(text, encoding="utf-8")
