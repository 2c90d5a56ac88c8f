"""Files -> documents: boundaries, encodings, and everything that can be wrong with a file."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electrify.errors import UserError
from electrify.text import decoding, documents, records, streams
from electrify.text.options import PrepareConfig
from electrify.text.source import Source
from texts import read, write


def test_blank_lines_divide_text(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "\n\none\ntwo\n \t \nthree\n\n\n\nfour\n")
    assert read(path)[0] == ["one\ntwo", "three", "four"]
    assert read(path, document_boundary="line")[0] == ["one", "two", "three", "four"]
    assert read(path, document_boundary="file")[0] == ["one\ntwo\n \t \nthree\n\n\n\nfour"]


def test_markdown_is_one_document_unless_asked(tmp_path: Path) -> None:
    path = write(tmp_path, "a.md", "# Title\n\ntext\n")
    assert read(path)[0] == ["# Title\n\ntext"]
    assert read(path, document_boundary="blank-line")[0] == ["# Title", "text"]
    with pytest.raises(UserError, match="has no records"):
        read(path, document_boundary="record")


def test_byte_order_mark_newlines_and_nul(tmp_path: Path) -> None:
    docs, counts = read(
        write(
            tmp_path,
            "a.txt",
            b"\xef\xbb\xbfone\r\ntwo\r\n\r\nth"
            + b"\0ree and much text" * 4
            + b"\rfour \xe2\x80\xa8 five",
        )
    )
    assert docs[0] == "one\ntwo"
    assert docs[1].startswith("three and")
    assert docs[1].endswith("\nfour \u2028 five")
    assert counts["nul_characters"] == 4


def test_crlf_across_a_chunk_border(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("electrify.text.streams.CHUNK", 8)
    assert read(write(tmp_path, "a.txt", b"1234567\r\n\r\nabcdef\r\n\r\nx"))[0] == [
        "1234567",
        "abcdef",
        "x",
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(alphabet="ab é中\n😀", max_size=40), max_size=8), st.integers(8, 64))
def test_chunking_never_changes_the_documents(
    tmp_path_factory: pytest.TempPathFactory, blocks: list[str], size: int
) -> None:
    text = "\n\n".join(blocks)
    expected = [d.strip() for d in documents._BLANK_LINE.split(text.encode()) if d.strip()]
    chunks = [text.encode()[i : i + size] for i in range(0, len(text.encode()), size)]
    found = [
        d.strip() for d in decoding.split(chunks, documents._BLANK_LINE, Counter()) if d.strip()
    ]
    assert found == expected


def test_the_line_of_a_bad_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old line ends did not count, and a long line was cut inside a character."""
    assert decoding.first_bad_line(write(tmp_path, "a", b"ab\rcd\r\xffee\r")).endswith("line 3,")
    assert decoding.first_bad_line(write(tmp_path, "b", b"a\r\nb\xc3\r\nc")).endswith("line 2,")
    assert decoding.first_bad_line(write(tmp_path, "c", b"ab\n\ncd\xc3")).endswith("line 3,")
    long = "é".encode() * 5000 + b"\n\n" + "é".encode() * 50 + b"\xe9\n"
    monkeypatch.setattr(streams, "CHUNK", 99)
    monkeypatch.setattr(decoding, "MAX_DOCUMENT", 101)
    assert decoding.first_bad_line(write(tmp_path, "d", long)).endswith("line 3,")


