"""Folders of tokenizers that lead elsewhere, or say where they came from: what the libraries would
follow is refused, what they would repeat is left out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from electrify.oldfiles.reading import sha256_of
from electrify.text.manifest import read_manifest, write_manifest
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


def leading_out(folder: Path, case: str) -> None:
    """Puts into a tokenizer's folder what sends the library elsewhere, or is beyond any size."""
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    if "link" in case:
        (folder / "additional_chat_templates").mkdir()
        (folder / "additional_chat_templates" / "x.jinja").symlink_to("/etc/passwd")
    elif "gigabytes" in case:
        with (folder / "x.jinja").open("wb") as f:
            f.truncate(3 << 30)  # sparse: it takes no room
    elif "labels" in case:
        (folder / "config.json").write_text('{"model_type": "bert", "num_labels": 2000000000}')
    else:
        settings["fast_tokenizer_files"] = ["../tokenizer.4.0.0.json"]
        (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def seal_again(data: Path) -> None:
    """A manifest that knows what was done to tokenizer_config.json."""
    path = data / "tokenizer" / "tokenizer_config.json"
    manifest = read_manifest(data)
    files = manifest.tokenizer_files | {path.name: sha256_of(path)}
    write_manifest(data, replace(manifest, tokenizer_files=files))


LEADING_OUT = {
    "a template that is a link": (
        "holds chat templates, which an encoder does not have; remove it",
        "additional_chat_templates",
    ),
    "a template of gigabytes": ("x.jinja has 3,072 MB, and such a file has at most", "x.jinja"),
    "labels beyond memory": ("says num_labels 2,000,000,000", "config.json"),
    "another file to read": (
        "names other files to read instead (fast_tokenizer_files); remove that key",
        "tokenizer_config.json",
    ),
}


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
