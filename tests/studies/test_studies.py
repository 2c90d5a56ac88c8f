"""The studies of benchmarks/studies can be planned: every command names recipes, changes, budgets
and tasks that there are. The reports of finished ones are those of their results."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from electrify import cli
from electrify.studies.cost import Cost
from electrify.studies.measures import meant_by
from electrify.studies.plan import cells
from electrify.studies.report import markdown
from electrify.studies.results import read_results
from electrify.studies.study import STUDY, entries_of
from electrify.studies.table import table_of

STUDIES = Path(__file__).parents[2] / "benchmarks" / "studies"
README = STUDIES / "README.md"
DONE = sorted(path.parent for path in STUDIES.glob("*/report.md"))
BLOCKS = re.findall(r"^```\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
COMMANDS = [
    f"electrify {words}".replace("\\\n", " ")
    for block in BLOCKS
    for words in re.split(r"^electrify ", block, flags=re.MULTILINE)[1:]
]


def test_there_are_studies() -> None:
    assert len(COMMANDS) >= 4


@pytest.mark.parametrize("command", COMMANDS, ids=lambda text: text.split("--output-dir ")[1][:8])
def test_a_study_can_be_planned(command: str) -> None:
    words = shlex.split(command)[1:]
    config = cli.read("compare", words[1:])
    entries = entries_of(config)
    cost = Cost(8192, lambda length, _: 14_000_000 // length, config.convention, config.equal)
    planned = cells(entries, config.budgets, range(config.seeds), cost)
    assert len(planned) == len(entries) * len(config.budgets) * config.seeds
    for task in config.tasks:
        meant_by(task, config.data_dir)


def test_there_are_reports() -> None:
    assert len(DONE) >= 8


@pytest.mark.parametrize("folder", DONE, ids=lambda path: path.name)
def test_a_report_is_that_of_its_results(folder: Path) -> None:
    """Of the committed lines, by the code as it is now. After a change of the page's words only,
    write `markdown(table)` there."""
    plan = yaml.safe_load((folder / STUDY).read_text())
    recipes = [recipe["name"] for recipe in plan["recipes"]]
    results = read_results(folder)
    table = table_of(
        results, recipes=recipes, tasks=tuple(plan["tasks"]), equal=plan.get("equal", "flops")
    )
    assert table.points
    assert markdown(table) == (folder / "report.md").read_text()
