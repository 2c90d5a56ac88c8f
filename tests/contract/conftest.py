"""Options of the contract, and how outcomes are compared: with the recorded ones, or with those of
another checkout on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import material
import pytest
from outcomes import RECORDED, Outcome, differences, record
from program import Program

HERE = Path(__file__).resolve().parent


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("contract")
    group.addoption("--record", action="store_true", help="write recorded.json anew")
    group.addoption(
        "--against", metavar="CLONE", help="compare, to the bit, with this checkout and its .venv"
    )
    group.addoption("--kills", type=int, default=3, help="random SIGKILLs of each kind of run")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only what is compared, where it is recorded or compared with another checkout."""
    if config.getoption("--record") or config.getoption("--against"):
        items[:] = [i for i in items if "agrees" in getattr(i, "fixturenames", ())]


@pytest.fixture(scope="session")
def program() -> Program:
    return Program(HERE.parent.parent, Path(sys.executable))


@pytest.fixture(scope="session")
def other(request: pytest.FixtureRequest) -> Program | None:
    clone = request.config.getoption("--against")
    if clone is None:
        return None
    checkout = Path(clone).resolve()
    return Program(checkout, checkout / ".venv" / "bin" / "python")


@pytest.fixture(scope="session")
def data_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Program], Path]:
    """The corpus that trainings read, prepared once by each program."""
    made: dict[Program, Path] = {}

    def prepared(program: Program) -> Path:
        if program not in made:
            folder = tmp_path_factory.mktemp("corpus")
            text = material.prose(folder / "prose.txt")
            size = {"vocab_size": 600, "valid_fraction": 0.1, "workers": 1, "strip_accents": True}
            program.one("prepare", text, output_dir=folder / "data", **size)
            made[program] = folder / "data"
        return made[program]

    return prepared


@pytest.fixture(scope="session")
def data(data_of: Callable[[Program], Path], program: Program) -> Path:
    return data_of(program)


@pytest.fixture
def agrees(
    request: pytest.FixtureRequest, program: Program, other: Program | None, tmp_path: Path
) -> Callable[[str, Callable[[Program, Path], Outcome]], None]:
    """agrees(part, measure): that `measure` finds in this checkout what was recorded as `part`, or
    what it finds in the other checkout."""

    def check(part: str, measure: Callable[[Program, Path], Outcome]) -> None:
        here = tmp_path / "here"
        here.mkdir()
        now = json.loads(json.dumps(measure(program, here)))
        if request.config.getoption("--record"):
            record(part, now)
            return
        if other is not None:
            there = tmp_path / "there"
            there.mkdir()
            was = json.loads(json.dumps(measure(other, there)))
        else:
            was = json.loads(RECORDED.read_text(encoding="utf-8"))[part]
        found = differences(was, now, exact=other is not None)
        assert not found, f"{len(found)} differences:\n" + "\n".join(found[:40])

    return check
