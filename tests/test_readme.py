"""The pages: their commands parse, their links lead somewhere, and the files and tests that they
name exist. Nothing is run but the example for SLURM, without Slurm."""

import os
import re
import shlex
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from electrify import cli
from electrify.errors import UserError
from electrify.recipe import override
from electrify.rules import check
from electrify.train.options import Pretrain

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
FOLDERS = ("docs", "research", "benchmarks", "examples")
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(page for name in FOLDERS for page in sorted((ROOT / name).rglob("*.md"))),
]
# What was run and measured, with the flags of its day.
HISTORY = ("results.md", "log.md")
FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
ENDS = r" (?:\|\|?|&&?|;|>>?|2>&1)(?: |$)"
# A folder of that name comes after something else than assignments (A=b) and -m.
PROGRAM = re.compile(r"(?:(?:\$ )?(?:\w+=\S+ )*(?:\S*/)?|.* -m )electrify(?= |$)(.*)")


def blocks(text: str) -> list[str]:
    return FENCE.findall(text)


def commands(text: str) -> list[list[str]]:
    """The words after `electrify` of every command in the code blocks, however it is started
    (bin/electrify, -m electrify, torchrun)."""
    found = []
    for line in "\n".join(blocks(text)).replace("\\\n", " ").splitlines():
        for part in re.split(ENDS, line):
            if program := PROGRAM.fullmatch(part.strip()):
                with suppress(ValueError):  # an apostrophe: prose or Python, no command
                    found.append(shlex.split(program[1], comments=True))
    return found


def wrong(words: list[str]) -> str:
    """What is wrong with a command; empty where nothing is. `...` and [options] stand for anything,
    so such a line is a summary, not a command."""
    if any(re.search(r"^\[|\.\.\.$|^<", w) for w in words):
        return ""
    if not words or words[0] not in cli.COMMANDS or cli.HELP & {*words}:
        return "" if not words or words[0].startswith("-") or words[0] in cli.COMMANDS else words[0]
    # A file that the reader writes.
    own = any(re.search(r"\.yaml$|^\w+:[A-Z]\w+$", word) for word in words)
    try:
        options = {} if own else cli.read(words[0], words[1:])
        if isinstance(options, Pretrain):
            check(override(options.base, options.changes), options.changes)
    except UserError as e:
        return str(e)
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands(page: Path) -> None:
    found = commands(page.read_text(encoding="utf-8")) if page.name not in HISTORY else []
    assert not {" ".join(c): fault for c in found if (fault := wrong(c))}
    if page == README:
        assert {c[0] for c in found} >= {"prepare", "pretrain", "finetune", "detect", "predict"}


def anchors(page: Path) -> set[str]:
    """The fragments of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links(page: Path) -> None:
    """Relative links lead to files of this repository, and to headings that they have."""
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("\n", page.read_text(encoding="utf-8"))):
        if "://" in link or link.startswith("mailto:"):
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), link


def test_reliability_names_tests_that_are_there() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", page)
    assert len(named) > 40
    for file, test in named:
        path = ROOT / "tests" / file
        assert path.is_file(), file
        assert f"def {test}(" in path.read_text(encoding="utf-8") or not test, f"{file}::{test}"


def test_the_design_names_files_that_are_there() -> None:
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    named = set(re.findall(r"[\w/]+\.py\b", text))
    assert len(named) > 20
    there = [f"/{p.relative_to(ROOT).as_posix()}" for p in ROOT.glob("[!.]*/**/*.py")]
    assert [n for n in sorted(named) if not any(p.endswith(f"/{n}") for p in there)] == []
    packages = {p.parent.name for p in (ROOT / "src" / "electrify").glob("*/__init__.py")}
    assert [p for p in sorted(packages) if f" {p}/" not in text and f"/{p}/" not in text] == []


@pytest.mark.parametrize(
    ("attempt", "status", "queued"),
    [
        ("exit 2", 2, False),  # a mistake, where nothing was ever saved
        ("mkdir -p run/checkpoint-1000; exit 1", 0, True),
        ("mkdir -p run/checkpoint-500 run/checkpoint-1000", 0, True),
        ("mkdir -p run/checkpoint-500; exit 1", 2, False),
        ("for p in discriminator generator; do mkdir run/$p; > run/$p/config.json; done", 0, False),
    ],
)
def test_the_example_for_slurm_queues_no_mistake_again(tmp_path, attempt, status, queued):
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    (script,) = (block for block in blocks(page) if "#SBATCH" in block)
    if attempt != "exit 2":
        (tmp_path / "run" / "checkpoint-500").mkdir(parents=True)
    for name, text in (("srun", attempt), ("scontrol", 'echo "$@" >> asked')):
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    here = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RUN": "run", "SLURM_JOB_ID": "7"}
    ran = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=os.environ | here, check=False, timeout=60
    )
    assert ran.returncode == status
    assert ("requeue 7" in (tmp_path / "asked").read_text()) == queued
