"""Corpora that are not corpora: encodings, rows, archives, things that are not files. Each ends in
one sentence, or in the documents that are there.

What tests/text and tests/test_cli.py prove (newlines, byte order marks, broken rows, cut archives)
is not repeated here.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from electrify.errors import UserError
from electrify.text.corpus import read_manifest
from small import environment, mistake
from texts import read, write

TEXT = "".join(f"the quick brown fox jumps over the lazy dog, number {i}.\n\n" for i in range(60))


def refused(capsys: pytest.CaptureFixture[str], file: Path | str, folder: Path) -> str:
    """The sentence about a corpus; nothing is left."""
    out = folder / "out"
    sentence = mistake(capsys, "prepare", str(file), "--output-dir", str(out), "--workers", "1")
    assert not (out / "manifest.json").exists()
    return sentence


# ------------------------------------------------------------------ encodings


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (TEXT.encode("utf-16-le"), "is a binary file"),
        (TEXT.encode("utf-16-be"), "is a binary file"),
        (TEXT.encode("utf-32"), "is UTF-32 text"),
        (TEXT.encode() + "café\n".encode("latin-1") + TEXT.encode(), "line 121, is not UTF-8"),
        (TEXT.encode() + b"\xed\xa0\x80\n", "line 121, is not UTF-8"),
        (TEXT.encode() + b"\xc0\xaf\n", "line 121, is not UTF-8"),
        (TEXT.encode() + b"\xf4\x90\x80\x80\n", "line 121, is not UTF-8"),
    ],
    ids=["UTF-16-LE", "UTF-16-BE", "UTF-32", "mixed", "surrogate", "overlong", "beyond Unicode"],
)
def test_encodings(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, data: bytes, says: str
) -> None:
    assert says in refused(capsys, write(tmp_path, "a.txt", data), tmp_path)


@given(data=st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@pytest.mark.parametrize(
    "name", ["a.txt", "a.md", "a.jsonl", "a.csv", "a.tsv", "a.txt.gz", "a.csv.zst", "a.parquet"]
)
def test_any_bytes_are_documents_or_one_sentence(tmp_path: Path, name: str, data: bytes) -> None:
    if name.endswith(".gz"):
        data = gzip.compress(data)[: len(data) + 15]
    path = write(tmp_path, name, data)
    for policy in ("strict", "replace", "skip"):
        docs, said = [], ""
        try:
            docs, _ = read(path, encoding_errors=policy)
        except UserError as e:
            said = str(e)
        assert all(doc.strip() and doc.encode("utf-8") for doc in docs)
        assert not said or (name in said and "\n" not in said)


# ------------------------------------------------------------------ rows


DEEP = 100_000


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("a.jsonl", '{"text": "one", "text": "two"}\n', "line 1: 'text' occurs twice"),
        ("a.jsonl", '{"text": NaN}\n', "line 1: 'text' must be a text, not nan"),
        ("a.jsonl", '{"n": ' + '{"a":' * DEEP + "1" + "}" * DEEP + "}\n", "line 1: broken JSON"),
        ("a.jsonl", '{"n": ' + "9" * DEEP + "}\n", "line 1: broken JSON (Exceeds the limit"),
        ("a.jsonl", '{"text": "one"} {"text": "two"}\n', "line 1: broken JSON (Extra data"),
        ("a.csv", 'text,b\n"never closes, 1\n' + "x,y\n" * 1000, "line 1002: broken CSV"),
        ("a.csv", "text,text\none,two\n", "line 2: 'text' occurs twice"),
    ],
    ids=["key twice", "NaN", "deep object", "giant number", "two objects", "open quote", "column"],
)
def test_rows(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, data: str, says: str
) -> None:
    assert says in refused(capsys, write(tmp_path, name, data), tmp_path)


# ------------------------------------------------------------------ archives


def test_a_tar_is_no_text_and_is_never_unpacked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """`prepare` reads no archives of files at all, so no path inside one can lead anywhere."""
    inside = tmp_path / "inside"
    inside.mkdir()
    with tarfile.open(inside / "a.tar", "w") as archive:
        for name in ("../../escaped.txt", "/tmp/escaped.txt"):
            entry = tarfile.TarInfo(name)
            entry.size = len(TEXT)
            archive.addfile(entry, BytesIO(TEXT.encode()))
    raw = (inside / "a.tar").read_bytes()
    assert "is a binary file" in refused(capsys, write(inside, "a.txt", raw), tmp_path)
    assert "is a binary file" in refused(
        capsys, write(inside, "b.txt.gz", gzip.compress(raw)), tmp_path
    )
    assert "is a zip archive" in refused(
        capsys, write(inside, "c.txt", b"PK\x03\x04" + raw), tmp_path
    )
    for name in ("a.tar", "a.tar.gz", "a.zip", "a.7z"):
        assert "is not of a known kind" in refused(capsys, write(inside, name, raw), tmp_path)
    assert not list(tmp_path.rglob("escaped*"))


def test_an_archive_with_another_ending_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    packed = gzip.compress(TEXT.encode())
    assert "is gzip data; give it the ending .gz" in refused(
        capsys, write(tmp_path, "a.txt", packed), tmp_path
    )
    assert "is damaged or not a .xz file" in refused(
        capsys, write(tmp_path, "a.txt.xz", packed), tmp_path
    )
    twice = write(tmp_path, "twice.txt.gz", gzip.compress(packed))
    assert "holds, unpacked, gzip data" in refused(capsys, twice, tmp_path)


# ------------------------------------------------------------------ things that are not files


# ------------------------------------------------------------------ sizes


MEASURED = """
import resource, sys
from electrify.cli import main
status = main(sys.argv[1:])
whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
usage = max(resource.getrusage(who).ru_maxrss for who in whose)
print("\\nMEASURED", status, usage // 1024)
"""


def measured(words: list[str], folder: Path) -> dict[str, Any]:
    """A verb in a process of its own: its status, what it said, and the largest memory of it and of
    its workers in MB."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *words],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=900,
        check=False,
    )
    _, status, peak = done.stdout.splitlines()[-1].split()
    return {"status": int(status), "err": done.stderr, "peak_mb": int(peak)}


@pytest.mark.slow
def test_a_line_of_a_gigabyte_in_bounded_memory(tmp_path: Path) -> None:
    """Cut into documents of 8 MB; the whole is never in memory."""
    path = tmp_path / "a.txt"
    words = (" ".join(f"word{i % 977}" for i in range(130_000)) + " ").encode()
    with path.open("wb") as f:
        for _ in range((1 << 30) // len(words)):
            f.write(words)
    out = tmp_path / "out"
    done = measured(
        [
            "prepare",
            str(path),
            "--output-dir",
            str(out),
            "--vocab-size",
            "1000",
            "--workers",
            "1",
            "--tokenizer-sample-mb",
            "20",
        ],
        tmp_path,
    )
    assert done["status"] == 0, done["err"]
    counts = read_manifest(out).counts
    assert counts["cuts"] > 100
    assert counts["words"] == (1 << 30) // len(words) * 130_000
    assert done["peak_mb"] < 1500
