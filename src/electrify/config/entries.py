"""Recipes as the user names them: a file, or a shipped one, perhaps with changes
(`electra-tiny:mask_rate=.3`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError
from .checks import check
from .given import checked
from .pretrain import PretrainConfig, load_file, load_recipe, override, recipe_names


@dataclass(frozen=True)
class Entry:
    """A recipe, perhaps with changes: a line in curves and tables."""

    name: str
    """As the user wrote it: `electra-tiny:mask_rate=0.3,tie=gdes`."""
    recipe: str
    changes: dict[str, Any]


def joined(parts: Sequence[str]) -> list[str]:
    """The parts between commas, as entries: commas separate both recipes and changes, and a part
    with a `=` and no colon before it is a change of the recipe before it. Raises UserError for a
    number after a change: it is the rest of a value with commas."""
    words: list[str] = []
    for part in parts:
        if words and "=" in words[-1] and is_number(part.split("=")[0]):
            raise UserError(
                f"recipes: {words[-1]},{part}: a comma ends a change; give a value that has commas "
                "in a --recipe-file"
            )
        if words and "=" in part and ":" not in part.split("=")[0]:
            words[-1] += f",{part}"
        else:
            words.append(part)
    return words


def is_number(text: str) -> bool:
    """Whether it reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_entry(text: str, where: str = "--recipes") -> Entry:
    """`RECIPE` or `RECIPE:field=value,...`. Raises UserError for a change that is not one, naming
    `where` the text comes from if it cannot be a name."""
    recipe, colon, rest = text.strip().partition(":")
    changes: dict[str, str] = {}
    if colon and not rest.strip(" ,"):
        raise UserError(f"{text}: no change after the colon; write field=value, or leave it out")
    for part in filter(None, rest.split(",")):
        name, sign, value = (word.strip() for word in part.partition("="))
        name = name.replace("-", "_")
        if not sign or not name or not value:
            raise UserError(f"{text}: {part.strip()!r} is not a change; write field=value")
        if name in changes:
            raise UserError(f"{text}: {name} is changed twice")
        changes[name] = value
    return Entry(_must_be_a_name(text.strip(), where), recipe, changes)


def read_entries(values: Any, where: str) -> list[Entry]:
    """The entries of a recipe file: name -> {recipe, and its changes}. Raises UserError."""
    if not isinstance(values, dict) or not values:
        raise UserError(f"{where}: write a name for each recipe, and under it `recipe: NAME`")
    found = []
    for name, fields in values.items():
        if not isinstance(fields, dict) or not isinstance(fields.get("recipe"), str):
            raise UserError(
                f"{where}: {name} does not name its recipe; write `recipe: NAME` below it"
            )
        changes = {str(k).replace("-", "_"): v for k, v in fields.items() if k != "recipe"}
        if len(changes) < len(fields) - 1:
            raise UserError(f"{where}: {name} changes one field twice, with - and with _")
        found.append(Entry(_must_be_a_name(str(name), where), fields["recipe"], changes))
    return found


def _must_be_a_name(name: str, where: str) -> str:
    if not name.strip() or not name.isprintable():
        raise UserError(
            f"{where}: {name[:60]!r} cannot be shown in tables and pictures; take letters, digits "
            "and signs for a name"
        )
    return name


def recipe_of(text: str, where: str) -> PretrainConfig:
    """The recipe that a word names: a file, or a shipped recipe with or without changes. Raises
    UserError if there is none, or if its numbers do not work together."""
    text = checked(text, str, "a recipe's name")
    if text not in recipe_names() and (text.endswith((".yaml", ".yml")) or os.path.isfile(text)):
        config = load_file(Path(text))
        check(config)
        return config
    entry = read_entry(text, where)
    config = load_recipe(entry.recipe)
    if not entry.changes:
        return config
    try:
        config = override(config, entry.changes)
        check(config, entry.changes)
    except UserError as e:
        raise UserError(f"{entry.name}: {e}") from e
    return config
