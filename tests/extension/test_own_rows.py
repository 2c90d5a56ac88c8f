"""Rows of one's own from outside the repository: the example of docs/objectives.md, what is said
where a module is not there, and what a folder means without it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from electrify.compare import processes
from electrify.compare.cell import Work
from electrify.compare.plan import configured
from electrify.config.check_task import check_leaves
from electrify.config.entries import read_entry
from electrify.config.objectives import OBJECTIVES
from electrify.config.pretrain import load_recipe, override
from electrify.config.rows import OWN_ROWS, Exported
from electrify.errors import UserError
from electrify.export.folders import logits_of
from small import electrify, flags, mistake, one_sentence, pretrain_words, run

PAGE = Path(__file__).parents[2] / "docs" / "objectives.md"
FOCAL = re.compile(r"`focal\.py`:\n\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
HAD = "was a row of the module focal, which is not loaded"


def own_module(folder: Path, text: str, name: str = "focal") -> dict[str, str]:
    """The environment in which a module of this text is loaded."""
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return {OWN_ROWS: name, "PYTHONPATH": path}


def test_the_example_of_the_page(
    small_data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (text,) = FOCAL.findall(PAGE.read_text(encoding="utf-8"))
    variables = own_module(tmp_path, text)
    ran, out = tmp_path / "run", tmp_path / "out"
    words = pretrain_words(small_data, ran, max_steps=3, generator_size=0.5)
    words += flags(objective="focal", focal_gamma=1.5)
    electrify(words, tmp_path, **variables)
    facts = json.loads((ran / "run.json").read_text(encoding="utf-8"))
    assert facts["own_rows"] == {"objective": "focal"}
    card = (ran / "discriminator" / "README.md").read_text(encoding="utf-8")
    assert "(focal loss, gamma 1.5)" in card
    assert f"`{OWN_ROWS}=focal electrify pretrain DATA --config config.yaml" in card
    electrify(["export", str(ran), "--output-dir", str(out)], tmp_path, **variables)

    # Without the module.
    advice = f"set {OWN_ROWS}=focal, with the module's folder on PYTHONPATH"
    said = f"section objective: objective 'focal' {HAD}; {advice}"
    assert said in mistake(capsys, "export", ran, "--output-dir", tmp_path / "again")
    assert "objective focal there" in mistake(capsys, *pretrain_words(small_data, ran, max_steps=3))
    assert said in mistake(capsys, "flops", ran / "config.yaml")
    recipe = (ran / "config.yaml").read_text(encoding="utf-8")
    back = re.sub("\n.*focal_gamma.*", "", recipe).replace("focal", "rtd")
    (ran / "back.yaml").write_text(back, encoding="utf-8")
    assert run("flops", str(ran / "back.yaml")) == 0
    assert run("doctor", str(ran)) == 1
    (report,) = [line for line in doctor_lines(capsys) if HAD in line]
    assert advice.replace("set", "Set", 1) in report
    assert run("detect", str(out), "a text", "--json") == 0

    # A cell of a study.
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    work = Work(
        data=str(small_data),
        folder=str(tmp_path / "cell"),
        recipe=(ran / "config.yaml").read_text(encoding="utf-8"),
        parent=os.getpid(),
    )
    done = subprocess.run(
        processes.CELL,
        input=json.dumps(asdict(work)),
        env=processes.environment(None, "cpu"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "cell" / "outcome.json").read_text())["steps"] == 3


def test_a_folder_names_no_command_as_a_module(
    small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = tmp_path / "run"
    assert run(*pretrain_words(small_data, ran, max_steps=1, generator_size=0.5)) == 0
    facts = json.loads((ran / "run.json").read_text(encoding="utf-8"))
    assert "own_rows" not in facts
    config = (ran / "config.yaml").read_text(encoding="utf-8")
    for architecture, module in (("slim", "a;b"), ("slim", "own.slim")):
        own = {"architecture": architecture, "own_rows": {"architecture": module}}
        (ran / "run.json").write_text(json.dumps(facts | own), encoding="utf-8")
        (ran / "config.yaml").write_text(
            config.replace("architecture: electra", "architecture: slim")
        )
        said = mistake(capsys, "export", ran, "--output-dir", tmp_path / "out")
        assert ("was a row of the module" in said) == (module == "own.slim")
        assert "a;b" not in said


def doctor_lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The findings, each on one line."""
    text = re.sub(r"\n {11,}", " ", capsys.readouterr().out)
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("names", "text", "said"),
    [
        ("nowhere", "", "ELECTRIFY_ROWS names 'nowhere', and there is no such module; put the fo"),
        ("rows.py", "", "ELECTRIFY_ROWS names 'rows.py', and there is no such module; write the"),
        ("json.nowhere", "", "no such module; json is there ("),
        ("rows.nowhere", "", "rows.py) and has none of that name; correct it, or put"),
        ("rows", "import nowhere", "the module rows cannot be imported: ModuleNotFoundError in"),
        ("json, rows", "1 / 0", "rows.py, line 1 (division by zero)"),
        ("rows", "x = 1\ny = (", "SyntaxError in"),
        ("rows", "x = 1\ny = (", "rows.py, line 2 ("),
        ("rows", "raise SystemExit(3)", "the module rows cannot be imported: SystemExit in"),
    ],
)
def test_a_module_that_is_not_there(names: str, text: str, said: str, tmp_path: Path) -> None:
    variables = own_module(tmp_path, text, "rows") | {OWN_ROWS: names}
    done = electrify(["flops", "electra-tiny"], tmp_path, expect=2, **variables)
    assert said in one_sentence(done.err)
    assert done.out == ""