def test_encoding_policies(tmp_path: Path) -> None:
    path = write(tmp_path, "latin.txt", b"fine\n\nna\xefve caf\xe9\n\nalso fine\n")
    with pytest.raises(UserError, match=r"latin\.txt, line 3, is not UTF-8"):
        read(path)
    docs, counts = read(path, encoding_errors="replace")
    assert docs == ["fine", "na\ufffdve caf\ufffd", "also fine"]
    assert counts["encoding_errors"] == 1
    docs, counts = read(path, encoding_errors="skip")
    assert docs == ["fine", "also fine"]
    assert counts["encoding_errors"] == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (bytes(range(256)) * 50, "binary file"),
        (b"\0" * 5000, "binary file"),
        ("text".encode("utf-16"), "UTF-16"),
        (b"\x1f\x8b\x08\0\0\0\0\0\0\0", "gzip data"),
        (b"%PDF-1.7 and so on", "a PDF"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(write(tmp_path, "a.txt", data))


def test_long_documents_are_cut_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (decoding, documents):
        monkeypatch.setattr(module, "MAX_DOCUMENT", 100)
    monkeypatch.setattr("electrify.text.streams.CHUNK", 64)
    words = " ".join(f"wörd{i}" for i in range(200))
    docs, counts = read(write(tmp_path, "a.txt", words))
    assert " ".join(docs) == words
    assert len(docs) > 10
    assert all(len(d) <= 100 for d in docs)
    assert counts["cuts"] == len(docs) - 1
    one_word = "é中😀" * 300
    assert "".join(read(write(tmp_path, "b.txt", one_word))[0]) == one_word
    assert "".join(read(write(tmp_path, "c.jsonl", json.dumps({"text": one_word})))[0]) == one_word


def test_json_lines(tmp_path: Path) -> None:
    rows = [
        {"text": "one\n\nstill one", "id": 1},
        {"text": "  "},
        {"text": None},
        {"text": "two \u2028 lines"},
    ]
    path = write(
        tmp_path, "a.jsonl", "\n".join(json.dumps(r, ensure_ascii=False) for r in rows) + "\n\n"
    )
    docs, counts = read(path)
    assert docs == ["one\n\nstill one", "two \u2028 lines"]
    assert counts["blank"] == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "cut', "line 2 is not valid JSON"),
        ('{"body": "x", "id": 3}', "line 2 has no 'text'; it has body, id"),
        ('{"text": 5}', "line 2: 'text' is of type int"),
        ("[1, 2]", "line 2 is not a JSON object"),
        ('{"text": "\\ud800"}', "line 2: 'text' is not valid Unicode"),
        ("[" * 100_000, "line 2 is not valid JSON"),
    ],
)
def test_broken_json_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(UserError, match=rf"a\.jsonl, {message}"):
        read(write(tmp_path, "a.jsonl", '{"text": "fine"}\n' + line + "\n"))


def test_json_array_gets_a_hint(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="one JSON array"):
        read(write(tmp_path, "a.json", '[\n{"text": "x"}\n]'))


def test_half_a_surrogate_pair_follows_the_policy(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"text": "a\\ud800b"}\n{"text": "fine"}\n')
    assert read(path, encoding_errors="skip")[0] == ["fine"]
    assert "\ufffd" in read(path, encoding_errors="replace")[0][0]


def test_csv_and_tsv(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'id,text\r\n1,"one, ""two""\nthree"\r\n2,four\r\n')
    assert read(path)[0] == ['one, "two"\nthree', "four"]
    assert read(write(tmp_path, "a.tsv", 'body\tn\n"half quoted\t1\n'), text_column="body")[0] == [
        '"half quoted'
    ]
    with pytest.raises(UserError, match=r"a\.csv has no 'body'; it has id, text"):
        read(path, text_column="body")
    with pytest.raises(UserError, match=r"b\.csv, line 3 has 1 fields where the header has 2"):
        read(write(tmp_path, "b.csv", "id,text\n1,x\n2\n"))
    with pytest.raises(UserError, match=r"c\.csv, line 3 is not valid CSV"):
        read(write(tmp_path, "c.csv", 'id,text\n1,"open\nx\n'))
    latin = write(tmp_path, "d.csv", b"id,text\n1,caf\xe9\n2,fine\n")
    with pytest.raises(UserError, match=r"d\.csv, line 2: 'text' is not valid Unicode"):
        read(latin)
    assert read(latin, encoding_errors="skip")[0] == ["fine"]


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_LINE", 100)
    monkeypatch.setattr("electrify.text.streams.CHUNK", 64)
    with pytest.raises(UserError, match=r"line 1 is longer than"):
        read(write(tmp_path, "a.jsonl", '{"text": "' + "x" * 500 + '"}'))


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["one", None, "two"], "n": [1, 2, 3]}), path)
    assert read(path)[0] == ["one", "two"]
    with pytest.raises(UserError, match="has no 'body'; it has text, n"):
        read(path, text_column="body")
    with pytest.raises(UserError, match="row 1: 'n' is of type int"):
        read(path, text_column="n")
    data = path.read_bytes()
    for share in (0.0, 0.5, 0.95):
        path.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(UserError, match=r"a\.parquet is truncated"):
            read(path)


@pytest.mark.slow
def test_data_set_of_a_local_folder(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    write(tmp_path, "train.jsonl", '{"text": "one"}\n{"text": "two"}\n')
    options = PrepareConfig(inputs=("x",), output_dir="unused")
    source = Source("hub:local", "hub", hub=str(tmp_path))
    assert list(documents.documents(source, options, counts=Counter())) == ["one", "two"]
    missing = Source("hub:none", "hub", hub=str(tmp_path / "none"))
    with pytest.raises(UserError, match="neither a folder here nor a data set that can be reached"):
        list(documents.documents(missing, options, counts=Counter()))
    column = PrepareConfig(inputs=("x",), output_dir="unused", text_column="body")
    with pytest.raises(UserError, match=r"row 1 has no 'body'; it has text"):
        list(documents.documents(source, column, counts=Counter()))
