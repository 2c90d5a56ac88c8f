"""Dataclasses <-> YAML, with one source for each name, type and help text (flags.py turns them into
flags).

The help text of a field is the docstring below it. Unknown keys raise with the nearest known name.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import os
import textwrap
import types
import typing
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from typing import Any, Literal, TypeVar

from ..console import brief
from ..errors import UserError, nearest

C = TypeVar("C")

MAX_TYPO = 60  # the longest name, in characters, that is compared with the known ones
MAX_INT = 1 << 64  # no field needs such a number, and larger ones overflow in C libraries
_BOOL = {
    "true": True,
    "false": False,
    "1": True,
    "0": False,
    "yes": True,
    "no": False,
    "on": True,
    "off": False,
}


@cache
def field_docs(cls: type) -> dict[str, str]:
    """The docstring written below each field of a dataclass, on one line; also of the fields that
    it inherits."""
    docs: dict[str, str] = {}
    for one in reversed(cls.__mro__):
        docs |= _own_field_docs(one) if "__dataclass_fields__" in vars(one) else {}
    return docs


def _own_field_docs(cls: type) -> dict[str, str]:
    body = typing.cast(
        ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    ).body
    docs: dict[str, str] = {}
    for field, after in pairwise(body):
        named = isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if named and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            name = field.target.id  # type: ignore[union-attr]
            docs[name] = " ".join(str(after.value.value).split())
    return docs


class MissingError(UserError):
    """A mapping lacks fields that have no default."""


class OneOf:
    """A choice of names that are determined when they are needed, and their help: `Annotated[str,
    OneOf(names, text)]` is a Literal whose choices are rows of a table."""

    def __init__(self, names: Callable[[], Iterable[str]], text: Callable[[], str]) -> None:
        self.names = names
        self.text = text


def choices_of(kind: Any) -> list[Any] | None:
    """The values that a field may have; None if it is not a choice of a few."""
    if typing.get_origin(kind) is Literal:
        return list(typing.get_args(kind))
    marks = [mark for mark in typing.get_args(kind) if isinstance(mark, OneOf)]
    return list(marks[0].names()) if marks else None


def help_of(cls: type, name: str) -> str:
    """The help of a field: the docstring below it, or the table of its choices."""
    marks = [mark for mark in typing.get_args(field_types(cls)[name]) if isinstance(mark, OneOf)]
    return marks[0].text() if marks else field_docs(cls).get(name, "")


@cache
def field_types(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


def convert(value: Any, kind: Any, name: str) -> Any:
    """`value` (from YAML or from a flag's text) as the annotated type. Raises UserError naming the
    field."""
    origin = typing.get_origin(kind)
    try:
        if origin in (typing.Union, types.UnionType):
            return None if _is_nothing(value) else convert(value, without_none(kind), name)
        if choices_of(kind) is not None:
            return _choice(value, kind, name)
        if origin is tuple:
            return _items(value, kind, name)
        if origin is dict:
            return {} if _is_nothing(value) else _pairs(value, kind, name)
        if kind is int and isinstance(value, str):
            value = int(value) if value.lstrip("-").isdigit() else float(value)
        return _number(value, kind)
    except UserError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as e:
        simple = "true or false" if kind is bool else f"of type {getattr(kind, '__name__', kind)}"
        wanted = f"a list {metavar_of(kind)}" if origin in (dict, tuple) else simple
        raise UserError(f"{name} must be {wanted}, not {brief(value)}") from e


def is_answer(word: str) -> bool:
    """Whether a text says true, false or nothing."""
    return _is_nothing(word) or word.lower() in _BOOL


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.lower() in ("none", "null", ""))


def _choice(value: Any, kind: Any, name: str) -> Any:
    by_text = {str(a): a for a in choices_of(kind) or ()}  # a flag's value is always text
    if not isinstance(value, str | int) or str(value) not in by_text:
        raise UserError(f"{name} cannot be {brief(value)}{nearest(str(value)[:MAX_TYPO], by_text)}")
    return by_text[str(value)]


def _items(value: Any, kind: Any, name: str) -> tuple[Any, ...]:
    # An argument of the command line is taken as it is: a folder's name may end with a space.
    items = [v.strip() for v in value.split(",") if v.strip()] if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)):
        raise TypeError
    each = typing.get_args(kind)[0]
    return tuple(convert(v, each, name) for v in items)


def _pairs(value: Any, kind: Any, name: str) -> dict[Any, Any]:
    keys, values = typing.get_args(kind)
    pairs = [p.split("=", 1) for p in value.split(",")] if isinstance(value, str) else value.items()
    found = {
        convert(k.strip() if isinstance(k, str) else k, keys, name): convert(v, values, name)
        for k, v in pairs
    }
    if len(found) < len(pairs):
        raise UserError(f"{name} names a key twice, so one value would be lost: {brief(value)}")
    return found


def _number(value: Any, kind: Any) -> Any:
    """A bool, int, float or str. Raises ValueError, TypeError, KeyError or OverflowError for
    anything else."""
    if kind is bool:
        return _BOOL[str(value).lower()]
    if kind is str and isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError
    if kind is int and isinstance(value, float) and not value.is_integer():
        raise ValueError
    converted: Any = typing.cast(Any, kind)(value)
    if kind is int and abs(converted) > MAX_INT:
        raise ValueError
    return converted


def without_none(kind: Any) -> Any:
    """`X` of `X | None`, any other annotation as it is."""
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return next(a for a in typing.get_args(kind) if a is not type(None)) if union else kind


def from_mapping(
    cls: type[C], mapping: dict[str, Any], where: str, *, known: Iterable[str] | None = None
) -> C:
    """A dataclass from a mapping; unknown and missing keys raise and name `where` they are. known:
    the names that a mistyped one is compared with, by default the fields."""
    if not isinstance(mapping, dict):
        raise UserError(f"{where} must be a mapping of fields, not {brief(mapping)}")
    kinds = field_types(cls)
    for key in mapping:
        if key not in kinds:
            raise UserError(
                f"{where} has no field {brief(key)}{nearest(str(key)[:MAX_TYPO], known or kinds)}"
            )
    must = [
        f.name
        for f in dataclasses.fields(typing.cast(Any, cls))
        if f.default is f.default_factory is dataclasses.MISSING
    ]
    missing = [name for name in must if name not in mapping]
    if missing:
        raise MissingError(
            f"{where} lacks the field{'s' * (len(missing) > 1)} {', '.join(missing)}"
        )
    return cls(**{k: convert(v, kinds[k], f"{where}: {k}") for k, v in mapping.items()})


def metavar_of(kind: Any, flag: str = "") -> str:
    """The placeholder for a value in the help."""
    if kind is str and flag.endswith(("-dir", "-file", "--file")):
        return flag.rpartition("-")[2].upper()
    if typing.get_origin(kind) is dict:
        name = "NAME" if typing.get_args(kind)[0] is str else "N"
        return name + "=" + metavar_of(typing.get_args(kind)[1]) + ",..."
    if typing.get_origin(kind) is tuple:
        return metavar_of(typing.get_args(kind)[0]) + ",..."
    return {int: "N", float: "X", str: "TEXT"}.get(kind, "VALUE")