def test_a_recipe_whose_row_is_not_known_says_how_to_load_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "own.yaml"
    recipe.write_text("like: electra-tiny\nobjective: {objective: mine, depth: 2}\n")
    said = mistake(capsys, "flops", recipe)
    assert "section objective: objective cannot be 'mine'; known: " in said
    assert said.endswith(f"; {OWN_ROWS}=MODULE loads a row of your own")
    recipe.write_text("like: electra-tiny\nobjective: {objective: rdt}\n")
    words = ["pretrain", "data", "--output-dir", tmp_path / "run", "--objective", "mine"]
    assert mistake(capsys, *words).endswith(f"; {OWN_ROWS}=MODULE loads a row of your own")
    assert mistake(capsys, "flops", recipe).endswith(
        "objective cannot be 'rdt'; did you mean 'rtd'?"
    )


def test_a_study_whose_processes_would_not_know_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OBJECTIVES, "mine", replace(OBJECTIVES["rtd"], cls="mine:Mine"))
    entry = read_entry("electra-tiny:objective=mine")
    with pytest.raises(UserError, match=f"do not load by themselves; set {OWN_ROWS}=mine"):
        configured(entry, schedule=None, seed=0)
    monkeypatch.setenv(OWN_ROWS, "adds_mine")
    assert configured(entry, schedule=None, seed=0).objective.objective == "mine"
    monkeypatch.setitem(OBJECTIVES, "mine", replace(OBJECTIVES["rtd"], cls="__main__:Mine"))
    with pytest.raises(UserError, match=f"objective mine is a row of the program .* in {OWN_ROWS}"):
        configured(entry, schedule=None, seed=0)


def test_a_folder_says_itself_what_its_logits_mean(
    small_data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever rows there are where it is read."""
    monkeypatch.setitem(OBJECTIVES, "mine", OBJECTIVES["electric"])
    own = {"objective": "mine", "max_steps": 1, "generator_size": 0.5}
    assert run(*pretrain_words(small_data, tmp_path / "run", recipe="electric-tiny", **own)) == 0
    monkeypatch.delitem(OBJECTIVES, "mine")
    said = mistake(capsys, "detect", tmp_path / "run" / "discriminator", "the chef ate")
    assert "its logits are energies (objective mine)" in said


def test_a_network_of_another_row_may_have_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that was exported before it said what its logits mean."""
    leaf = Exported(title="", purpose="", logits="choice", fills=False)
    other = replace(OBJECTIVES["rtd"], leaves={"corrector": leaf})
    monkeypatch.setitem(OBJECTIVES, "other", other)
    for objective, logits in (("corrective", "token"), ("other", "choice")):
        mark = {"format": 1, "part": "corrector", "objective": objective}
        (tmp_path / "electrify.json").write_text(json.dumps(mark))
        assert logits_of(str(tmp_path)) == logits


@pytest.mark.parametrize(
    "name",
    ["tokenizer", "run.json", "checkpoint-9", "a/b", "discriminator", ".lock", "config.json"],
)
def test_a_network_with_the_name_of_a_file_of_the_run(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaf = Exported(title="", purpose="", logits="token", fills=False)
    monkeypatch.setitem(OBJECTIVES, "mine", replace(OBJECTIVES["rtd"], leaves={name: leaf}))
    config = override(load_recipe("electra-tiny"), {"objective": "mine"})
    with pytest.raises(UserError, match=f"mine leaves a network in a folder '{name}'"):
        check_leaves(config.corruption, config.objective)


def test_two_networks_of_a_run_with_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    leaf = Exported(title="", purpose="", logits="token", fills=False)
    monkeypatch.setitem(OBJECTIVES, "mine", replace(OBJECTIVES["rtd"], leaves={"generator": leaf}))
    config = override(load_recipe("electra-tiny"), {"objective": "mine"})
    with pytest.raises(UserError, match="both leave a network in a folder generator; give one of"):
        check_leaves(config.corruption, config.objective)
