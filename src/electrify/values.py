"""Text of files and flags as typed values, options that are checked where they are made, and the
ids of special tokens. Imports nothing heavy."""

from __future__ import annotations

import dataclasses
import os
import types
import typing
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, Self, TypeVar

import yaml
from annotated_types import Ge, Gt, Le, Lt, MultipleOf

from .errors import UserError
from .names import nearest

if typing.TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")
Positional = Annotated[T, "positional"]
"""An option of a command that is given by its place and not by a flag."""
Hidden = Annotated[T, "hidden"]
"""A field of a command that no flag sets."""
Count = Annotated[int, Ge(1)]
Natural = Annotated[int, Ge(0)]
Even = Annotated[int, Ge(2), MultipleOf(2)]
Positive = Annotated[float, Gt(0)]
NotNegative = Annotated[float, Ge(0)]
AboveOne = Annotated[float, Gt(1)]
Inside = Annotated[float, Gt(0), Lt(1)]
"""A number between 0 and 1, both excluded."""
BelowOne = Annotated[float, Ge(0), Lt(1)]
Share = Annotated[float, Ge(0), Le(1)]
ParameterKind = Literal["embeddings", "matrices", "heads", "rest"]
"""Of the parameters of a model, for their learning rates."""


class _Loader(yaml.BaseLoader):
    """Reads every value as text, which the type of its field interprets, so `1:30` is not 90 and
    `no` is not false. A key that occurs twice is an error: its first value would be lost."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep=deep)
        if len(mapping) < len(node.value):
            raise yaml.YAMLError(f"a key occurs twice after line {node.start_mark.line + 1}")
        return mapping


def plain_yaml(text: str, where: str) -> dict[str, Any]:
    """The YAML text as dicts and lists of text. Raises UserError."""
    try:
        values = yaml.load(text, _Loader)  # a subclass of a loader that only makes text
    except (yaml.YAMLError, TypeError, RecursionError) as e:
        raise UserError(f"{where} is not valid YAML: {' '.join(str(e).split())[:300]}") from e
    if not isinstance(values, dict):
        raise UserError(f"{where} must be a mapping of names to values")
    return values


@cache
def kinds(cls: type) -> dict[str, Any]:
    """The annotated type of each field of a dataclass."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


def is_marked(kind: Any, mark: Any) -> bool:
    """Whether a type is Positional or Hidden."""
    return mark.__metadata__[0] in getattr(kind, "__metadata__", ())


