"""Rows of one's own: modules outside this package that add objectives, corruptors and architectures
to the tables.

    ELECTRIFY_ROWS=my_module[,other]   in the environment of the command line

A module adds its rows by plain assignment: `OBJECTIVES["focal"] = Objective(...)`. A program in
Python imports it; the command line imports what the variable names, in each of its processes and
before anything reads the tables. No torch.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..console import brief
from ..errors import UserError, nearest, need
from .architectures import ARCHITECTURES
from .corruptors import CORRUPTORS
from .objectives import OBJECTIVES
from .rows import OWN_ROWS, is_ours
from .schema import MAX_TYPO

if TYPE_CHECKING:
    from .pretrain import PretrainConfig


class Choice(NamedTuple):
    """A field whose value is the name of a row."""

    section: str
    name: str
    rows: Mapping[str, Any]


CHOICES = (
    Choice("model", "architecture", ARCHITECTURES),
    Choice("corruption", "corruptor", CORRUPTORS),
    Choice("objective", "objective", OBJECTIVES),
)
_added: dict[tuple[str, str], str] = {}
"""The module that added a row, by the name of its choice and its own."""


def wanted() -> list[str]:
    """The modules that the environment names."""
    return [name.strip() for name in os.environ.get(OWN_ROWS, "").split(",") if name.strip()]


def load() -> None:
    """Imports them. Raises UserError for one that cannot be found or that raises."""
    for module in wanted():
        before = _rows()
        try:
            importlib.import_module(module)
        except (Exception, SystemExit) as e:  # other people's code may raise anything
            raise UserError(_why(module, e)) from e
        _added.update({key: module for key, row in _rows().items() if before.get(key) is not row})


def _rows() -> dict[tuple[str, str], Any]:
    return {(c.name, name): row for c in CHOICES for name, row in c.rows.items()}


def _why(module: str, error: BaseException) -> str:
    """Why a module is not there, in one sentence."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if (missing and f"{module}.".startswith(f"{missing}.")) or "/" in module:
        parent = str(missing).rpartition(".")[0]
        if module.endswith(".py") or "/" in module:
            advice = (
                "write the name of a module, as `import` takes it, and put its folder on PYTHONPATH"
            )
        elif parent in sys.modules:
            having = sys.modules[parent]
            paths = [getattr(having, "__file__", None), *getattr(having, "__path__", ())]
            place = next((f" ({path})" for path in paths if path), "")
            advice = (
                f"{parent} is there{place} and has none of that name; correct it, or put the "
                f"folder of another {parent} first on PYTHONPATH"
            )
        else:
            advice = "put the folder that holds it on PYTHONPATH"
        return f"{OWN_ROWS} names {brief(module)}, and there is no such module; {advice}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = error if isinstance(error, SyntaxError) else last
    said = " ".join(str(error).split())[:200]
    return (
        f"{OWN_ROWS}: the module {module} cannot be imported: {type(error).__name__} in "
        f"{place.filename}, line {place.lineno} ({said})"
    )


def folders() -> list[str]:
    """Where they were found, for a process that does not search the current folder."""
    found = []
    for name in wanted():
        top: Any = sys.modules.get(name.partition(".")[0])
        packages = list(getattr(top, "__path__", None) or ())
        place = packages[0] if packages else getattr(top, "__file__", None)
        found += [str(Path(place).resolve().parent)] if place else []
    return list(dict.fromkeys(found))


def module_of(choice: Choice, name: str) -> str | None:
    """The module that a row comes from; None for a row of this package, or an unknown one. Where
    nobody knows which module added it, that of its class."""
    if name not in choice.rows or (choice.name, name) in _added:
        return _added.get((choice.name, name))
    module = choice.rows[name].cls.partition(":")[0]
    return None if is_ours(module) or module == "__main__" else module


def needed(config: PretrainConfig) -> dict[str, str]:
    """The modules without which a recipe cannot be read, by the choices that need them."""
    found = {c.name: module_of(c, getattr(getattr(config, c.section), c.name)) for c in CHOICES}
    return {name: module for name, module in found.items() if module}


def recorded(said: Any) -> dict[str, str]:
    """What a run.json says was `needed`, without what is not the name of a module: messages repeat
    it as a command."""
    return {
        str(choice): module
        for choice, module in (said.items() if isinstance(said, dict) else ())
        if isinstance(module, str) and all(part.isidentifier() for part in module.split("."))
    }


def must_reach_processes(config: PretrainConfig) -> None:
    """Raises UserError if a recipe needs modules that the processes of a study would not load: they
    know no more than the environment says."""
    for choice in CHOICES:
        name = getattr(getattr(config, choice.section), choice.name)
        need(
            not choice.rows[name].cls.startswith("__main__:"),
            f"its {choice.name} {name} is a row of the program that runs, which the processes of a "
            "study do not load",
            f"put it into a module of its own, and name that in {OWN_ROWS}",
        )
    for choice, module in ({} if wanted() else needed(config)).items():
        raise UserError(
            f"its {choice} is a row of the module {module}, which the processes of a study do not "
            "load by themselves",
            to_load(module),
        )


def chosen(raw: Mapping[Any, Any]) -> dict[str, Any]:
    """The choices that the sections of a recipe make."""
    return {
        c.name: section[c.name]
        for c in CHOICES
        if isinstance(section := raw.get(c.section), dict) and c.name in section
    }


def must_be_known(
    fields: Mapping[str, Any],
    naming: Callable[[Choice], str],
    rows: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Raises UserError if a field names a row that is not in its table, or that of this package in
    place of another one. naming: how a message names a choice. rows: what `needed` was for the run
    that wrote the fields."""
    for choice in CHOICES:
        name = fields.get(choice.name)
        if not isinstance(name, str):
            continue
        had = rows.get(choice.name)
        lost = had not in sys.modules and module_of(choice, name) is None
        if had and (lost or name not in choice.rows):
            raise UserError(f"{naming(choice)} {brief(name)} {was_a_row_of(had)}", to_load(had))
        if name not in choice.rows:
            known = nearest(name[:MAX_TYPO], choice.rows)
            advice = "" if known.endswith("?") else to_load(None)
            raise UserError(f"{naming(choice)} cannot be {brief(name)}{known}", advice)


def was_a_row_of(module: str) -> str:
    now = "does not add it any more" if module in sys.modules else "is not loaded"
    return f"was a row of the module {module}, which {now}"


def to_load(module: str | None) -> str:
    """The advice where a row is not known. module: the one that had it, if that is recorded."""
    if module in sys.modules:
        return f"name in {OWN_ROWS} the module that adds the row, if its class lies in another one"
    if module:
        return f"set {OWN_ROWS}={module}, with the module's folder on PYTHONPATH"
    return f"{OWN_ROWS}=MODULE loads a row of your own"
