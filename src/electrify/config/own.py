"""Sections in which a choice adds its own options: `objective: rtd` adds the fields of the row
`rtd` to its section.

Such a section has a field `options` that holds the row's own dataclass, a class variable CHOICE
that names the field of the choice, and a class variable ROWS that gives the rows. In YAML and on
the command line these options appear among the section's other fields.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any, TypeVar

from ..console import brief
from ..errors import UserError
from . import flags
from .schema import convert, field_types, from_mapping

C = TypeVar("C")
OPTIONS = "options"


def has_rows(cls: type) -> bool:
    return hasattr(cls, "ROWS")


def option_types(cls: type) -> dict[str, type]:
    """The own options of all rows, each with the dataclass that has it (the first one, if several
    rows share an option)."""
    found: dict[str, type] = {}
    for row in cls.ROWS().values() if has_rows(cls) else ():  # type: ignore[attr-defined]
        for name in field_types(row.options):
            found.setdefault(name, row.options)
    return found


def fields_of(cls: type) -> dict[str, Any]:
    """Every field that a section may have, with its type: its own and those of all rows."""
    fixed = {
        name: kind
        for name, kind in field_types(cls).items()
        if name != OPTIONS or not has_rows(cls)
    }
    return fixed | {name: field_types(owner)[name] for name, owner in option_types(cls).items()}


def read(cls: type[C], mapping: dict[str, Any], where: str) -> C:
    """A section from a mapping. Raises UserError for unknown and missing fields, and for an option
    of another row that does not have its default value (the files of a run hold the options of all
    rows at their defaults)."""
    if not has_rows(cls) or not isinstance(mapping, dict):
        return from_mapping(cls, mapping, where)
    if OPTIONS in mapping:
        raise UserError(
            f"{where} has no field {OPTIONS!r}: an option stands among the section's other fields"
        )
    options = {name: mapping[name] for name in option_types(cls) if name in mapping}
    section = from_mapping(
        cls,
        {name: v for name, v in mapping.items() if name not in options},
        where,
        known=fields_of(cls),
    )
    return replaced(section, options, naming=lambda name: f"{where}: {name}")


def replaced(section: C, values: dict[str, Any], *, naming: Any) -> C:
    """The section with other values, each converted. naming(field): the name used in messages.
    A new choice begins with its own defaults."""
    cls: Any = type(section)
    kinds = fields_of(cls)
    owners = option_types(cls)
    new = {name: convert(value, kinds[name], naming(name)) for name, value in values.items()}
    fixed = {name: value for name, value in new.items() if name not in owners}
    if cls_changes(section, fixed):
        fixed[OPTIONS] = None
    section = dataclasses.replace(section, **fixed)  # type: ignore[type-var]
    if not has_rows(cls):
        return section
    known = field_types(type(section.options))  # type: ignore[attr-defined]
    mine = {name: value for name, value in new.items() if name in known}
    for name in new.keys() & owners.keys() - mine.keys():
        _must_be_default(section, name, new[name], owners[name])
    options = dataclasses.replace(section.options, **mine)  # type: ignore
    return dataclasses.replace(section, options=options)  # type: ignore


def take_options(section: Any) -> None:
    """Gives a section that is being made the options of its row, if it has none yet. Raises
    UserError if it has others, which only a caller in Python can give it."""
    options, wanted = getattr(section, OPTIONS), section.row.options
    if options is None:
        object.__setattr__(section, OPTIONS, wanted())
    elif type(options) is not wanted:
        choice = type(section).CHOICE
        raise UserError(
            f"options must be the {wanted.__name__} of {choice} {getattr(section, choice)}, not "
            f"{brief(options)}; change a recipe with `override`, which brings those of the {choice}"
        )


def cls_changes(section: Any, fixed: dict[str, Any]) -> bool:
    """Whether these values change the choice."""
    choice = getattr(type(section), "CHOICE", None)
    return choice is not None and fixed.get(choice, getattr(section, choice)) != getattr(
        section, choice
    )


def _must_be_default(section: Any, name: str, value: Any, owner: type) -> None:
    if value != getattr(owner(), name):
        cls = type(section)
        having = [row for row, its in cls.ROWS().items() if name in field_types(its.options)]
        shown = (
            "" if value is True else " false" if value is False else " " + brief(value).strip("'")
        )
        raise UserError(
            f"{name}{shown} is for {cls.CHOICE} {' or '.join(having)}, not "
            f"{getattr(section, cls.CHOICE)}"
        )


def plain(section: Any) -> dict[str, Any]:
    """The section as one mapping that `read` reads back, with the row's own options after the
    choice."""
    values = {f.name: getattr(section, f.name) for f in dataclasses.fields(section)}
    own = vars(values.pop(OPTIONS)) if has_rows(type(section)) else {}
    out: dict[str, Any] = {}
    for name, value in values.items():
        out[name] = list(value) if isinstance(value, tuple) else value
        if name == getattr(type(section), "CHOICE", None):
            out |= {n: list(v) if isinstance(v, tuple) else v for n, v in own.items()}
    return out


def add_flags(parser: argparse.ArgumentParser, cls: type) -> None:
    """The flags of a section. The own options of all rows come after the flag of the choice, or
    under the HEADING of a row's options."""
    if not has_rows(cls):
        flags.add_flags(parser, cls, optional=True)
        return
    choice = cls.CHOICE  # type: ignore[attr-defined]
    names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    before = names[: names.index(choice) + 1]
    flags.add_flags(
        parser, cls, skip=tuple(n for n in names if n not in before or n == OPTIONS), optional=True
    )
    heading = flags.heading_of(cls, choice)
    for name, owner in option_types(cls).items():
        group = flags.group_of(parser, getattr(owner, "HEADING", heading))
        flags.add_flag(group, owner, name)
    flags.add_flags(parser, cls, skip=(*before, OPTIONS), optional=True)
