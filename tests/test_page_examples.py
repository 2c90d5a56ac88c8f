"""The Python of the pages, and the commands of README, run as they are written but for numbers that
would take hours."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from electrify import cli

ROOT = Path(__file__).parent.parent
SHORTER = {
    '"train_minutes": 60': '"max_steps": 6, "train_batch_size": 16',
    "max_steps=20000": "max_steps=6, train_batch_size=16",
    "--train-minutes 60": "--max-steps 6 --train-batch-size 16",
    "vocab_size=8192": "vocab_size=1000, valid_fraction=0.1",
    "--vocab-size 8192": "--vocab-size 1000 --valid-fraction 0.1",
    'recipe="electra-tiny", ': 'recipe="corrective-tiny", mlm_share=0.4, ',
    "budgets=[1e13]": "budgets=[4e11], seeds=1",
    ", ...]": ', *((f"{label} film {i}", label) for i in range(9) for label in ("good", "bad"))]',
    "train_file=": "num_train_epochs=1, train_file=",
    '"train.csv", seeds=3': '"train.csv", seeds=3, num_train_epochs=1',
    "train.csv\n": "train.csv --num-train-epochs 1\n",
}
PAGES = ("README.md", "docs/reference.md", "docs/score.md", "docs/predict.md")
pytestmark = pytest.mark.slow


def blocks(page: str, kind: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for long, short in SHORTER.items():
        found = [block.replace(long, short) for block in found]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the files that the pages name."""
    folder = tmp_path_factory.mktemp("pages")
    prose = [p.read_text(encoding="utf-8") for p in sorted((ROOT / "research").glob("*.md"))]
    (folder / "corpus.txt").write_text("\n\n".join(prose), encoding="utf-8")
    words = (("great", "good"), ("dull", "bad"))
    rows = [f"a {word} film {i},{label}" for i in range(20) for word, label in words]
    for name in ("train.csv", "test.csv"):
        (folder / name).write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    (folder / "new.csv").write_text("text\na great film\na dull one\n", encoding="utf-8")
    return folder


def test_commands_of_the_readme(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    lines = [line for block in blocks("README.md", "") for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("electrify ")]
    assert [words[0] for words in commands] == [
        *("prepare", "pretrain", "detect", "finetune", "predict", "embed")
    ]
    for words in commands:
        assert cli.main(words) == 0, words


@pytest.mark.parametrize("page", PAGES)
def test_python_of_a_page(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the commands, so that the folders data, run and finetuned/train are there."""
    monkeypatch.chdir(folder)
    lists = [{"hypotheses": ["a great film", "a dull"], "reference": "a great film"}] * 4
    names: dict[str, Any] = {"lists": lists, "development": lists}
    found = [b for b in blocks(page, "python") if "electrify" in b]
    assert found
    for block in found:
        exec(compile(block, page, "exec"), names)
