"""What files, columns and folders show is said before anything heavy is imported: a typo is
answered at once, and not after ten seconds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from small import environment, one_sentence

HEAVY = ["torch", "transformers", "datasets", "sklearn", "scipy", "matplotlib", "pyarrow"]
CODE = """
import contextlib, io, json, sys
from electrify.cli import main

for words in json.load(sys.stdin):
    out = contextlib.redirect_stdout(io.StringIO())
    with contextlib.redirect_stderr(io.StringIO()) as err, out:
        try:
            status = main(words)
        except SystemExit as e:
            status = e.code
    print(json.dumps([status, err.getvalue(), [m for m in HEAVY if m in sys.modules]]))
"""
GOOD = "text,label\none,a\ntwo,b\n"
OWN = ["--train-file", "good.csv", "--validation-file", "good.csv", "--output-dir", "out"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("early")
    for name in ("empty", "model", "pairs", "CoLA"):
        (folder / name).mkdir()
    (folder / "good.csv").write_text(GOOD, encoding="utf-8")
    (folder / "model" / "config.json").write_text("{}", encoding="utf-8")
    (folder / "tuned").mkdir()
    tuned = {"architectures": ["BertForSequenceClassification"]}
    (folder / "tuned" / "config.json").write_text(json.dumps(tuned), encoding="utf-8")
    (folder / "pairs" / "one.jsonl").write_text('{"sentence_good": "a"}\n', encoding="utf-8")
    (folder / "CoLA" / "train.tsv").write_text("a\tb\n", encoding="utf-8")
    return folder


CASES: list[tuple[list[str], str]] = [
    (
        ["finetune", "model", *OWN, "--text-column", "txet"],
        "no column 'txet'; did you mean 'text'?",
    ),
    (["finetune", "./nowhere", *OWN], "./nowhere: no such folder"),
    (
        ["finetune", "model", "--task", "cola", "--data-dir", "./nowhere", "--output-dir", "out"],
        "--data-dir ./nowhere: no such folder",
    ),
    (["detect", "./nowhere", "text"], "./nowhere: no such folder"),
    (["predict", "tuned", "missing.csv"], "missing.csv: no such file"),
    (
        ["evaluate", "model", "--data-dir", "pairs"],
        "one.jsonl, line 1: no text under 'sentence_bad'",
    ),
    (["evaluate", "empty", "--data-dir", "pairs"], "empty: the folder holds no config.json"),
    (["prepare", "nowhere.txt", "--output-dir", "data"], "no such file or folder: nowhere.txt"),
    (
        ["export", "nowhere", "--output-dir", "out"],
        "nowhere is not a run folder: it has no config.yaml",
    ),
    (["doctor", "nowhere"], "nowhere: no such folder"),
    (["flops", "electra-smal"], "there is no recipe 'electra-smal'"),
]


def run(folder: Path, cases: list[list[str]]) -> list[tuple[int, str, list[str]]]:
    """Status, standard error and the heavy modules loaded so far, of each, in one process."""
    code = f"HEAVY = {HEAVY}\n{CODE}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(),
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_before_anything_heavy(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    for (words, says), (status, err, heavy) in zip(
        CASES, run(folder, [words for words, _ in CASES]), strict=True
    ):
        assert (status, heavy) == (2, []), (words, err)
        assert says in one_sentence(err), words
    assert sorted(folder.rglob("*")) == before


def test_a_system_without_what_it_needs() -> None:
    """On Windows it says where it runs, before a module asks for a signal that is not there."""
    for code, status in (
        ("from electrify.__main__ import start; os.name = 'nt'; start()", 2),
        ("import electrify; os.name = 'nt'; electrify.pretrain", 1),
    ):
        done = subprocess.run(
            [sys.executable, "-c", f"import os; {code}"],
            capture_output=True,
            text=True,
            env=environment(),
            timeout=60,
            check=False,
        )
        assert done.returncode == status
        said = "electrify cannot be used here: it runs on Linux (macOS is untested)"
        assert done.stderr.splitlines()[-1].removeprefix("ImportError: ").startswith(said)
