"""What a source says twice, or what nobody vouches for: text that would be lost or changed without
a word."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from electrify.demo import demo
from electrify.errors import UserError
from electrify.text.corpus import read_manifest
from electrify.text.given import prepared
from electrify.text.options import PrepareConfig
from electrify.text.prepare import prepare
from electrify.text.report import report
from small import write_text


def dropping(folder: Path) -> Path:
    """A tokenizer without [UNK]: what it does not know gives no token."""
    words = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz.", " "]
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        "model": {"type": "BPE", "vocab": {w: i for i, w in enumerate(words)}, "merges": []},
    }
    names = {f"{w[1:-1].lower()}_token": w for w in words[:4]}
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(whole), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"} | names), encoding="utf-8"
    )
    return folder


@pytest.mark.parametrize("foreign", [4, 40])
def test_documents_that_give_no_token(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, foreign: int
) -> None:
    path = tmp_path / "a.txt"
    known = [f"the text of {'abcdefghij'[i]} document" for i in range(10)]
    other = [chr(0x3042 + i) * 5 for i in range(foreign)]
    path.write_text("\n\n".join([*known, *other, "nu\0l"]), encoding="utf-8")
    options = PrepareConfig(
        inputs=(str(path),),
        output_dir=str(tmp_path / "out"),
        tokenizer=str(dropping(tmp_path / "tokenizer")),
        valid_fraction=0.3,
        workers=1,
    )
    total = foreign + 11
    says = f"{foreign} of {total} documents of a.txt give no token"
    if foreign > 10:
        with pytest.raises(UserError, match=says):
            prepare(options)
        assert not (tmp_path / "out" / "manifest.json").exists()
        return
    manifest = prepare(options)
    assert manifest.counts["without_tokens"] == foreign
    assert says in capsys.readouterr().err
    rows = dict(line.rsplit("  ", 1) for line in report(manifest).splitlines())
    counted = {name.strip(): value for name, value in rows.items()}
    assert counted["documents without a token"] == str(foreign)
    assert counted["NUL characters removed"] == "1"


def test_the_file_of_a_tokenizer_is_not_its_folder(tmp_path: Path) -> None:
    file = dropping(tmp_path / "tokenizer") / "tokenizer.json"
    with pytest.raises(UserError, match="is a file"):
        PrepareConfig(inputs=("a.txt",), output_dir="x", tokenizer=str(file))


@pytest.mark.parametrize(
    ("refused", "command"),
    [
        (read_manifest, "--output-dir '{}'`"),
        (
            lambda path: prepared(str(path), Path("run")),
            "`electrify prepare '{}' --output-dir DATA`",
        ),
    ],
)
def test_commands_to_copy_hold_a_name_with_blanks_as_one_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[[Path], Any], command: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    path = tmp_path / "my corpus"
    with pytest.raises(UserError) as found:
        refused(path)
    assert command.format(path) in str(found.value)


def test_the_demo_takes_no_folder_of_others(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", size=500)
    with pytest.raises(UserError, match="is not ours to write into"):
        demo(tmp_path, max_steps=1)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
