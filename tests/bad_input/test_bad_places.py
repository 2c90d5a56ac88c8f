"""Places and files that cannot be read as files can: a folder that is gone, no right to look, a
file that waits, one that is larger than memory."""

from __future__ import annotations

import bz2
import gzip
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from electrify import cli
from electrify.console import size
from small import environment, mistake, one_sentence, pretrain_words, run, write_text


@pytest.fixture(scope="module")
def finished(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two updates with its exported halves."""
    folder = tmp_path_factory.mktemp("places") / "run"
    assert run(*pretrain_words(small_data, folder, max_steps=2)) == 0
    return folder


@pytest.fixture
def model(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished / "discriminator", tmp_path / "model"))


# ------------------------------------------------------------------ no right to look

POWERLESS = """
import ctypes, os, sys
if os.geteuid() == 0:  # root reads everything: this process gives up the two rights to do so
    libc = ctypes.CDLL(None)
    head, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(head, sets) == 0
    sets[0] &= ~(1 << 1 | 1 << 2)
    assert libc.capset(head, sets) == 0
from electrify.cli import main
sys.exit(main(sys.argv[1:]))
"""


def powerless(*words: str | Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", POWERLESS, *map(str, words)],
        capture_output=True,
        text=True,
        env=environment(HF_HUB_OFFLINE="1"),
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture
def locked() -> Any:
    """Takes the rights of a path away, and gives them back when the test ends."""
    taken: list[tuple[Path, int]] = []

    def take(path: Path, mode: int = 0) -> None:
        taken.append((path, path.stat().st_mode))
        path.chmod(mode)

    yield take
    for path, mode in reversed(taken):
        path.chmod(mode)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "words"), [
    ("run.json", ["export", "RUN", "--output-dir", "OUT"]),
    ("tokenizer", ["export", "RUN", "--output-dir", "OUT"]),
    (".", ["export", "RUN", "--output-dir", "OUT"]),
    ("discriminator/config.json", ["detect", "RUN/discriminator", "x"]),
    ("manifest.json", ["pretrain", "DATA", "--output-dir", "OUT"]),
])  # fmt: skip
def test_files_without_permission_are_not_called_damaged(
    small_data: Path, finished: Path, tmp_path: Path, locked: Any, name: str, words: list[str]
) -> None:
    """Nor missing: restoring them from a copy would not help."""
    data, folder = (
        Path(shutil.copytree(path, tmp_path / path.name)) for path in (small_data, finished)
    )
    locked((data if name == "manifest.json" else folder) / name)
    places = {"RUN": str(folder), "DATA": str(data), "OUT": str(tmp_path / "out")}
    done = powerless(
        *(
            word.replace(key, places[key]) if (key := word.partition("/")[0]) in places else word
            for word in words
        )
    )
    said = one_sentence(done.stderr)
    assert done.returncode == 2
    assert "cannot be read (Permission denied); make sure that you may read it" in said
    assert "damaged" not in said
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------ what a file is said to be

SAID: list[tuple[str, bytes, str]] = [
    (
        "a.txt",
        "\ufeffa text".encode("utf-32-le"),
        "is UTF-32 text; convert it to UTF-8, for example with `iconv -f UTF-32",
    ),
    ("a.txt", "\ufeffa text".encode("utf-32-be"), "is UTF-32 text"),
    ("a.txt", "\ufeffa text".encode("utf-16-le"), "is UTF-16 text"),
    (
        "a.txt.gz",
        gzip.compress(gzip.compress(b"a text")),
        "holds, unpacked, gzip data",
    ),
    (
        "a.txt.bz2",
        bz2.compress(gzip.compress(b"a text")),
        "holds, unpacked, gzip data",
    ),
    ("a.txt.gz", gzip.compress("\ufeffa text".encode("utf-16-le")), "holds, unpacked, UTF-16 text"),
]


@pytest.mark.parametrize(("name", "data", "says"), SAID, ids=range(len(SAID)))
def test_files_that_are_no_text(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, data: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(data)
    assert says in mistake(
        capsys, "prepare", tmp_path / name, "--output-dir", tmp_path / "out", "--vocab-size", "300"
    )


def test_a_text_in_which_nothing_occurs_twice(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("a\n\nb\n\na\n\nb\n", encoding="utf-8")
    words = [
        "prepare",
        tmp_path / "a.txt",
        "--output-dir",
        tmp_path / "out",
        "--vocab-size",
        "300",
        "--deduplicate",
        "false",
        "--workers",
        "1",
    ]
    assert "its most frequent character occurs once, and equal documents count as one" in mistake(
        capsys, *words, "--min-frequency", "2"
    )


@pytest.mark.parametrize(
    ("n", "says"),
    [
        (0, "0 bytes"),
        (999, "1.0 kB"),
        (99, "99 bytes"),
        (2e6, "2.0 MB"),
        (4e8, "0.4 GB"),
        (1.5e12, "1,500.0 GB"),
    ],
)
def test_sizes_are_not_zero(n: float, says: str) -> None:
    assert size(n) == says


def test_a_full_disk_is_not_the_tokenizers_fault(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library writes with Rust, which raises a bare Exception."""
    from transformers import PreTrainedTokenizerBase

    def full(*_: Any, **__: Any) -> None:
        raise Exception("No space left on device (os error 28)")

    monkeypatch.setattr(PreTrainedTokenizerBase, "save_pretrained", full)
    (tmp_path / "t.tsv").write_text("text\tlabel\n" + "the a\tx\nan the\ty\n" * 4, encoding="utf-8")
    words = [
        "--train-file",
        tmp_path / "t.tsv",
        "--validation-file",
        tmp_path / "t.tsv",
        "--output-dir",
        tmp_path / "out",
        "--seeds",
        "1",
    ]
    said = mistake(
        capsys,
        "finetune",
        model,
        *words,
        "--save-model",
        "--num-train-epochs",
        "1",
        "--device",
        "cpu",
    )
    assert "could not be written (Exception: No space left on device (os error 28))" in said
    source = write_text(tmp_path / "a.txt", size=2000)
    said = mistake(
        capsys,
        "prepare",
        source,
        "--output-dir",
        tmp_path / "p",
        "--tokenizer",
        model,
        "--workers",
        "1",
    )
    assert "could not be written" in said
    assert "os error 28" in said


def test_the_shell_leaves_the_tilde_behind_an_equals_sign(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    found = cli.read("prepare", ["a.txt", "--output-dir=~/data", "--tokenizer=~/tokenizer"])
    assert (found.output_dir, found.tokenizer) == (f"{tmp_path}/data", f"{tmp_path}/tokenizer")
    assert cli.read("prepare", ["a", "--output-dir", "./~"]).output_dir == "./~"
