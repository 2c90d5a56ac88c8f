"""The verb: what a folder is taken for, the report, JSON, and the exit status."""

from __future__ import annotations

import errno
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from folders import TOKENS

import electrify
from electrify import cli
from electrify.config.doctor import DoctorConfig
from electrify.doctor.findings import DamageError, Diagnosis, error, guarded, note, ok
from electrify.doctor.report import Report, diagnose, group
from electrify.doctor.shards import load_array
from electrify.errors import UserError
from small import mistake, one_sentence


def test_a_healthy_folder(small_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", str(small_data)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{small_data}  (DATA: prepared corpus)\n  ok       ")
    assert out.rstrip().splitlines()[-1].startswith("1 folder: ")
    assert out.rstrip().endswith(", 0 errors")
    assert max(map(len, out.splitlines()[1:])) <= 120


def test_a_damaged_folder_in_json(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / TOKENS).write_bytes(b"")
    assert cli.main(["doctor", str(data), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    (folder,) = found["folders"]
    assert (folder["path"], folder["kind"]) == (str(data), "DATA")
    assert found["counts"]["error"] == sum(f["level"] == "error" for f in folder["findings"]) == 1
    (bad,) = [f for f in folder["findings"] if f["level"] == "error"]
    assert bad["code"] == "size"
    assert "it is truncated" in bad["fact"]
    assert bad["advice"]


def with_files(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda p: None, "no such folder"),
        (lambda p: p.write_text("x"), "is a file"),
        (lambda p: p.mkdir(), "is empty: nothing has been made there"),
        (lambda p: (p.mkdir(), (p / ".lock").touch()), "is empty: nothing has been made there"),
        (
            lambda p: (p.mkdir(), (p / "notes.txt").touch()),
            "neither a prepared corpus nor a run nor a Hugging Face model",
        ),
        (lambda p: (p.mkdir(), (p / "vocab.txt").touch()), "holds a tokenizer only"),
        (lambda p: (p / "models").mkdir(parents=True), "neither a prepared corpus nor a run"),
        (
            lambda p: with_files(p, "scores.jsonl"),
            "results of `electrify finetune` and no model; name",
        ),
        (
            lambda p: with_files(p, "finetune.json", "models/a-seed0/config.json"),
            "`electrify finetune`, which are not examined; name a model in it, such as x/models/a-",
        ),
        (
            lambda p: with_files(p, "study.yaml", "cells/a-seed0/run/config.yaml"),
            "`electrify compare`, which are not examined; name a run in it, such as x/cells/a-",
        ),
    ],
)
def test_what_is_none_of_the_three(
    tmp_path: Path,
    make,
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "x")
    assert cli.main(["doctor", "x"]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert says in one_sentence(err)


@pytest.mark.parametrize(
    "name",
    [
        "manifest.json",
        "unigram.npy",
        "run.json",
        "config.yaml",
        "metrics.jsonl",
        "config.json",
        "model.safetensors",
    ],
)
def test_one_file_is_enough_to_know_a_damaged_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    report = electrify.diagnose(electrify.DoctorConfig(paths=(str(tmp_path),)))
    assert report.status == 1
    assert report.counts["error"] >= 1


def test_what_a_check_breaks_on_is_a_finding() -> None:
    def broken(e: BaseException):
        yield ok("a", "seen before")
        raise e

    for e, code in (
        (DamageError("x", "a is damaged", "Restore it."), "x"),
        (UserError("a is wrong; do b"), "refused"),
        (PermissionError(13, "Permission denied", "/a/b"), "unreadable"),
        (ZeroDivisionError("oh"), "damaged"),
        (RecursionError(), "damaged"),
    ):
        before, found = guarded(lambda e=e: broken(e))
        assert (before.code, found.level, found.code) == ("a", "error", code)
        assert found.fact
        assert found.advice
    with pytest.raises(KeyboardInterrupt):
        list(guarded(lambda: broken(KeyboardInterrupt())))


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
    ],
)
def test_memory_that_runs_out_says_nothing_about_a_folder(
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
) -> None:
    def full(*_: object) -> None:
        raise error

    monkeypatch.setattr("electrify.doctor.shards.read_tokens", full)
    assert "memory ran out" in mistake(capsys, "doctor", str(data))


@pytest.mark.parametrize(
    "header",
    [
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff",  # four gigabytes of header
        b"\x93NUMPY\x01\x00\x76\x00"
        + b"{'descr': '<i8', 'fortran_order': False, 'shape': (1125899906842624,), }".ljust(117)
        + b"\n",
        b"\x93NUMPY\x01\x00\x00\x20" + b"-" * 8191 + b"1",
    ],
    ids=["long", "claims", "nested"],
)
def test_an_array_that_claims_too_much_is_damaged(tmp_path: Path, header: bytes) -> None:
    """However much memory there is."""
    (tmp_path / "a.npy").write_bytes(header + bytes(80))
    with pytest.raises(DamageError, match=r"claims 1,125,|not an array of numpy"):
        load_array(tmp_path / "a.npy")


def test_a_command_can_be_copied(finished: Path, tmp_path: Path) -> None:
    """Whatever the folder is called, and however long its name is."""
    run = tmp_path / f"a  {'long' * 30} b"
    shutil.copytree(finished, run, ignore=shutil.ignore_patterns("discriminator", "generator"))
    text = diagnose(DoctorConfig(paths=(str(run),))).text()
    (command,) = re.findall("`(electrify export .*)`", text)
    assert shlex.split(command)[2] == str(run)


def test_the_worst_stands_last_and_nothing_steers_the_terminal() -> None:
    d = Diagnosis(
        Path("d"), "MODEL", [error("e", "a\x1b[2Jb", "Do."), ok("o", "fine"), note("n", "so")]
    )
    lines = group(d).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["ok", "note", "error", "->"]
    assert "\x1b" not in group(d)
    assert Report([d]).text().splitlines()[-1] == "1 folder: 1 ok, 1 note, 0 warnings, 1 error"
