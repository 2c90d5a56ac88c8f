"""Tokenizers of others that `prepare` takes over: damaged, hostile, or odd. Those of models are in
test_bad_models.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from electrify.text.corpus import read_manifest
from small import mistake, run, write_text

ROLES = {
    "unk_token": "[UNK]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
IDS = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a"])}
BOMB = [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}] * 9
OTHER_UNK = {
    "type": "WordPiece",
    "vocab": IDS,
    "unk_token": "[NO]",
    "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 100,
}
DOUBLED = '"the": 5, "the": 9'


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


FAILING: dict[str, tuple[dict[str, Any], str]] = {
    "a regular expression without end": (
        whole(pre_tokenizer=split("(a+)+$")),
        "the tokenizer fails on this text",
    ),
    "an empty vocabulary": (whole(ids={}), "the tokenizer fails on this text"),
    "an [UNK] of another name": (whole(model=OTHER_UNK), "the tokenizer fails on this text"),
    "one that deletes all text": (
        whole(normalizer={"type": "Replace", "pattern": {"Regex": r"[\s\S]"}, "content": ""}),
        "every token of a.txt is unknown",
    ),
    "one of another language": (
        whole(ids={k: v for k, v in IDS.items() if k.startswith("[")}),
        "every token of a.txt is unknown",
    ),
}


@pytest.mark.parametrize("case", FAILING)
def test_those_that_fail_on_the_text(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, case: str
) -> None:
    """In a worker process, where Rust code panics: a BaseException that is no Exception."""
    content, says = FAILING[case]
    folder = write_tokenizer(tmp_path / "tokenizer", content)
    source = write_text(tmp_path / "a.txt", size=2000)
    with source.open("a", encoding="utf-8") as f:
        f.write("\n\n" + "a" * 40 + "b\n")
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


USABLE: dict[str, tuple[dict[str, Any] | str, int]] = {
    "holes between ids": (whole(ids=IDS | {"of": 50}), 51),
    "a key that occurs twice": (json.dumps(whole()).replace('"the": 5', DOUBLED), 10),
    "cutting and padding": (
        whole(
            truncation={"direction": "Right", "max_length": 2, "strategy": "LongestFirst",
             "stride": 0},
            padding={
                "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None,
                "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]",
            },
        ),
        7,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", USABLE)
def test_odd_ones_that_work(tmp_path: Path, case: str) -> None:
    """The number of tokens is that of the words and signs, whatever tokenizer.json says about
    lengths."""
    content, vocab_size = USABLE[case]
    folder = write_tokenizer(tmp_path / "tokenizer", content)
    source = write_text(tmp_path / "a.txt", size=2000)
    assert (
        run(
            "prepare",
            str(source),
            "--output-dir",
            str(tmp_path / "out"),
            "--tokenizer",
            str(folder),
            "--workers",
            "1",
            "--allow-unk",  # it knows a few words
        )
        == 0
    )
    manifest = read_manifest(tmp_path / "out")
    text = source.read_text(encoding="utf-8")
    assert (manifest.vocab_size, manifest.counts["tokens"]) == (
        vocab_size,
        len(text.replace(".", " .").split()),
    )


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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--vocab-size", "1" + "0" * 12], "--vocab-size "),
        (["--tokenizer", "bpe", "--vocab-size", "1" + "0" * 12], "--vocab-size "),
        (["--vocab-size", "9" * 5000], "--vocab-size "),
        (["--vocab-size", "inf"], "--vocab-size "),
        (["--shard-mb", "1" + "0" * 15], "--shard-mb "),
        (["--tokenizer-sample-mb", "1" + "0" * 15], "--tokenizer-sample-mb "),
        (["--min-frequency", "-1"], "--min-frequency "),
        (["--workers", "100000"], "--workers "),
        (["--valid-fraction", "nan"], "--valid-fraction "),
        (["--tokenizer", "\x1b[31m"], "\\x1b[31m"),
    ],
    ids=lambda value: (
        " ".join(value)[:40].replace("\x1b", "ESC") if isinstance(value, list) else ""
    ),
)
def test_numbers_that_nobody_means(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], says: str
) -> None:
    """The libraries reserve memory for as many pieces as are asked for, and abort the process where
    there is none."""
    source = write_text(tmp_path / "a.txt", size=2000)
    sentence = mistake(capsys, "prepare", source, "--output-dir", tmp_path / "out", *words)
    assert says in sentence
    assert "\x1b" not in sentence
    assert not (tmp_path / "out" / "manifest.json").exists()
