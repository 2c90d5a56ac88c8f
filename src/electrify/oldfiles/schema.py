"""Checks foreign JSON against a frozen dataclass: gives the value, or one sentence that names the
place: `counts.train is 'x', a number is needed`.

It is our own and small on purpose: it checks the very dataclasses with which the code works (a
corpus's Manifest, an encoder's Shape), the messages are one sentence of ours, and no library loads
before `--help`.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, cast

from ..console import brief
from ..errors import UserError

T = TypeVar("T")
MOST = 1 << 62  # none of our counts comes near it, and larger ones overflow in C libraries


class SchemaError(UserError):
    """Raised for a value of the wrong kind. `what` is the message without the file's name."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")
        self.what = what


@dataclass(frozen=True)
class Rule:
    """A condition on an annotated value beyond its type. wanted: the condition as text, for "... is
    needed"."""

    wanted: str
    holds: Callable[[Any], bool]


def is_count(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and 0 <= x <= MOST


Count = Annotated[int, Rule("an integer from 0", is_count)]


def check(kind: type[T], value: Any, where: str, *, more: bool = False) -> T:
    """`value`, read from JSON, as a `kind` (lists become the tuples that it asks for).

    where: the file, in messages. more: whether the outermost dataclass ignores keys that it does
    not know. Raises SchemaError.
    """
    try:
        if more and dataclasses.is_dataclass(kind):
            return _fields(kind, value, "", more=True)
        return _checked(kind, value, "")
    except _OddError as e:
        raise SchemaError(where, str(e)) from None


class _OddError(Exception):
    """What is wrong and where in the value."""


def _odd(value: Any, at: str, wanted: str) -> _OddError:
    return _OddError(f"{at[:120] or 'the whole'} is {brief(value)}, {wanted} is needed")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _checked(kind: Any, value: Any, at: str) -> Any:
    if kind is Any or kind is object:
        return value
    if dataclasses.is_dataclass(kind):
        return _fields(kind, value, at, more=False)
    origin = typing.get_origin(kind)
    args = typing.get_args(kind)
    if origin is Annotated:
        return _ruled(args, value, at)
    if origin in (typing.Union, types.UnionType):
        return _union(args, value, at)
    if origin is Literal:
        if not any(value == a and type(value) is type(a) for a in args):
            raise _odd(value, at, " or ".join(map(repr, args)))
        return value
    if origin in (dict, Mapping):
        if not isinstance(value, dict):
            raise _odd(value, at, "an object")
        return {_key(args[0], k, at): _checked(args[1], v, _below(at, k)) for k, v in value.items()}
    if origin in (list, tuple):
        return _listed(origin, args, value, at)
    return _plain(kind, value, at)


def _ruled(args: tuple[Any, ...], value: Any, at: str) -> Any:
    for rule in args[1:]:
        if isinstance(rule, Rule) and not rule.holds(value):
            raise _odd(value, at, rule.wanted)
    return _checked(args[0], value, at)


def _key(kind: Any, key: str, at: str) -> str:
    try:
        return _checked(kind, key, at)
    except _OddError as e:
        raise _OddError(f"a key of {at or 'the whole'} {str(e).removeprefix(at).strip()}") from None


def _union(args: tuple[Any, ...], value: Any, at: str) -> Any:
    kinds = [a for a in args if a is not type(None)]
    if value is None and len(kinds) < len(args):
        return None
    first: _OddError | None = None
    for kind in kinds:
        try:
            return _checked(kind, value, at)
        except _OddError as e:
            first = first or e
    raise cast(_OddError, first)


def _listed(origin: Any, args: tuple[Any, ...], value: Any, at: str) -> Any:
    if not isinstance(value, list | tuple):
        raise _odd(value, at, "a list")
    if origin is tuple and args[-1:] != (...,):
        if len(value) != len(args):
            raise _odd(value, at, f"a list of {len(args)}")
        return tuple(
            _checked(k, v, f"{at}[{i}]") for i, (k, v) in enumerate(zip(args, value, strict=True))
        )
    return origin(_checked(args[0], v, f"{at}[{i}]") for i, v in enumerate(value))


def _plain(kind: Any, value: Any, at: str) -> Any:
    if (
        kind is float
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) <= sys.float_info.max
    ):
        return value
    if (
        kind in (int, str, bool, list, dict)
        and isinstance(value, kind)
        and isinstance(value, bool) == (kind is bool)
    ):
        if not isinstance(value, int) or abs(value) <= MOST:
            return value
        raise _odd(value, at, "a smaller integer")
    names = {
        float: "a number",
        int: "an integer",
        str: "a text",
        bool: "true or false",
        list: "a list",
        dict: "an object",
    }
    raise _odd(value, at, names.get(kind, str(kind)))


def _fields(kind: Any, value: Any, at: str, *, more: bool) -> Any:
    if not isinstance(value, dict):
        raise _odd(value, at, "an object")
    hints = _hints(kind)
    fields = [f for f in dataclasses.fields(kind) if f.init]
    unknown = next((key for key in value if key not in {f.name for f in fields}), None)
    if unknown is not None and not more:
        raise _OddError(f"{_below(at, unknown)[:120]} is not known here")
    for f in fields:
        if f.name not in value and f.default is f.default_factory is dataclasses.MISSING:
            raise _OddError(f"{_below(at, f.name)} is missing")
    return kind(
        **{
            f.name: _checked(hints[f.name], value[f.name], _below(at, f.name))
            for f in fields
            if f.name in value
        }
    )


def _below(at: str, key: Any) -> str:
    shown = key if isinstance(key, str) and key.isprintable() and len(key) <= 60 else brief(key)
    return f"{at}.{shown}" if at else shown
