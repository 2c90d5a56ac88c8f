"""`prepare` end to end: what is in the folder, that it is the same however it came about, options
that cannot be meant, and refusals."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import lzma
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from presets import from_preset
from vocabularies import some_texts

from electrify.errors import UserError
from electrify.files import claim
from electrify.text import prepare
from electrify.text.corpus import (
    STATE,
    UNFINISHED,
    Corpus,
    Manifest,
    ShardWriter,
    read_manifest,
    verify,
)
from electrify.text.dedup import digest, fraction, until
from electrify.text.options import PRESETS, PrepareConfig, differing
from electrify.text.report import report
from electrify.text.tokenizer import load_tokenizer
from small import mistake, write_text
from small import run as command

SMALL: dict[str, Any] = {"vocab_size": 400, "workers": 1, "valid_fraction": 0.1}


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "TASK_CHARACTERS", 20_000)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    texts = some_texts(400)
    (folder / "a.txt").write_text("\n\n".join(texts[:250]), encoding="utf-8")
    with gzip.open(folder / "b.jsonl.gz", "wt", encoding="utf-8") as f:
        f.writelines(json.dumps({"text": t}) + "\n" for t in [*texts[250:], *texts[:50], ""])
    return folder


def run(corpus: Path | str, output: Path, **changes: Any) -> Manifest:
    return prepare.prepare(
        PrepareConfig(inputs=(str(corpus),), output_dir=str(output), **(SMALL | changes))
    )


def contents(folder: Path) -> dict[str, str]:
    """Hashes of all files but the log, which holds seconds."""
    files = (p for p in folder.rglob("*") if p.is_file() and p.name != prepare.LOG)
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_the_folder_holds_what_was_read(corpus: Path, tmp_path: Path) -> None:
    manifest = run(corpus, tmp_path / "data")
    verify(tmp_path / "data")
    texts = some_texts(400)
    tokenizer = load_tokenizer(tmp_path / "data" / "tokenizer")
    for split in ("train", "valid"):
        data = Corpus(tmp_path / "data", split)
        expected = [
            t for t in texts if (fraction(digest(t.encode()), stream=0) < 0.1) == (split == "valid")
        ]
        found = [
            ids[a:b].tolist()
            for ids, at in zip(data.tokens, data.documents, strict=True)
            for a, b in pairwise(at)
        ]
        assert found == [tokenizer(t, add_special_tokens=False)["input_ids"] for t in expected]
        if split == "train":
            assert np.array_equal(
                data.unigram(), np.bincount(data.tokens[0], minlength=manifest.vocab_size)
            )
    counts = manifest.counts
    assert (counts["documents"], counts["duplicates"], counts["blank"]) == (400, 50, 1)
    assert counts["words"] == sum(len(t.split()) for t in texts)
    assert counts["bytes"] == sum(len(t.encode()) for t in texts)
    assert [s["name"] for s in manifest.sources] == ["corpus/a.txt", "corpus/b.jsonl.gz"]
    assert not (tmp_path / "data" / UNFINISHED).exists()
    assert str(tmp_path) not in (tmp_path / "data" / "manifest.json").read_text(encoding="utf-8")
    shown = report(manifest, folder=tmp_path / "data")
    for line in (
        r"documents +400",
        r"duplicates dropped +50",
        r"case +lower, accents kept",  # many of its words have one
        r"seconds +\d",
        r"MB/s +\d",
        r"\[UNK\] rate +\d",
        r"tokens per word +\d",
    ):
        assert re.search(line, shown)


def test_workers_and_a_second_run_change_no_byte(corpus: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path / "one")
    run(corpus, tmp_path / "three", workers=3)
    assert contents(tmp_path / "one") == contents(tmp_path / "three")


def test_options_about_documents(corpus: Path, tmp_path: Path) -> None:
    manifest = run(corpus, tmp_path / "all", deduplicate=False, valid_fraction=0.0)
    assert (
        manifest.counts["documents"],
        manifest.counts["duplicates"],
        manifest.splits["valid"],
    ) == (450, 0, [])
    manifest = run(corpus, tmp_path / "few", max_documents=7, vocab_size=200)
    assert manifest.counts["documents"] == 7


def test_an_existing_tokenizer_is_taken_over(corpus: Path, tmp_path: Path) -> None:
    first = run(corpus, tmp_path / "first")
    second = run(corpus, tmp_path / "second", tokenizer=str(tmp_path / "first" / "tokenizer"))
    assert (second.vocab_size, second.special_ids, second.dtype) == (
        first.vocab_size,
        first.special_ids,
        "uint16",
    )
    assert second.unigram_sha256 == first.unigram_sha256
    assert second.options["tokenizer"] == "tokenizer"


def test_shards_have_a_limit_and_whole_documents(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path, "train", dtype=np.dtype("<u2"), shard_bytes=20)
    lengths = [3, 4, 3, 0, 12, 1, 9, 2]  # ten tokens fit; twelve get a shard of their own
    for piece in (lengths[:3], lengths[3:]):
        writer.add(np.array(piece), np.concatenate([np.full(n, n) for n in piece]))
    shards = writer.close()
    assert [(s.documents, s.tokens) for s in shards] == [(4, 10), (1, 12), (2, 10), (1, 2)]
    assert np.load(tmp_path / shards[0].documents_file).tolist() == [0, 3, 7, 10, 10]
    assert np.fromfile(tmp_path / shards[2].tokens_file, "<u2").tolist() == [1] + [9] * 9


def test_finished_folder_is_verified_and_not_made_again(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "data"
    manifest, before = run(corpus, out), contents(out)
    capsys.readouterr()
    assert run(corpus, out, workers=2) == manifest
    assert "already prepared" in capsys.readouterr().err
    assert contents(out) == before
    with pytest.raises(UserError, match="holds another corpus: its vocab_size is 400, now 300"):
        run(corpus, out, vocab_size=300)
    with (corpus / "a.txt").open("a") as f:
        f.write("\n\nmore")
    with pytest.raises(UserError, match=r"other contents of corpus/a\.txt"):
        run(corpus, out)
    with pytest.raises(UserError, match="other inputs"):
        run(corpus / "a.txt", out)


def test_changed_files_of_a_finished_folder_are_named(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "data"
    run(corpus, out)
    for name in ("unigram.npy", "tokens-train-00000.bin", "tokenizer/tokenizer.json"):
        good = (out / name).read_bytes()
        (out / name).write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        with pytest.raises(UserError, match=f"{name} does not have the hash"):
            run(corpus, out)
        (out / name).write_bytes(good)


def test_output_folder_of_somebody_else(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "data"
    out.mkdir()
    (out / "thesis.tex").write_text("x")
    with pytest.raises(UserError, match=r"holds other files \(thesis\.tex"):
        run(corpus, out)
    assert [p.name for p in out.iterdir()] == ["thesis.tex"]
    with pytest.raises(UserError, match="is a file"):
        run(corpus, out / "thesis.tex")


@pytest.mark.parametrize(
    "names",
    [
        ["unfinished/notes.txt"],
        ["tokenizer/mine.txt"],
        ["unfinished/notes.txt", "tokenizer/mine.txt"],
        ["unfinished"],
    ],
)
def test_folders_of_the_user_with_our_names(corpus: Path, tmp_path: Path, names: list[str]) -> None:
    """A name makes nothing ours: they are foreign files like any other."""
    out = tmp_path / "data"
    for name in names:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("mine")
    before = contents(out)
    with pytest.raises(UserError, match=r"holds other files \((tokenizer|unfinished)"):
        run(corpus, out)
    assert contents(out) == before


def test_what_the_user_puts_into_a_finished_folder_stays(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "data"
    run(corpus, out)
    for name in ("unfinished/notes.txt", "tokenizer/mine.txt"):
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text("mine")
    before = contents(out)
    run(corpus, out)
    assert contents(out) == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "corpus is empty"),
        (b"\n \n\t\n\n", "corpus is empty"),
        (b"\xff\xfe\xfd", "UTF-16|not UTF-8"),
        (random.Random(0).randbytes(5000), "binary|not UTF-8"),
    ],
)
def test_unusable_files_leave_nothing_prepared(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(UserError, match=message):
        run(tmp_path / "a.txt", tmp_path / "data")
    assert not (tmp_path / "data" / "manifest.json").exists()


def test_impossible_options(tmp_path: Path) -> None:
    for changes, message in (
        ({"valid_fraction": 1.0}, "valid_fraction"),
        ({"workers": 0}, "workers"),
        ({"vocab_size": 3}, "vocab_size"),
    ):
        with pytest.raises(UserError, match=message):
            run("x", tmp_path / "data", **changes)
    with pytest.raises(UserError, match="inputs"):
        PrepareConfig(inputs=(), output_dir="x")


def test_everything_in_validation(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(
        next(t for t in some_texts() if fraction(digest(t.encode()), stream=0) < 0.5)
    )
    with pytest.raises(UserError, match="lower valid_fraction"):
        run(tmp_path / "a.txt", tmp_path / "data", valid_fraction=0.5)


def test_a_disk_that_fills_up(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        UserError, match=r"No space left on device; make room and run the same command again"
    ):
        run(corpus, tmp_path / "data")
    monkeypatch.undo()
    run(corpus, tmp_path / "data")


def test_two_processes_in_one_folder(corpus: Path, tmp_path: Path) -> None:
    with claim(tmp_path / "data", STATE), pytest.raises(UserError, match="another process writes"):
        run(corpus, tmp_path / "data")


PROGRAM = """
import sys
from electrify.text.options import PrepareConfig
from electrify.text import prepare
prepare.TASK_CHARACTERS = 20_000
prepare.prepare(PrepareConfig(
    inputs=(sys.argv[1],), output_dir=sys.argv[2], vocab_size=400, workers=2, valid_fraction=0.1
))
"""


def start(corpus: Path, out: Path) -> subprocess.Popen[bytes]:
    # A shell starts background jobs with SIGINT ignored, and so would everything below them.
    heard = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(corpus), str(out)],
        stderr=subprocess.PIPE,
        preexec_fn=heard,
    )


def stop_when(process: subprocess.Popen[bytes], moment: Callable[[], Any], sign: int) -> None:
    deadline = time.monotonic() + 120
    while process.poll() is None and not moment():
        assert time.monotonic() < deadline
    process.send_signal(sign)
    process.communicate()


def children(pid: int) -> list[int]:
    """Processes whose parent is `pid`."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
        except OSError:  # it ended meanwhile
            continue
    return found


def gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_with_the_same_bytes(corpus: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path / "unbroken")
    out = tmp_path / "data"
    inside = out / UNFINISHED
    parts = lambda: len(list(inside.glob("parts/*/*.part")))  # noqa: E731
    moments: list[Callable[[], Any]] = [
        (inside / "state.json").exists,
        (out / "tokenizer" / "tokenizer.json").exists,
        lambda: parts() >= 1,
        lambda: parts() >= 3,
        lambda: list(out.glob("*.bin*")),
        (out / "unigram.npy").exists,
        (out / "manifest.json").exists,
    ]
    for moment in moments:
        process = start(corpus, out)
        stop_when(process, moment, signal.SIGKILL)
    manifest = run(corpus, out)
    assert contents(out) == contents(tmp_path / "unbroken")
    assert manifest.counts["documents"] == 400


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_stopping_leaves_no_process_and_finished_parts_are_used(
    corpus: Path, tmp_path: Path, sign: int
) -> None:
    out = tmp_path / "data"
    pids: list[int] = []
    process = start(corpus, out)

    def first_part() -> bool:
        pids[:] = children(process.pid) or pids
        return any(out.glob(f"{UNFINISHED}/parts/*/*.part"))

    stop_when(process, first_part, sign)
    assert process.returncode != 0
    assert not (out / "manifest.json").exists()
    assert pids
    assert gone(pids)
    run(corpus, out)
    assert json.loads((out / prepare.LOG).read_text())["parts_reused"] >= 1
    run(corpus, tmp_path / "unbroken")
    assert contents(out) == contents(tmp_path / "unbroken")


