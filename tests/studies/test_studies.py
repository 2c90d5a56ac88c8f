"""The studies of benchmarks/studies can be planned: every command names recipes, changes, budgets
and tasks that there are. The reports of finished ones are those of their results."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from electrify import cli
from electrify.recipe import Recipe, dump, override
from electrify.studies.budgets import Cost, trials_of
from electrify.studies.measures import MEAN_RANK, measure_named
from electrify.studies.report import markdown, table_of
from electrify.studies.study import STUDY, entries_of, read_results

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
    assert len(DONE) >= 8


UPDATES: dict[tuple[str, str], float] = {}


def flops(self: Cost, recipe: Recipe) -> float:
    """In place of `Cost.flops`: each recipe is counted once, and not for every guess of a number of
    updates."""
    key = self.convention, dump(override(recipe, {"max_steps": 1000}))
    if key not in UPDATES:
        UPDATES[key] = COUNT(self, recipe) / recipe.train.max_steps
    return UPDATES[key] * recipe.train.max_steps


COUNT = Cost.flops


@pytest.mark.parametrize("command", COMMANDS, ids=lambda text: text.split("--output-dir ")[1][:8])
def test_a_study_can_be_planned(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cost, "flops", flops)
    words = shlex.split(command)[1:]
    config = cli.read("compare", words[1:])
    entries = entries_of(config)
    cost = Cost(8192, lambda length, _: 14_000_000 // length, config.convention, config.equal)
    least = [min(config.budgets)]  # where a warm-up may be longer than the run
    assert len([t for e in entries for t in trials_of(e, least, [0], cost, "wsd")]) == len(entries)
    for task in config.tasks:
        measure_named(task, str(tmp_path))


@pytest.mark.parametrize("folder", DONE, ids=lambda path: path.name)
def test_a_report_is_that_of_its_results(folder: Path) -> None:
    """Of the committed lines, by the code as it is now. After a change of the page's words only,
    write `markdown(table)` there."""
    plan = yaml.safe_load((folder / STUDY).read_text())
    recipes = [recipe["name"] for recipe in plan["recipes"]]
    results = list(read_results(folder).values())
    table = table_of(
        results, recipes=recipes, tasks=tuple(plan["tasks"]), equal=plan.get("equal", "flops")
    )  # the score of all these is the mean rank
    assert plan["score"] == MEAN_RANK
    assert table.rows
    assert markdown(table) == (folder / "report.md").read_text()
