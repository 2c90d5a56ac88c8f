"""What a source says twice, or what nobody vouches for: text that would be lost or changed without
a word."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from electrify.demo import demo
from electrify.errors import UserError
from electrify.text.documents import documents
from electrify.text.given import prepared
from electrify.text.manifest import read_manifest
from electrify.text.options import PrepareConfig
from electrify.text.prepare import prepare
from electrify.text.source import Source
from electrify.text.sources import resolve
from electrify.text.streams import read_chunks
from electrify.text.summary import report
from small import write_text


def read(path: Path, **options: Any) -> list[str]:
    given = PrepareConfig(inputs=(str(path),), output_dir="x", **options)
    (source,), _ = resolve((str(path),))
    return list(documents(source, given, counts=Counter()))


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("text", '{"text": "a", "te\\u0078t": "b"}'),
        ("本文", '{"本文": "a", "本文": "b"}'),
        ("本文", '{"本文": "a", "\\u672c\\u6587": "b"}'),
        ("text", '{"text": "a", "text": "b"}'),
    ],
)
def test_a_key_twice_however_it_is_spelled(tmp_path: Path, key: str, line: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=f"line 1 is not valid JSON .the key '{key}' occurs twice"):
        read(path, text_column=key)


def test_another_key_twice_loses_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1, "id": 2, "text": "a"}\n')
    assert read(tmp_path / "a.jsonl") == ["a"]


def test_a_flipped_bit_of_a_parquet_file(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    rows = [f"number {i:06d}" for i in range(200)]
    plain: dict[str, Any] = {"compression": "none", "use_dictionary": False}
    table = pyarrow.table({"text": rows})
    parquet.write_table(table, path, write_page_checksum=True, **plain)
    assert read(path) == rows
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"number 000100") + 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(UserError, match=r"a\.parquet is truncated, damaged or not a parquet file"):
        read(path)


def xz(text: bytes, check: int) -> bytes:
    return lzma.compress(text, check=check)


def zst(text: bytes, *, checksum: bool) -> bytes:
    zstandard = pytest.importorskip("zstandard")
    return zstandard.ZstdCompressor(write_checksum=checksum).compress(text)


@pytest.mark.parametrize("kind", [".xz", ".zst"])
@pytest.mark.parametrize("bare", [None, 0, 1, 4])
def test_every_member_of_an_archive_is_asked_for_its_checksum(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str, bare: int | None
) -> None:
    path = tmp_path / f"a.txt{kind}"
    members = [
        xz(b"text\n", lzma.CHECK_NONE if i == bare else lzma.CHECK_CRC64)
        if kind == ".xz"
        else zst(b"text\n", checksum=i != bare)
        for i in range(6)
    ]
    path.write_bytes(b"".join(members))
    assert b"".join(read_chunks(path)) == b"text\n" * 6
    said = capsys.readouterr().err
    # Of the first one `prepare` tells before anything is read.
    assert ("packed without checksum" in said) == bool(bare)
    assert not bare or f"part {bare + 1} is packed" in said


def test_a_data_set_in_a_folder_is_known_by_its_content(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    write_text(folder / "train.txt", size=500)
    source = Source("hub:set", "hub", hub=f"{folder}:default")
    before = source.identity()
    assert before["bytes"] == (folder / "train.txt").stat().st_size
    write_text(folder / "train.txt", size=500, seed=1)
    assert source.identity()["sha256"] not in ("", before["sha256"])
    assert Source("hub:a/b", "hub", hub="a/b").identity()["sha256"] == ""


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


def test_all_text_lies_in_the_output_folder(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", size=500)
    options = PrepareConfig(inputs=(str(tmp_path),), output_dir=str(tmp_path))
    with pytest.raises(UserError, match="lies in the output folder, whose files are not input"):
        prepare(options)


def test_the_demo_takes_no_folder_of_others(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", size=500)
    with pytest.raises(UserError, match="is not ours to write into"):
        demo(tmp_path, max_steps=1)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
