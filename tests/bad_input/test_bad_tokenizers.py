"""Tokenizers of others that `prepare` takes over: damaged, hostile, or odd. Those of models are in
test_bad_models.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from small import mistake, write_text

ROLES = {
    "unk_token": "[UNK]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
IDS = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a"])}


def whole(*, ids: dict[str, int] | None = None, **parts: Any) -> dict[str, Any]:
    """A tokenizer.json of words between blanks."""
    model = {"type": "WordLevel", "vocab": IDS if ids is None else ids, "unk_token": "[UNK]"}
    rest = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "post_processor": None,
        "decoder": None,
    }
    return rest | {"pre_tokenizer": {"type": "Whitespace"}, "model": model} | parts


def write_tokenizer(folder: Path, content: dict[str, Any] | str | bytes, **settings: Any) -> Path:
    folder.mkdir()
    text = json.dumps(content) if isinstance(content, dict) else content
    (folder / "tokenizer.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"} | ROLES | settings),
        encoding="utf-8",
    )
    return folder


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


DAMAGED: dict[str, tuple[Any, str]] = {
    "a regular expression that is none": (
        whole(pre_tokenizer=split("(a+")),
        "holds a damaged tokenizer (Exception: Oniguruma error",
    ),
    "a negative id": (whole(ids=IDS | {"of": -1}), "holds a damaged tokenizer"),
    "an id of two tokens": (
        whole(ids=IDS | {"of": 6}),
        "it is damaged: ids count from 0",
    ),
    "an id of two thousand millions": (
        whole(ids=IDS | {"of": 2_000_000_000}),
        "ids up to 2,000,000,000; it is damaged",
    ),
    "lots": (
        whole(
            model={"type": "BPE", "vocab": IDS, "merges": [], "dropout": 0.5, "unk_token": "[UNK]"}
        ),
        "has a dropout of 0.5: a text gives different tokens each time",
    ),
    "no JSON": (b"\x80\x05pickle", "holds a damaged tokenizer"),
    "an array": ("[]", "holds a damaged tokenizer"),
    "nothing": ("", "holds a damaged tokenizer"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_ones_are_found_before_any_text_is_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, case: str
) -> None:
    content, says = DAMAGED[case]
    folder = write_tokenizer(tmp_path / "tokenizer", content)
    source = write_text(tmp_path / "a.txt", size=2000)
    assert says in mistake(
        capsys,
        "prepare",
        source,
        "--output-dir",
        tmp_path / "out",
        "--tokenizer",
        folder,
        "--workers",
        "1",
    )
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_code_of_others_never_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "tokenizer_class": "Evil",
        "auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]},
    }
    folder = write_tokenizer(tmp_path / "tokenizer", whole(), **more)
    (folder / "evil.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n", encoding="utf-8"
    )
    source = write_text(tmp_path / "a.txt", size=2000)
    sentence = mistake(
        capsys, "prepare", source, "--output-dir", tmp_path / "out", "--tokenizer", folder
    )
    assert "brings Python code of its own (auto_map), which electrify never runs" in sentence
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "out" / "manifest.json").exists()
