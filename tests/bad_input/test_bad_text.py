"""Corpora that are not corpora: encodings, rows, archives, things that are not files. Each ends in
one sentence, or in the documents that are there."""

from __future__ import annotations

import gzip
import random
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (TEXT.encode("utf-16-le"), "is a binary file"),
        (TEXT.encode("utf-16-be"), "is a binary file"),
        (TEXT.encode("utf-32"), "is UTF-32 text"),
        (TEXT.encode() + "café\n".encode("latin-1") + TEXT.encode(), "line 121, is not UTF-8"),
    ],
    ids=["UTF-16-LE", "UTF-16-BE", "UTF-32", "mixed"],
)
def test_encodings(capsys, tmp_path, data, says):
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


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("a.jsonl", '{"text": NaN}\n', "line 1: 'text' must be a text, not nan"),
        ("a.csv", 'text,b\n"never closes, 1\n' + "x,y\n" * 1000, "line 1002: broken CSV"),
        ("a.txt", gzip.compress(random.Random(0).randbytes(3000)), "is a binary file"),
        ("a.txt.xz", gzip.compress(TEXT.encode()), "is damaged or not a .xz file"),
    ],
    ids=["NaN", "open quote", "gzip", "another archive"],
)
def test_rows_and_archives(capsys, tmp_path, name, data, says):
    assert says in refused(capsys, write(tmp_path, name, data), tmp_path)


MEASURED = """
import resource, sys
from electrify.cli import main
status = main(sys.argv[1:])
whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
usage = max(resource.getrusage(who).ru_maxrss for who in whose)
print("\\nMEASURED", status, usage // 1024)
"""


@pytest.mark.slow
def test_a_line_of_a_gigabyte_in_bounded_memory(tmp_path: Path) -> None:
    """Cut into documents of 8 MB; the whole is never in memory."""
    path = tmp_path / "a.txt"
    line = (" ".join(f"word{i % 977}" for i in range(130_000)) + " ").encode()
    with path.open("wb") as f:
        for _ in range((1 << 30) // len(line)):
            f.write(line)
    out = tmp_path / "out"
    words = ["prepare", str(path), "--output-dir", str(out), "--vocab-size", "1000"]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *words, "--workers", "1", "--tokenizer-sample-mb", "20"],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=900,
        check=False,
    )
    _, status, peak_mb = done.stdout.splitlines()[-1].split()
    assert status == "0", done.stderr
    counts = read_manifest(out).counts
    assert counts["cuts"] > 100
    assert counts["words"] == (1 << 30) // len(line) * 130_000
    assert int(peak_mb) < 1500