def test_changed_input_and_options_of_an_unfinished_run(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*args: Any, **kwargs: Any) -> Manifest:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(prepare, "join", stop)
        with pytest.raises(KeyboardInterrupt):
            run(corpus, tmp_path / "data")
    parts = sorted((tmp_path / "data" / UNFINISHED).glob("parts/*/*.part"))
    with pytest.raises(UserError, match="holds another corpus: its lowercase is True, now False"):
        run(corpus, tmp_path / "data", lowercase=False)
    parts[0].write_bytes(parts[0].read_bytes()[:-1])  # what the disk lost is made again
    manifest = run(corpus, tmp_path / "data")
    log = json.loads((tmp_path / "data" / prepare.LOG).read_text())
    assert log["parts_reused"] == len(parts) - 1
    shown = report(manifest, folder=tmp_path / "data")
    assert f"not counted  {len(parts) - 1} of {len(parts)} parts" in re.sub("  +", "  ", shown)
    assert "MB/s" not in shown
    run(corpus, tmp_path / "unbroken")
    assert contents(tmp_path / "data") == contents(tmp_path / "unbroken")


def test_a_file_that_stopped_the_run_is_mended(
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same command goes on after the last file, found to be broken while it was tokenised, has
    been replaced: nobody has to remove anything."""
    out, last = tmp_path / "data", corpus / "z.txt"
    text = "a last file, whole at first. " * 20
    last.write_text(text)
    real = prepare.gathered

    def breaks(pairs: Any) -> Any:
        yield from real(pairs)
        raise UserError("z.txt is broken")

    with monkeypatch.context() as patch:
        patch.setattr(prepare, "TASK_CHARACTERS", 500)
        patch.setattr(prepare, "gathered", breaks)
        with pytest.raises(UserError, match="is broken"):
            run(corpus, out)
    assert list((out / UNFINISHED).glob("parts/*/*.part"))
    last.write_text(text + "and now mended")
    with pytest.raises(UserError, match="holds another corpus: its lowercase is True, now False"):
        run(corpus, out, lowercase=False)
    capsys.readouterr()
    run(corpus, out)
    assert "corpus/z.txt changed since this folder was begun" in capsys.readouterr().err
    run(corpus, tmp_path / "unbroken")
    assert contents(out) == contents(tmp_path / "unbroken")


# ------------------------------------------------------------------ options


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_text(tmp_path / "a.txt", size=3000)


def test_empty_names(
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An empty text, as of a variable that is not set, is the path of the current folder."""
    monkeypatch.chdir(tmp_path)
    assert "inputs is empty" in mistake(capsys, "prepare", "", "--output-dir", "out")
    assert "inputs is empty" in mistake(capsys, "prepare", str(text), "", "--output-dir", "out")
    assert "--output-dir is empty" in mistake(capsys, "prepare", str(text), "--output-dir", "")
    assert "--tokenizer is empty" in mistake(
        capsys, "prepare", str(text), "--output-dir", "out", "--tokenizer", ""
    )
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("WordPiece", "wordpiece"),
        ("wordpeice", "wordpiece"),
        ("byte-level", "bpe"),
        ("SentencePiece", "unigram"),
        ("char", "character"),
    ],
)
def test_kinds_of_tokenizers_are_not_looked_for_on_the_hub(name: str, meant: str) -> None:
    with pytest.raises(UserError, match=f"there is no tokenizer {name!r}; did you mean {meant!r}"):
        PrepareConfig(inputs=("a.txt",), output_dir="out", tokenizer=name)


