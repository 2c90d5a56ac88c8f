"""What files, columns and folders show is said before anything heavy is imported: a typo is
answered at once, and not after ten seconds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from small import environment, one_sentence

CODE = """
import contextlib, io, json, sys
from electrify.cli import main

HEAVY = {"torch", "transformers", "datasets", "sklearn", "scipy", "matplotlib", "pyarrow"}
for words in json.load(sys.stdin):
    out = contextlib.redirect_stdout(io.StringIO())
    with contextlib.redirect_stderr(io.StringIO()) as err, out:
        try:
            status = main(words)
        except SystemExit as e:
            status = e.code
    print(json.dumps([status, err.getvalue(), sorted(HEAVY & sys.modules.keys())]))
"""
FILES = {
    "good.csv": "text,label\none,a\ntwo,b\n",
    "model/config.json": "{}",
    "tuned/config.json": '{"architectures": ["BertForSequenceClassification"]}',
    "pairs/one.jsonl": '{"sentence_good": "a"}\n',
    "CoLA/train.tsv": "a\tb\n",
}
OWN = "--train-file good.csv --validation-file good.csv --output-dir out"
CASES = {
    f"finetune model {OWN} --text-column txet": "no column 'txet'; did you mean 'text'?",
    f"finetune ./nowhere {OWN}": "./nowhere: no such folder",
    "finetune model --task cola --data-dir ./nowhere --output-dir out": "--data-dir ./nowhere: no",
    "detect ./nowhere text": "./nowhere: no such folder",
    "predict tuned missing.csv": "no such file: missing.csv",
    "evaluate model --data-dir pairs": "one.jsonl, line 1: no text under 'sentence_bad'",
    "evaluate empty --data-dir pairs": "empty: the folder holds no config.json",
    "prepare nowhere.txt --output-dir data": "no such file or folder: nowhere.txt",
    "export nowhere --output-dir out": "nowhere is not a run folder: it has no config.yaml",
    "doctor nowhere": "nowhere: no such folder",
    "flops electra-smal": "there is no recipe 'electra-smal'",
}


@pytest.mark.slow
def test_before_anything_heavy(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        input=json.dumps([line.split() for line in CASES]),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(),
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for (line, says), found in zip(CASES.items(), done.stdout.splitlines(), strict=True):
        status, err, heavy = json.loads(found)
        assert (status, heavy) == (2, []), (line, err)
        assert says in one_sentence(err), line
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("from electrify.__main__ import start; os.name = 'nt'; start()", 2),
        ("import electrify; os.name = 'nt'; electrify.pretrain", 1),
    ],
)
def test_a_system_without_what_it_needs(code: str, status: int) -> None:
    """On Windows it says where it runs, before a module asks for a signal that is not there."""
    command = [sys.executable, "-c", f"import os; {code}"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == status
    said = "electrify cannot be used here: it runs on Linux (macOS is untested)"
    assert done.stderr.splitlines()[-1].removeprefix("ImportError: ").startswith(said)
