"""Dataclasses <-> YAML <-> command-line flags, with one source for each name, type and help text.

The help text of a field is the docstring below it. Unknown keys raise with the nearest known name. Every field is a bare flag with the same
name (`max_steps` -> `--max-steps`), because field names are unique across the sections of a recipe.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import difflib
import inspect
import textwrap
import types
import typing
from functools import cache
from itertools import pairwise
from typing import Any, Literal, NoReturn, TypeVar

from ..console import brief, harmless
from ..errors import UserError, nearest

C = TypeVar("C")

MAX_TYPO = 60  # characters of a name that is compared with the known ones
MAX_INT = 1 << 64  # no number of a field comes near it; beyond, libraries of C overflow
_BOOL = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


@cache
def field_docs(cls: type) -> dict[str, str]:
    """The docstring written below each field of a dataclass, on one line."""
    body = typing.cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]).body
    docs: dict[str, str] = {}
    for field, after in pairwise(body):
        named = isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if named and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            docs[field.target.id] = " ".join(str(after.value.value).split())  # type: ignore[union-attr]
    return docs


@cache
def field_types(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


def convert(value: Any, kind: Any, name: str) -> Any:
    """`value` (from YAML or from a flag's text) as the annotated type. Raises UserError naming the field."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    try:
        if origin in (typing.Union, types.UnionType):
            if value is None or (isinstance(value, str) and value.lower() in ("none", "null", "")):
                return None
            return convert(value, _without_none(kind), name)
        if origin is Literal:
            by_text = {str(a): a for a in args}  # a flag's value is always text
            if not isinstance(value, str | int) or str(value) not in by_text:
                raise UserError(f"{name} cannot be {brief(value)}{nearest(str(value)[:MAX_TYPO], by_text)}")
            return by_text[str(value)]
        if origin is tuple:
            items = [v for v in value.split(",") if v.strip()] if isinstance(value, str) else value
            if not isinstance(items, (list, tuple)):
                raise TypeError
            return tuple(convert(v.strip() if isinstance(v, str) else v, args[0], name) for v in items)
        if origin is dict:
            pairs = (p.split("=", 1) for p in value.split(",")) if isinstance(value, str) else value.items()
            return {convert(k.strip() if isinstance(k, str) else k, args[0], name): convert(v, args[1], name) for k, v in pairs}
        if kind is bool:
            return _BOOL[str(value).lower()]
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise TypeError
        if kind is int and isinstance(value, float) and not value.is_integer():
            raise ValueError
        if kind is int and isinstance(value, str):
            value = int(value) if value.lstrip("-").isdigit() else float(value)
            return convert(value, int, name)
        converted = kind(value)
        if kind is int and abs(converted) > MAX_INT:
            raise ValueError
        return converted
    except UserError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as e:
        simple = "true or false" if kind is bool else f"of type {getattr(kind, '__name__', kind)}"
        wanted = f"a list {_metavar(kind)}" if origin in (dict, tuple) else simple
        raise UserError(f"{name} must be {wanted}, not {brief(value)}") from e


def _without_none(kind: Any) -> Any:
    """`X` of `X | None`, any other annotation as it is."""
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return next(a for a in typing.get_args(kind) if a is not type(None)) if union else kind


def from_mapping(cls: type[C], mapping: dict[str, Any], where: str) -> C:
    """A dataclass from a mapping; unknown and missing keys raise and name `where` they stand."""
    if not isinstance(mapping, dict):
        raise UserError(f"{where} must be a mapping of fields, not {brief(mapping)}")
    kinds = field_types(cls)
    for key in mapping:
        if key not in kinds:
            raise UserError(f"{where} has no field {brief(key)}{nearest(str(key)[:MAX_TYPO], kinds)}")
    must = [f.name for f in dataclasses.fields(typing.cast(Any, cls)) if f.default is f.default_factory is dataclasses.MISSING]
    missing = [name for name in must if name not in mapping]
    if missing:
        raise UserError(f"{where} lacks the field{'s' * (len(missing) > 1)} {', '.join(missing)}")
    return cls(**{k: convert(v, kinds[k], f"{where}: {k}") for k, v in mapping.items()})


class Parser(argparse.ArgumentParser):
    """argparse whose every complaint is one sentence, with the nearest name for a mistyped one. Sub-parsers are of this class, too."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        # Looked at here and not in parse_args, which for a verb is that of the parser above it, where the verb's flags are not known.
        namespace, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._about(unknown[0].split("=", 1)[0]))
        return namespace, unknown

    def _about(self, word: str) -> str:
        if not word.startswith("-"):
            return f"there is no place for {word!r}: text with spaces needs quotes"
        known = [flag for flag in self._option_string_actions if flag.startswith("--") and "_" not in flag]
        close = difflib.get_close_matches(word.replace("_", "-"), known, n=1)
        return f"there is no flag {word}" + (f"; did you mean {close[0]}?" if close else "")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            name = "/".join(action.option_strings) or str(action.metavar or action.dest)
            self.error(f"{name} cannot be {value!r}{nearest(str(value), map(str, action.choices))}")

    def error(self, message: str) -> NoReturn:
        message = harmless(message)
        self.exit(2, f"{self.prog}: {message}{'' if message.endswith('?') else f'; see `{self.prog} --help`'}\n")


def add_flags(parser: argparse.ArgumentParser, cls: type, *, skip: tuple[str, ...] = ()) -> None:
    """One flag per field of `cls`. A flag that is not given leaves no attribute, so a recipe's own value stays."""
    docs, kinds = field_docs(cls), field_types(cls)
    group = parser.add_argument_group(cls.__name__)
    for field in dataclasses.fields(cls):
        if field.name in skip:
            continue
        kind, flag = _without_none(kinds[field.name]), "--" + field.name.replace("_", "-")
        default = None if field.default is dataclasses.MISSING else field.default
        shown = "" if default in (None, (), "") else f" [{default}]"
        text = (docs.get(field.name, "") + shown).replace("%", "%%")
        flags = list(dict.fromkeys((flag, "--" + field.name)))
        given: dict[str, Any] = {"dest": field.name, "default": argparse.SUPPRESS}
        if kind is bool:
            # Converted later, with all other fields, where an error is a UserError. The opposite is a flag of its own, so that it takes no value.
            group.add_argument(*flags, nargs="?", const="true", metavar="true|false", help=text, **given)
            group.add_argument("--no-" + flag[2:], action="store_const", const="false", help=f"the same as {flag} false", **given)
        else:
            choices = [str(a) for a in typing.get_args(kind)] if typing.get_origin(kind) is Literal else None
            group.add_argument(*flags, metavar="{" + ",".join(choices) + "}" if choices else _metavar(kind), help=text, **given)


def _metavar(kind: Any) -> str:
    if typing.get_origin(kind) is dict:
        name = "NAME" if typing.get_args(kind)[0] is str else "N"
        return name + "=" + _metavar(typing.get_args(kind)[1]) + ",..."
    if typing.get_origin(kind) is tuple:
        return _metavar(typing.get_args(kind)[0]) + ",..."
    return {int: "N", float: "X", str: "TEXT"}.get(kind, "VALUE")


def from_flags(cls: type[C], namespace: argparse.Namespace, **fixed: Any) -> C:
    """A dataclass from parsed flags; every field not given takes the dataclass's default."""
    given = {k: v for k, v in vars(namespace).items() if k in field_types(cls)}
    return from_mapping(cls, given | fixed, "the command line")