@pytest.mark.parametrize("name", ["bert-base-uncased", "gpt2", "owner/char", "wordpiece"])
def test_names_that_may_be_on_the_hub_pass(name: str) -> None:
    PrepareConfig(inputs=("a.txt",), output_dir="out", tokenizer=name)


@pytest.mark.parametrize(
    ("options", "formats", "unused"),
    [
        ({"vocab_size": 8000, "tokenizer": "some/where"}, {"txt"}, ["vocab_size 8000"]),
        ({"lowercase": False, "tokenizer": "x/y"}, {"txt"}, ["lowercase False"]),
        ({"min_frequency": 5, "tokenizer": "unigram"}, {"txt"}, ["min_frequency 5"]),
        ({"vocab_size": 8000, "tokenizer": "byte"}, {"txt"}, ["vocab_size 8000"]),
        ({"text_column": "content"}, {"txt", "md"}, ["text_column content"]),
        ({"dataset_split": "test"}, {"jsonl"}, ["dataset_split test"]),
        ({"document_boundary": "line"}, {"csv"}, ["document_boundary line"]),
        ({"text_column": "content", "dataset_split": "test", "vocab_size": 8000}, {"hub"}, []),
        ({"document_boundary": "line", "text_column": "content"}, {"txt", "csv"}, []),
    ],
)
def test_options_without_effect(
    options: dict[str, Any], formats: set[str], unused: list[str]
) -> None:
    said = PrepareConfig(inputs=("a",), output_dir="out", **options).unused(formats)
    assert [sentence.split(" has no effect")[0] for sentence in said] == unused


