"""Mistakes in what a command is given: a corpus, a tokenizer, a folder. Each is one sentence with
status 2, and nothing is left behind."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from pathlib import Path

import pytest
import zstandard

from small import listing, mistake, write_text

# ------------------------------------------------------------------ bad corpora

LINES = b'{"text": "one two three"}\n{"text": "four five six"}\n'


def cut(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3]


CORPORA: list[tuple[str, bytes | None, str]] = [
    ("nowhere.txt", None, "no such file or folder"),
    ("empty.txt", b"", "empty"),
    ("blank.txt", b"\n \n\t\n\n", "empty"),
    ("bom.txt", b"\xef\xbb\xbf", "empty"),
    ("program.txt", b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 20, "binary"),
    ("latin.txt", "déjà vu\n".encode("latin-1") * 50, "not UTF-8"),
    ("cut.txt.gz", cut(gzip.compress(os.urandom(20_000).hex().encode(), mtime=0)), "truncated"),
    ("cut.txt.bz2", cut(bz2.compress(os.urandom(20_000).hex().encode())), "truncated"),
    ("cut.txt.xz", cut(lzma.compress(os.urandom(20_000).hex().encode())), "truncated"),
    ("cut.txt.zst", cut(zstandard.compress(os.urandom(20_000).hex().encode())), "truncated"),
    ("no.txt.gz", b"this is not an archive", "gz"),
    ("nothing.txt.gz", b"", "truncated"),
    ("torn.jsonl", LINES + b'{"text": "sev\n' + LINES, "line 3"),
    ("keyless.jsonl", LINES + b'{"body": "seven"}\n', "line 3"),
    ("number.jsonl", LINES + b'{"text": 7}\n', "line 3"),
    ("list.jsonl", LINES + b"[1, 2]\n", "line 3"),
    ("latin.jsonl", LINES + b'{"text": "\xe9t\xe9"}\n', "line 3"),
    ("keyless.csv", b"a,b\n1,2\n", "--text-column"),
    ("ragged.csv", b"text,b\none,2\ntwo\n", "line 3"),
    ("cut.parquet", b"PAR1" + bytes(100), "parquet"),
    ("picture.png", b"\x89PNG\r\n\x1a\n", "not of a known kind"),
]


@pytest.mark.parametrize(("name", "data", "says"), CORPORA, ids=[row[0] for row in CORPORA])
@pytest.mark.parametrize("verb", ["prepare", "pretrain"])
def test_bad_corpora(capsys, tmp_path, verb, name, data, says):
    """Named alone, to `prepare` and to `pretrain`, which would prepare it first: nothing is left of
    the attempt."""
    file = tmp_path / name
    if data is not None:
        file.write_bytes(data)
    before = sorted(tmp_path.iterdir())
    sentence = mistake(
        capsys,
        verb,
        file,
        "--output-dir",
        tmp_path / "out",
        *(["--recipe", "electra-tiny"] if verb == "pretrain" else []),
    )
    assert says in sentence
    assert name in sentence
    assert sorted(tmp_path.iterdir()) == before


# ----------------------------------------------------------------- folders that hold something else


def foreign(folder: Path) -> Path:
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work", encoding="utf-8")
    return folder


def test_output_folder_that_holds_other_files(capsys, small_data, tmp_path):
    folder = foreign(tmp_path / "out")
    source = write_text(tmp_path / "a.txt", size=2000)
    for words in (["prepare", source], ["pretrain", small_data, "--recipe", "electra-tiny"]):
        sentence = mistake(capsys, *words, "--output-dir", folder)
        assert str(folder) in sentence
        assert list(listing(folder)) == ["thesis.tex"]
