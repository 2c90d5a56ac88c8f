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
import re
import textwrap
import types
import typing
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any, Literal, NoReturn, TypeVar

from ..console import brief, harmless
from ..errors import UserError, nearest
from .help import HelpFormatter, usage_of

C = TypeVar("C")

MAX_TYPO = 60  # characters of a name that is compared with the known ones
MAX_INT = 1 << 64  # no number of a field comes near it; beyond, libraries of C overflow
_BOOL = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False, "on": True, "off": False}


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
            pairs = [p.split("=", 1) for p in value.split(",")] if isinstance(value, str) else value.items()
            found = {convert(k.strip() if isinstance(k, str) else k, args[0], name): convert(v, args[1], name) for k, v in pairs}
            if len(found) < len(pairs):
                raise UserError(f"{name} names a key twice, of which one would be lost: {brief(value)}")
            return found
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

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, formatter_class=HelpFormatter, **kwargs)
        self.needed: list[str] = []
        """Flags that have no default."""
        self._positionals.title, self._optionals.title = "what it takes", "help"

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        # Looked at here and not in parse_args, which for a verb is that of the parser above it, where the verb's flags are not known.
        namespace, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._about(unknown[0].split("=", 1)[0]))
        self._refuse_empty(namespace)
        return namespace, unknown

    def _refuse_empty(self, namespace: argparse.Namespace) -> None:
        """An empty word is a variable of the shell that was never set; taken as a path, it would be the current folder."""
        for action in self._actions:
            value = getattr(namespace, action.dest, None)
            if any(isinstance(word, str) and not word.strip() for word in (value if isinstance(value, list) else [value])):
                self.error(f"{action.option_strings[0] if action.option_strings else action.metavar} is empty: give it a value, or leave it out")

    def format_usage(self) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage or usage_of(self, self.needed), [], [])
        return formatter.format_help()

    def format_help(self) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage or usage_of(self, self.needed), [], [])
        formatter.add_text(self.description)
        for group in sorted(self._action_groups, key=lambda group: group is self._optionals):  # `help` last
            formatter.start_section(group.title)
            formatter.add_text(group.description)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

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


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def add_flags(parser: argparse.ArgumentParser, cls: type, *, skip: tuple[str, ...] = (), optional: bool = False) -> None:
    """One flag per field of `cls`. A flag that is not given leaves no attribute, so a recipe's own value stays.

    They stand in groups: `cls.HEADINGS` says at which field which heading begins. optional: also fields without a default may be left out.
    """
    docs, kinds = field_docs(cls), field_types(cls)
    headings: dict[str, str] = getattr(cls, "HEADINGS", {})
    heading = "flags"
    for field in dataclasses.fields(cls):
        heading = headings.get(field.name, heading)
        if field.name in skip:
            continue
        if isinstance(parser, Parser) and not optional and field.default is field.default_factory is dataclasses.MISSING:
            parser.needed.append(flag_of(field.name))
        group = _group(parser, heading)
        kind, flag = _without_none(kinds[field.name]), flag_of(field.name)
        default = None if field.default is dataclasses.MISSING else field.default
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
        shown = "" if default in (None, (), "") else f" [{shown}]"
        text = (docs.get(field.name, "") + shown).replace("%", "%%")
        flags = list(dict.fromkeys((flag, "--" + field.name)))
        given: dict[str, Any] = {"dest": field.name, "default": argparse.SUPPRESS}
        if kind is bool:
            # Converted later, with all other fields, where an error is a UserError. The opposite is a flag of its own, so that it takes no value.
            group.add_argument(*flags, nargs="?", const="true", metavar="true|false", help=text, **given)
            group.add_argument("--no-" + flag[2:], action="store_const", const="false", help=f"the same as {flag} false", **given)
        else:
            choices = [str(a) for a in typing.get_args(kind)] if typing.get_origin(kind) is Literal else None
            group.add_argument(*flags, metavar="{" + ",".join(choices) + "}" if choices else _metavar(kind, flag), help=text, **given)


def _group(parser: argparse.ArgumentParser, heading: str) -> Any:
    return next((g for g in parser._action_groups if g.title == heading), None) or parser.add_argument_group(heading)


def _metavar(kind: Any, flag: str = "") -> str:
    """What stands for a value in the help."""
    if kind is str and flag.endswith(("-dir", "-file", "--file")):
        return flag.rpartition("-")[2].upper()
    if typing.get_origin(kind) is dict:
        name = "NAME" if typing.get_args(kind)[0] is str else "N"
        return name + "=" + _metavar(typing.get_args(kind)[1]) + ",..."
    if typing.get_origin(kind) is tuple:
        return _metavar(typing.get_args(kind)[0]) + ",..."
    return {int: "N", float: "X", str: "TEXT"}.get(kind, "VALUE")


def from_flags(cls: type[C], namespace: argparse.Namespace, **fixed: Any) -> C:
    """A dataclass from parsed flags; every field not given takes the dataclass's default. Raises UserError naming the flag."""
    kinds = field_types(cls)
    given = {k: v for k, v in vars(namespace).items() if k in kinds} | fixed
    for field in dataclasses.fields(typing.cast(Any, cls)):
        if field.default is field.default_factory is dataclasses.MISSING and field.name not in given:
            raise UserError(f"{flag_of(field.name)} is missing ({field_docs(cls).get(field.name, '').rstrip('.')})")
    with named_as_flags(kinds):
        return cls(**{k: convert(v, kinds[k], flag_of(k)) for k, v in given.items()})


@contextmanager
def named_as_flags(fields: Iterable[str]) -> Iterator[None]:
    """A UserError about these fields, whose values came from the command line, names the flags: that is what the user can change."""
    try:
        yield
    except UserError as e:
        raise UserError(in_flags(str(e), fields)) from e


def in_flags(sentence: str, fields: Iterable[str]) -> str:
    """`max_steps must be positive` -> `--max-steps must be positive`. A field whose name is an English word counts at the beginning only."""
    fields = list(fields)
    long = "|".join(name for name in fields if "_" in name) or "(?!)"
    sentence = re.sub(rf"(?<![\w./-])({long})(?![\w/]|\.\w)", lambda found: flag_of(found[0]), sentence)
    return re.sub(rf"^({'|'.join(fields) or '(?!)'})(?![\w/-]|\.\w)", lambda found: flag_of(found[0]), sentence)