def test_archives_without_checksum_are_named(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = tmp_path / "b.txt.xz"
    packed.write_bytes(lzma.compress(text.read_bytes(), check=lzma.CHECK_NONE))
    prepare.prepare(
        PrepareConfig(
            inputs=(str(packed),), output_dir=str(tmp_path / "out"), vocab_size=300, workers=1
        )
    )
    assert (
        "b.txt.xz: packed without checksum, so a changed bit may pass for text"
        in capsys.readouterr().err
    )


def test_a_folder_called_as_a_kind_of_tokenizer_is_none(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vocabulary is trained, whatever lies beside."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wordpiece").mkdir()
    (tmp_path / "wordpiece" / "vocab.txt").write_text("hello\n")
    words = ["prepare", str(text), "--output-dir", "data", "--vocab-size", "100"]
    assert command(*words) == 0
    (tmp_path / "wordpiece" / "vocab.txt").unlink()
    (tmp_path / "wordpiece" / "vocab.txt").symlink_to(text)
    assert command(*words) == 0
    assert (
        "tokenizer_content" not in json.loads(Path("data", "manifest.json").read_text())["options"]
    )


def test_the_vocabulary_is_of_the_documents_that_are_taken() -> None:
    """With --max-documents, a document that comes again is not one more."""
    lines = ["the same line"] * 20 + [f"word{k}" for k in range(20)]
    pairs = [(digest(line.encode()), line) for line in lines]
    assert list(until(iter(pairs), 12, distinct=True)) == pairs[:31]
    assert list(until(iter(pairs), 12, distinct=False)) == pairs[:12]
    assert list(until(iter(pairs), None, distinct=True)) == pairs


@pytest.mark.parametrize("deduplicate", [True, False])
def test_nothing_behind_the_last_document_is_judged(tmp_path: Path, deduplicate: bool) -> None:
    """Duplicates behind it were counted, and a bad byte stopped the run."""
    path = tmp_path / "lines.txt"
    lines = [f"this is line number {k}" for k in range(30)]
    path.write_bytes("\n".join([lines[0]] * 3 + lines + lines[:1] * 50).encode() + b"\ncaf\xe9\n")
    options = PrepareConfig(
        inputs=(str(path),), output_dir=str(tmp_path / "data"), document_boundary="line",
        max_documents=20, deduplicate=deduplicate, vocab_size=60, workers=1,
    )  # fmt: skip
    counts = prepare.prepare(options).counts
    assert (counts["documents"], counts["duplicates"]) == (20, 3 if deduplicate else 0)


def test_a_corpus_without_a_training_document_is_refused(text: Path, tmp_path: Path) -> None:
    """With a given tokenizer it was prepared, and only `pretrain` refused it."""
    asked = {"inputs": (str(text),), "vocab_size": 100, "workers": 1}
    prepare.prepare(PrepareConfig(**asked, output_dir=str(tmp_path / "data")))
    given = str(tmp_path / "data" / "tokenizer")
    with pytest.raises(UserError, match="fell into the validation split; lower valid_fraction"):
        prepare.prepare(
            PrepareConfig(
                **asked, output_dir=str(tmp_path / "x"), tokenizer=given, valid_fraction=0.999999
            )
        )


def test_a_corpus_that_no_verb_would_read_is_refused_at_once(tmp_path: Path) -> None:
    """Two texts that differ in a capital fall into both splits, and are one text in lower case."""
    path = tmp_path / "a.txt"
    options = PrepareConfig(
        inputs=(str(path),), output_dir=str(tmp_path / "data"), tokenizer="byte",
        document_boundary="line", valid_fraction=0.5,
    )  # fmt: skip
    sides: dict[bool, str] = {}
    for k in range(100):
        draw = random.Random(k)
        text = "".join(draw.choice(letter + letter.upper()) for letter in "thechefate")
        sides.setdefault(fraction(digest(text.encode()), stream=0) < 0.5, text)
    path.write_text("".join(f"{text}\n" for text in sides.values()))
    with pytest.raises(UserError, match="would have the same tokens in train and in"):
        prepare.prepare(options)
    assert not (tmp_path / "data" / "manifest.json").exists()


PLACE: dict[str, Any] = {"inputs": ("a.txt",), "output_dir": "out"}


def test_what_is_given_wins() -> None:
    config = from_preset("dna", **PLACE, vocab_size=100, lowercase=False)
    assert (config.vocab_size, config.lowercase, config.chunk_length) == (100, False, 6)
    other = from_preset("dna", **PLACE, tokenizer="bpe")
    assert (other.tokenizer, other.pre_tokenizer, other.chunk_length) == ("bpe", "auto", None)
    plain = from_preset("dna", **PLACE, pre_tokenizer="auto")
    assert plain.tokenizer == "character"
    with pytest.raises(UserError, match="there is no preset 'proteins'; did you mean 'protein'"):
        from_preset("proteins", **PLACE)


def test_a_preset_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "a.txt"
    source.write_text("".join(f"O=S(Br)C{'O' * n}\n" for n in range(200)))
    out = tmp_path / "out"
    words = ["prepare", str(source), "--output-dir", str(out), "--preset", "smiles"]
    assert command(*words, "--vocab-size", "99", "--workers", "1") == 0
    said = capsys.readouterr().err
    assert "preset smiles sets --tokenizer character" in said
    assert "--max-seq-length 128" in said
    assert "--vocab-size" not in said
    assert "consider" not in said
    manifest = read_manifest(out)
    assert manifest.options["lowercase"] is False
    assert manifest.options["vocab_size"] == 99
    assert manifest.counts["documents"] == 200
    assert manifest.counts["unk_tokens"] == 0
    assert "did you mean 'smiles'?" in mistake(
        capsys, "prepare", source, "--output-dir", out, "--preset", "smile"
    )


def test_what_a_preset_has_set_is_not_advised_again() -> None:
    """`--preset dna --tokenizer byte` was told to take chunks, which byte refuses."""
    for preset in PRESETS:
        for kind in ("bpe", "unigram", "character", "byte"):
            assert differing(preset, from_preset(preset, **PLACE, tokenizer=kind)) == []
    config = PrepareConfig(**PLACE, tokenizer="byte")
    assert differing("dna", config) == ["--document-boundary line"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"pre_tokenizer": "chunks"}, "chunk_length"),
        ({"chunk_length": 3}, "chunk_length"),
        ({"chunk_length": 65, "pre_tokenizer": "chunks"}, "chunk_length"),
        ({"tokenizer": "byte", "pre_tokenizer": "chunks", "chunk_length": 3}, "pre_tokenizer"),
        ({"tokenizer": "some/where", "pre_tokenizer": "none"}, "pre_tokenizer"),
    ],
)
def test_pre_tokenizers_that_cannot_work(options: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=f"^{named} "):
        PrepareConfig(**PLACE, **options)


