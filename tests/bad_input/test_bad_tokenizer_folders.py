"""What a tokenizer's settings say of where it came from is not published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from small import run, write_text

ROLES = {
    "unk_token": "[UNK]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
IDS = {word: i for i, word in enumerate([*ROLES.values(), "the", "a"])}


def write_tokenizer(folder: Path, **settings: Any) -> Path:
    """A tokenizer of words between blanks."""
    folder.mkdir()
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": IDS, "unk_token": "[UNK]"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(whole), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"} | ROLES | settings),
        encoding="utf-8",
    )
    return folder


def test_what_a_tokenizer_says_of_its_origin_is_not_published(tmp_path: Path) -> None:
    foreign = {
        "auto_map": {"AutoTokenizer": [None, "nobody/code--evil.X"]},
        "_commit_hash": "0" * 40,
        "is_local": True,
        "local_files_only": True,
        "name_or_path": "/home/somebody/tokenizer",
        "chat_template": "{{ messages }}",
    }
    folder = write_tokenizer(tmp_path / "tokenizer", **foreign)
    source = write_text(tmp_path / "a.txt", size=6000)
    words = ["prepare", str(source), "--output-dir", str(tmp_path / "data"), "--workers", "1"]
    assert run(*words, "--tokenizer", str(folder), "--valid-fraction", "0.1", "--allow-unk") == 0
    published = tmp_path / "data" / "tokenizer"
    settings = json.loads((published / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert not settings.keys() & foreign.keys()
    names = {path.name for path in published.iterdir()}
    assert names == {"tokenizer.json", "tokenizer_config.json"}
    assert not (tmp_path / "data" / "unfinished").exists()