def plain_kind(kind: Any) -> Any:
    """A type without annotations and without None."""
    if typing.get_origin(kind) is Annotated:
        return plain_kind(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return plain_kind(next(k for k in typing.get_args(kind) if k is not type(None)))
    return kind


def may_be_none(kind: Any) -> bool:
    """Whether the word none means no value. A text that is given by its place is a text."""
    if is_marked(kind, Positional):
        return False
    if typing.get_origin(kind) is Annotated:
        return may_be_none(typing.get_args(kind)[0])
    return type(None) in typing.get_args(kind)


def from_text(value: Any, kind: Any) -> Any:
    """Text of a file or a flag as a value of about this type: `1,0,0`, `64=0.9`, `none`. What
    cannot be read stays text, which `checked` refuses. Other values stay as they are."""
    plain = plain_kind(kind)
    origin, of = typing.get_origin(plain), typing.get_args(plain)
    if isinstance(value, str):
        if origin is Literal:
            return {str(choice): choice for choice in of}.get(value, value)
        if origin is tuple:
            return from_text([word.strip() for word in value.split(",") if word.strip()], kind)
        nothing = value.strip().lower() in ("none", "null", "~", "")
        if nothing and (origin is dict or may_be_none(kind)):
            return {} if origin is dict else None
        if origin is dict:
            words = [word.partition("=") for word in value.split(",")]
            pairs = {key.strip(): its.strip() for key, _, its in words}
            return from_text(pairs, kind) if len(pairs) == len(words) else value
        return value if plain is str else _scalar(value.strip(), plain)
    if isinstance(value, dict) and origin is dict:
        return {from_text(key, of[0]): from_text(its, of[1]) for key, its in value.items()}
    if isinstance(value, list | tuple) and origin is tuple:
        return tuple(from_text(its, of[0]) for its in value)
    if plain is str and isinstance(value, int | os.PathLike) and not isinstance(value, bool):
        return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    return value


def _scalar(word: str, kind: Any) -> Any:
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    try:
        if word.lstrip("-").isdigit():
            return int(word)  # a float would round a large seed
        number = float(word)
    except ValueError:
        return word
    return int(number) if kind is int and number.is_integer() else number


@cache
def _schema(kind: Any) -> TypeAdapter[Any]:
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(kind, config=ConfigDict(allow_inf_nan=False))


def checked(value: Any, kind: Any, name: str) -> Any:
    """The value if it is of the annotated type and in its range, without conversions but that of an
    int to a float. Raises UserError that names the field and says what is wrong."""
    from pydantic import ValidationError

    try:
        return _schema(kind).validate_python(value, strict=True)
    except ValidationError as e:
        wrong = e.errors(include_url=False)[0]
    plain = plain_kind(kind)
    if typing.get_origin(plain) is Literal:
        known = nearest(str(value), map(str, typing.get_args(plain)))
        raise UserError(f"{name} cannot be {value!r:.60}{known}")
    raise UserError(f"{name} {wrong['msg'].removeprefix('Input ')}, not {wrong['input']!r:.60}")


class Options:
    """Base of the options of a command: a dataclass whose values, as text or typed, are read and
    checked when it is made. Raises UserError that names the field."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The options that have these values. Those of options inside it (`settings` of
        `finetune`) are named like its own. Raises UserError if one is missing."""
        values = cls.defaults(given)
        for section, kind in cls._inner().items():
            values[section] = kind(**{n: v for n, v in given.items() if n in kinds(kind)})
        values |= {n: v for n, v in given.items() if n in kinds(cls)}
        for f in dataclasses.fields(typing.cast(Any, cls)):
            needed = f.default is f.default_factory is dataclasses.MISSING
            if needed and f.name not in values:
                raise UserError(f"{f.name} is missing")
        return cls(**values)

    @classmethod
    def defaults(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Values of fields that other options decide (a recipe, a preset)."""
        return {}

    @classmethod
    def names(cls) -> set[str]:
        """Every option, those of options inside it included."""
        return {*kinds(cls)}.union(*map(kinds, cls._inner().values()))

    @classmethod
    def _inner(cls) -> dict[str, type]:
        hints = kinds(cls).items()
        return {n: k for n, k in hints if isinstance(k, type) and issubclass(k, Options)}

    def __post_init__(self) -> None:
        for name, kind in kinds(type(self)).items():
            if dataclasses.is_dataclass(kind) or is_marked(kind, Hidden):
                continue
            given = getattr(self, name)
            if "" in (given if isinstance(given, tuple) else (given,)):
                raise UserError(f"{name} is empty")  # a variable of the shell that is not set
            self.set(name, checked(from_text(given, kind), kind, name))
        self.check()

    def set(self, name: str, value: Any) -> None:
        """Gives a field the value that it has by the others; for `check`."""
        object.__setattr__(self, name, value)

    def check(self) -> None:
        """Raises UserError for options that do not go together."""


def given_texts(texts: Iterable[str]) -> list[str]:
    """The texts that a caller in Python gives. Raises UserError for a single text, which would be
    read letter by letter, and for what is no text."""
    if isinstance(texts, str):
        raise UserError("texts must be a list, not one text")
    found = list(texts)
    odd = next((k for k, text in enumerate(found) if not isinstance(text, str)), None)
    if odd is not None:
        raise UserError(f"text {odd + 1} is {found[odd]!r:.60}. Give a list of texts")
    return found


@dataclasses.dataclass(frozen=True)
class SpecialIds:
    """Ids of the tokens with a role. `others` are further special tokens of the tokenizer (never
    masked, never drawn at random)."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int
    others: tuple[int, ...] = ()

    @property
    def never_chosen(self) -> tuple[int, ...]:
        """All special tokens except [UNK]. (By the published method every token except the special
        ones is a candidate for masking, and [UNK] is one.)"""
        return tuple(
            sorted({self.pad, self.cls, self.sep, self.mask} | (set(self.others) - {self.unk}))
        )