def test_another_tokenizer_of_the_same_name(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are in folders called `tokenizer`; also after a kill. A folder that was moved is the
    same."""
    for size in (120, 100):
        run(text, tmp_path / f"made{size}", vocab_size=size)
    one, other = (str(tmp_path / f"made{size}" / "tokenizer") for size in (120, 100))
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "join", lambda *words: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            run(text, tmp_path / "data", tokenizer=one)
    with pytest.raises(UserError, match="another tokenizer"):
        run(text, tmp_path / "data", tokenizer=other)
    shutil.copytree(one, tmp_path / "moved" / "tokenizer")
    run(text, tmp_path / "data", tokenizer=str(tmp_path / "moved" / "tokenizer"))
    with pytest.raises(UserError, match="another tokenizer"):
        run(text, tmp_path / "data", tokenizer=other)


FILES_PASSED = """
import sys
import electrify.cli
electrify.cli.main(["prepare", sys.argv[1], "--output-dir", sys.argv[2], "--vocab-size", "100"])
names = sorted(name for name in sys.modules if name.startswith("electrify"))
print(len(names))
"""


def test_few_files_are_passed(text: Path, tmp_path: Path) -> None:
    """71 before."""
    words = [sys.executable, "-c", FILES_PASSED, str(text), str(tmp_path / "data")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    number = done.stdout.splitlines()[-1]
    assert int(number) <= 33
