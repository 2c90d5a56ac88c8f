"""Corpora that are not corpora: encodings, rows, archives, things that are not files. Each ends in
one sentence and leaves nothing behind, or in the documents that are there."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from electrify.errors import UserError
from electrify.text.corpus import read_manifest
from small import environment, mistake
from texts import read, write

TEXT = "".join(f"the quick brown fox jumps over the lazy dog, number {i}.\n\n" for i in range(60))


LINES = b'{"text": "one two three"}\n{"text": "four five six"}\n'


def cut(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3]


# Each reader's own refusals are in tests/text.
CORPORA: list[tuple[str, bytes | None, str]] = [
    ("nowhere.txt", None, "no such file or folder"),
    ("empty.txt", b"", "empty"),
    ("utf-16.txt", TEXT.encode("utf-16-le"), "is a binary file"),
    ("mixed.txt", TEXT.encode() + "café\n".encode("latin-1"), "line 121, is not UTF-8"),
    ("cut.txt.gz", cut(gzip.compress(os.urandom(20_000).hex().encode(), mtime=0)), "truncated"),
    ("cut.txt.zst", cut(zstandard.compress(os.urandom(20_000).hex().encode())), "truncated"),
    ("torn.jsonl", LINES + b'{"text": "sev\n' + LINES, "line 3: broken JSON"),
    ("array.json", b'[\n{"text": "x"}\n]', "this looks like one JSON array"),
    ("keyless.csv", b"a,b\n1,2\n", "--text-column"),
    ("ragged.csv", b"text,b\none,2\ntwo\n", "line 3: 1 columns, expected 2"),
    ("quote.csv", b'text,b\n"never closes, 1\n' + b"x,y\n" * 1000, "line 1002: broken CSV"),
    ("picture.png", b"\x89PNG\r\n\x1a\n", "not of a known kind"),
]


@pytest.mark.parametrize(("name", "data", "says"), CORPORA, ids=[row[0] for row in CORPORA])
def test_bad_corpora(capsys, tmp_path, name, data, says):
    file = tmp_path / name
    if data is not None:
        file.write_bytes(data)
    before = sorted(tmp_path.iterdir())
    sentence = mistake(capsys, "prepare", file, "--output-dir", tmp_path / "out", "--workers", "1")
    assert says in sentence
    assert name in sentence
    assert sorted(tmp_path.iterdir()) == before


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


# The peak of RUSAGE_SELF would be that of the process which started this one, if that is larger.
MEASURED = """
import re, resource, sys
from pathlib import Path
from electrify.cli import main
status = main(sys.argv[1:])
own = int(re.search("VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
usage = max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
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
