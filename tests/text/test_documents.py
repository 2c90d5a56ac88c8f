"""Files -> documents: boundaries, encodings, tables, sequences, and what can be wrong with them."""

import gzip
import json
import random
import re
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electrify.errors import UserError
from electrify.text import documents, streams
from electrify.text.options import PrepareConfig
from electrify.text.sources import Source
from texts import read, write


def test_boundaries(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "\n\none\ntwo\n \t \nthree\n\n\n\nfour\n")
    assert read(path)[0] == ["one\ntwo", "three", "four"]
    assert read(path, document_boundary="line")[0] == ["one", "two", "three", "four"]
    assert read(path, document_boundary="file")[0] == ["one\ntwo\n \t \nthree\n\n\n\nfour"]
    path = write(tmp_path, "a.md", "# Title\n\ntext\n")
    assert read(path)[0] == ["# Title\n\ntext"]
    assert read(path, document_boundary="blank-line")[0] == ["# Title", "text"]


def test_byte_order_mark_newlines_and_nul(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"\xef\xbb\xbfone\r\ntwo\r\n\r\nth" + b"\0ree and much text" * 4
    data += b"\rfour \xe2\x80\xa8 five"
    docs, counts = read(write(tmp_path, "a.txt", data))
    assert docs == ["one\ntwo", "th" + "ree and much text" * 4 + "\nfour \u2028 five"]
    assert counts["nul_characters"] == 4
    monkeypatch.setattr(streams, "CHUNK", 8)
    path = write(tmp_path, "b.txt", b"1234567\r\n\r\nabcdef\r\n\r\nx")
    assert read(path)[0] == ["1234567", "abcdef", "x"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(alphabet="ab é中\n😀", max_size=40), max_size=8), st.integers(8, 64))
def test_chunking_never_changes_the_documents(blocks: list[str], size: int) -> None:
    text = "\n\n".join(blocks)
    found = documents.split(
        (text[i : i + size] for i in range(0, len(text), size)), documents.BLANK_LINE, Counter()
    )
    expected = documents.BLANK_LINE.split(text)
    assert [d.strip() for d in found if d.strip()] == [d.strip() for d in expected if d.strip()]


@pytest.mark.parametrize("chunk", [3, 1 << 20])
def test_encoding_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(streams, "CHUNK", chunk)
    path = write(tmp_path, "latin.txt", b"fine\r\n\r\nna\xefve caf\xe9\n\nalso fine\n")
    with pytest.raises(UserError, match=r"latin\.txt, line 3, is not UTF-8"):
        read(path)
    replaced = ["fine", "na\ufffdve caf\ufffd", "also fine"]
    assert read(path, encoding_errors="replace") == (replaced, {"encoding_errors": 1})
    assert read(path, encoding_errors="skip") == (["fine", "also fine"], {"encoding_errors": 1})


@pytest.mark.parametrize("ending", [".txt", ".csv", ".tsv", ".jsonl", ".fa", ".smi"])
def test_a_bad_byte_is_one_sign_in_every_kind_of_file(tmp_path: Path, ending: str) -> None:
    """JSON may also hold half a surrogate pair."""
    text, found = b"caf\xe9\xe4\xb8", "caf\ufffd\ufffd"
    heads = {".csv": b"n,text\n\xff,", ".tsv": b"text\n", ".fa": b">x\n"}
    if ending == ".jsonl":
        text, found = b'{"text": "caf\\udce9 \\ud800"}', "caf\ufffd \ufffd"
    path = write(tmp_path, f"a{ending}", heads.get(ending, b"") + text + b"\n")
    assert read(path, encoding_errors="replace")[0] == [found]
    assert read(path, encoding_errors="skip") == ([], {"encoding_errors": 1})
    with pytest.raises(UserError, match=rf"a\{ending}.* is not UTF-8\. Convert it"):
        read(path)


RECORDS = [{"text": "one\n\nstill one", "id": {"id": 2}}, {"text": "  "}, {"text": None}]
LINES = "\n\n".join(map(json.dumps, RECORDS)) + '\n{"text": "two \u2028 lines"}\n'
TABLE = 'id,text\r\n1,"one, ""two""\nthree"\r\n2,four\r\n3,\r\n'


@pytest.mark.parametrize(
    ("name", "text", "options", "found", "empty"),
    [
        ("a.jsonl", LINES, {}, ["one\n\nstill one", "two \u2028 lines"], 2),
        ("a.csv", TABLE, {}, ['one, "two"\nthree', "four"], 1),
        ("a.csv", TABLE, {"text_column": "0"}, ["1", "2", "3"], 0),
        ("a.tsv", 'body\tn\n\n"half quoted\t1\n', {"text_column": "body"}, ['"half quoted'], 0),
    ],
)
def test_tables(tmp_path, name, text, options, found, empty):
    docs, counts = read(write(tmp_path, name, text), **options)
    assert docs == found
    assert counts["empty_rows"] == empty


