"""Values that a caller in Python gives: of the annotated type, or one sentence. (Those of flags and
recipes are converted from text, see schema.py.) And how a sentence says an option's value."""

from __future__ import annotations

import numbers
import os
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..console import brief
from ..errors import UserError
from .flags import flag_of
from .schema import MAX_INT, choices_of, convert, field_types, without_none

C = TypeVar("C")


class Checked:
    """A dataclass of options that checks the types of its values when it is made. A path may be a
    Path, a list may take the place of a tuple, and an int that of a number written as text."""

    def __post_init__(self) -> None:
        for name, kind in field_types(type(self)).items():
            value = getattr(self, name)
            found = checked(value, kind, name)
            if found is not value:
                object.__setattr__(self, name, found)


def checked(value: Any, kind: Any, name: str) -> Any:
    """The value if it is of the annotated type, or what it plainly means. Raises UserError naming
    the field."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return None if value is None else checked(value, without_none(kind), name)
    if choices_of(kind) is not None:
        return convert(value, kind, name)
    origin = typing.get_origin(kind) or kind
    if origin is tuple:
        return _items(value, kind, name)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise UserError(f"{name} must be a dict, not {brief(value)}")
        keys, values = typing.get_args(kind)
        return {checked(k, keys, name): checked(v, values, name) for k, v in value.items()}
    if kind in (bool, int, float, str):
        return _plain(value, kind, name)
    if kind is not Any:
        must_be(value, kind, name)
    return value


def _items(value: Any, kind: Any, name: str) -> tuple[Any, ...]:
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | os.PathLike | Mapping):
        raise UserError(f"{name} must be a list or a tuple, not {brief(value)}")
    each = typing.get_args(kind)[0]
    return tuple(checked(item, each, name) for item in value)


def _plain(value: Any, kind: type, name: str) -> Any:
    """A bool, int, float or str; numbers of numpy become those of Python."""
    if type(value) is kind:
        good = kind is not int or abs(value) <= MAX_INT
    elif isinstance(value, bool):
        good = False
    elif kind is int and isinstance(value, numbers.Integral):
        value, good = int(value), True
    elif kind is float and isinstance(value, numbers.Real):
        value, good = value if isinstance(value, int) else float(value), True
    elif kind is str and isinstance(value, str | int):
        value, good = str(value), True
    elif kind is str and isinstance(value, os.PathLike):
        value = os.fspath(value)
        good = isinstance(value, str)
    else:
        good = False
    if not good:
        wanted = "True or False" if kind is bool else f"of type {kind.__name__}"
        raise UserError(f"{name} must be {wanted}, not {brief(value)}")
    return value


def must_be(value: Any, kind: type[C], name: str, *, advice: str = "") -> C:
    """The value. Raises UserError if it is of another type."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise UserError(f"{name} must be {article} {kind.__name__}, not {brief(value)}{advice}")
    return value


def path_of(value: Any, name: str) -> Path:
    """A path, which may be given as text. Raises UserError for anything else."""
    if isinstance(value, str | os.PathLike) and isinstance(os.fspath(value), str):
        return Path(value)
    raise UserError(f"{name} must be a path, as text or as a Path, not {brief(value)}")


def with_option(name: str, value: Any) -> str:
    """An option as a sentence says it, with the value that a command has written for it."""
    flag = flag_of(name)
    if value is None:
        return f"without {flag}"
    return f"with {flag} {','.join(map(str, value)) if isinstance(value, list) else value}"