def test_parquet(tmp_path: Path) -> None:
    """A flipped bit, where pages have checksums, is an error."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    plain: dict[str, Any] = {"compression": "none", "use_dictionary": False}
    texts = [f"number {i:06d}" for i in range(200)]
    table = pyarrow.table({"text": [*texts, None], "n": range(201)})
    parquet.write_table(table, path, write_page_checksum=True, **plain)
    docs, counts = read(path)
    assert docs == texts
    assert counts["empty_rows"] == 1
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"number 000100") + 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(UserError, match=r"a\.parquet is truncated, damaged or not a parquet file"):
        read(path)


def peak_mb() -> int:
    """Of this process. (ru_maxrss begins with that of the process that has started it.)"""
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(kilobytes) >> 10


def memory_of(path: Path) -> tuple[int, int]:
    """The characters of its documents, and the MB that reading them takes; in a fresh process."""
    pytest.importorskip("pyarrow.parquet")
    options, before = PrepareConfig(inputs=(str(path),), output_dir="unused"), peak_mb()
    source = Source("a", "table", path)
    size = sum(map(len, documents.documents(source, options, counts=Counter())))
    return size, peak_mb() - before


@pytest.mark.slow
@pytest.mark.parametrize("same", [False, True], ids=["each its own", "one text, as a dictionary"])
def test_memory_of_long_rows_of_parquet(tmp_path: Path, same: bool) -> None:
    """Two gigabytes in 256 rows."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    draw = random.Random(0)
    words = " ".join("".join(draw.choices("abcdefghij", k=6)) for _ in range(1 << 17)) * 8
    schema = pa.schema([("text", pa.string())])
    how: dict[str, Any] = {"compression": "snappy", "write_batch_size": 1, "use_dictionary": same}
    texts = pa.chunked_array([[words if same else f"{words}{i}"] for i in range(256)])
    with pq.ParquetWriter(tmp_path / "a.parquet", schema, **how) as writer:
        writer.write_table(pa.table({"text": texts}, schema=schema))
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
        size, peak = fresh.submit(memory_of, tmp_path / "a.parquet").result()
    assert size > 256 * 7_000_000
    assert peak < 500


@pytest.mark.slow
def test_data_set_of_a_local_folder(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    write(tmp_path, "train.jsonl", '{"text": "one"}\n{"text": "two"}\n')
    options = PrepareConfig(inputs=("x",), output_dir="unused")
    source = Source("hub:local", "hub", hub=str(tmp_path))
    assert list(documents.documents(source, options, counts=Counter())) == ["one", "two"]


FASTA = """>sp|P1|ONE first protein
MKVLAA
GIVGLC

>two
MSTN PQRS
> three, without residues
;an old comment
>four
acgt*
"""


def test_sequences_are_joined_and_names_left_out(tmp_path: Path) -> None:
    wanted = ["MKVLAAGIVGLC", "MSTNPQRS", "acgt*"]
    assert read(write(tmp_path, "a.fasta", FASTA)) == (wanted, {})
    data = FASTA.replace("\n", "\r\n").encode()
    assert read(write(tmp_path, "a.FNA", data))[0] == wanted
    assert read(write(tmp_path, "b.fa.gz", gzip.compress(data)))[0] == wanted
    with pytest.raises(UserError, match=r"a\.fa, line 2: '>' inside a sequence"):
        read(write(tmp_path, "a.fa", ">a\nAC>b\nGT\n"))
    with pytest.raises(UserError, match=r"a\.fa, line 2 comes before the first '>'"):
        read(write(tmp_path, "a.fa", "\nplain text\n>x\nACGT\n"))


@settings(max_examples=50, deadline=None)
@given(
    sequences=st.lists(st.text(alphabet="ACGT", min_size=1, max_size=90), max_size=6),
    width=st.integers(1, 70),
    longest=st.integers(7, 50),
)
def test_nothing_of_a_sequence_is_lost(tmp_path_factory, sequences, width, longest):
    """However lines are folded, and with documents that are cut because they are too long."""
    lines: list[str] = []
    for number, sequence in enumerate(sequences):
        lines.append(f">{number}")
        lines += [sequence[i : i + width] for i in range(0, len(sequence), width)]
    path = write(tmp_path_factory.mktemp("x"), "a.fa", "\n".join(lines))
    assert read(path)[0] == sequences
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "MAX_DOCUMENT", longest)
        pieces, counts = read(path)
    assert "".join(pieces) == "".join(sequences)
    assert all(len(piece) <= longest for piece in pieces)
    assert (counts["cuts"] > 0) == any(len(sequence) > longest for sequence in sequences)


def test_long_documents_are_cut_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "MAX_DOCUMENT", 100)
    monkeypatch.setattr(streams, "CHUNK", 64)
    words = " ".join(f"wörd{i}" for i in range(200))
    docs, counts = read(write(tmp_path, "a.txt", words))
    assert " ".join(docs) == words
    assert len(docs) > 10
    assert all(len(d) <= 100 for d in docs)
    assert counts["cuts"] == len(docs) - 1
    one_word = "é中😀" * 300
    assert "".join(read(write(tmp_path, "b.txt", one_word))[0]) == one_word
    assert "".join(read(write(tmp_path, "c.jsonl", json.dumps({"text": one_word})))[0]) == one_word
