"""Dataclasses -> flags of the command line, and back.

Every field is a flag with the same name and no prefix (`max_steps` -> `--max-steps`), because field
names are unique across the sections of a recipe.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import os
import re
import typing
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from gettext import gettext
from typing import Any, NoReturn, TypeVar

from ..console import harmless
from ..errors import UserError, nearest
from .help import HelpFormatter, usage_of
from .schema import (
    choices_of,
    convert,
    field_docs,
    field_types,
    help_of,
    is_answer,
    metavar_of,
    without_none,
)

C = TypeVar("C")
_MISSING = "the following arguments are required: %s"  # argparse's own words, translated there
# Flags that name a file or a folder.
PATHS = {
    "output_dir",
    "tokenizer",
    "config",
    "recipe_file",
    "data_dir",
    "file",
    "train_file",
    "validation_file",
    "output_file",
    "center",
    "whiten",
}


class Parser(argparse.ArgumentParser):
    """An argparse parser that reports every mistake as one sentence, with the nearest name for a
    mistyped one. Sub-parsers are of this class, too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, formatter_class=HelpFormatter, **kwargs)
        self.needed: list[str] = []
        """Flags that have no default."""
        self.whole: Callable[[], argparse.ArgumentParser] | None = None
        """Makes the parser of all verbs, in which a flag that is not here is looked for."""
        self.read = argparse.Namespace()
        """What has been read so far."""
        self._positionals.title = "what it takes"
        self._optionals.title = "help"

    def parse_known_args(  # type: ignore[override]
        self, args: Any = None, namespace: Any = None
    ) -> Any:
        # They are checked here and not in parse_args, because the parse_args of the top-level
        # parser does not know the flags of the verb.
        self.read = argparse.Namespace() if namespace is None else namespace
        namespace, unknown = super().parse_known_args(args, self.read)
        if unknown:
            self.error(self._about(unknown[0].split("=", 1)[0]))
        self._refuse_empty(namespace)
        self._expand_homes(namespace)
        return namespace, unknown

    def _expand_homes(self, namespace: argparse.Namespace) -> None:
        """`--output-dir=~/data`: the shell expands a tilde at the beginning of a word only."""
        for name in sorted(PATHS & vars(namespace).keys()):
            value = getattr(namespace, name)
            if isinstance(value, str) and value.startswith("~"):
                path = os.path.expanduser(value)
                if path.startswith("~"):
                    self.error(
                        f"{flag_of(name)}: no user of this name has a home folder here: {value}"
                    )
                setattr(namespace, name, path)

    def _refuse_empty(self, namespace: argparse.Namespace) -> None:
        """Refuses an empty argument, which comes from an unset shell variable; as a path, it would
        be the current folder."""
        for action in self._actions:
            value = getattr(namespace, action.dest, None)
            if any(
                isinstance(word, str) and not word.strip()
                for word in (value if isinstance(value, list) else [value])
            ):
                self.error(
                    f"{action.option_strings[0] if action.option_strings else action.metavar} is "
                    "empty: give it a value, or leave it out"
                )

    def format_usage(self) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage or usage_of(self, self.needed), [], [])
        return formatter.format_help()

    def format_help(self) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage or usage_of(self, self.needed), [], [])
        formatter.add_text(self.description)
        for group in sorted(
            self._action_groups, key=lambda group: group is self._optionals
        ):  # `help` last
            formatter.start_section(group.title)
            formatter.add_text(group.description)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def _about(self, word: str) -> str:
        if not word.startswith("-"):
            return f"there is no place for {word!r}: text with spaces needs quotes"
        verbs = [f"`electrify {verb}`" for verb in self._verbs_with(word)]
        if verbs:
            return f"{word} is a flag of {', '.join(verbs)}, not of `{self.prog}`"
        known = [
            flag
            for flag in self._option_string_actions
            if flag.startswith("--") and "_" not in flag
        ]
        close = difflib.get_close_matches(word.replace("_", "-"), known, n=1)
        return f"there is no flag {word}" + (f"; did you mean {close[0]}?" if close else "")

    def _verbs_with(self, flag: str) -> list[str]:
        """The verbs that have a flag."""
        every = self.whole()._actions if self.whole else ()
        verbs = next((a for a in every if isinstance(a, argparse._SubParsersAction)), None)
        return [
            name
            for name, p in (verbs.choices if verbs else {}).items()
            if flag in p._option_string_actions
        ]

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            name = "/".join(action.option_strings) or str(action.metavar or action.dest)
            self.error(f"{name} cannot be {value!r}{nearest(str(value), map(str, action.choices))}")

    def _taken_by_a_switch(self) -> str | None:
        """What to say of a positional that is missing because a switch before it took it for its
        own value; None if no switch did."""
        missing = [
            str(action.metavar)
            for action in self._actions
            if not action.option_strings and action.required
            if getattr(self.read, action.dest, None) is None
        ]
        for action in self._actions if missing else ():
            value = getattr(self.read, action.dest, None)
            if (action.nargs, action.const) == ("?", "true") and value and not is_answer(value):
                flag = action.option_strings[0]
                return f"{flag} is true or false, not {value!r}: put {missing[0]} before the flag"
        return None

    def error(self, message: str) -> NoReturn:
        if message.startswith(gettext(_MISSING).partition("%s")[0]):
            message = self._taken_by_a_switch() or message
        message = harmless(message)
        more = "" if message.endswith("?") else f"; see `{self.prog} --help`"
        self.exit(2, f"{self.prog}: {message}{more}\n")


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def add_flags(
    parser: argparse.ArgumentParser,
    cls: type,
    *,
    skip: tuple[str, ...] = (),
    optional: bool = False,
) -> None:
    """One flag per field of `cls`. A flag that is not given leaves no attribute, so a recipe's own
    value stays.

    They are grouped: `cls.HEADINGS` says which field each heading begins with. optional: fields
    without a default may be left out, too.
    """
    for field in dataclasses.fields(cls):
        if field.name in skip:
            continue
        if (
            isinstance(parser, Parser)
            and not optional
            and field.default is field.default_factory is dataclasses.MISSING
        ):
            parser.needed.append(flag_of(field.name))
        add_flag(group_of(parser, heading_of(cls, field.name)), cls, field.name)


def add_flag(group: Any, cls: type, name: str) -> None:
    """The flag of one field of `cls`."""
    field = next(f for f in dataclasses.fields(cls) if f.name == name)
    kind = without_none(field_types(cls)[name])
    flag = flag_of(name)
    default = None if field.default is dataclasses.MISSING else field.default
    shown = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
    shown = "" if default in (None, (), "") else f" [{shown}]"
    text = (help_of(cls, name) + shown).replace("%", "%%")
    flags = list(dict.fromkeys((flag, "--" + name)))
    given: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS}
    if kind is bool:
        # Converted later together with all other fields, where an error becomes a UserError. The
        # opposite is a flag of its own that takes no value.
        group.add_argument(
            *flags, nargs="?", const="true", metavar="true|false", help=text, **given
        )
        group.add_argument(
            "--no-" + flag[2:],
            action="store_const",
            const="false",
            help=f"the same as {flag} false",
            **given,
        )
        return
    choices = choices_of(kind)
    value = "{" + ",".join(map(str, choices)) + "}" if choices else metavar_of(kind, flag)
    group.add_argument(*flags, metavar=value, help=text, **given)


def heading_of(cls: type, name: str) -> str:
    """The heading under which the flag of a field is listed."""
    heading = "flags"
    headings = getattr(cls, "HEADINGS", {})
    for field in dataclasses.fields(cls):
        heading = headings.get(field.name, heading)
        if field.name == name:
            break
    return heading


def group_of(parser: argparse.ArgumentParser, heading: str) -> Any:
    return next(
        (g for g in parser._action_groups if g.title == heading), None
    ) or parser.add_argument_group(heading)


def from_flags(cls: type[C], namespace: argparse.Namespace, **fixed: Any) -> C:
    """A dataclass from parsed flags; every field not given takes the dataclass's default. Raises
    UserError naming the flag."""
    kinds = field_types(cls)
    given = {k: v for k, v in vars(namespace).items() if k in kinds} | fixed
    for field in dataclasses.fields(typing.cast(Any, cls)):
        if (
            field.default is field.default_factory is dataclasses.MISSING
            and field.name not in given
        ):
            raise UserError(
                f"{flag_of(field.name)} is missing "
                f"({field_docs(cls).get(field.name, '').rstrip('.')})"
            )
    # A text is taken as it is: to give none, a flag is left out, and a file may have that name.
    texts = {k for k in given if without_none(kinds[k]) is str and isinstance(given[k], str)}
    with named_as_flags(kinds):
        return cls(
            **{k: v if k in texts else convert(v, kinds[k], flag_of(k)) for k, v in given.items()}
        )


@contextmanager
def named_as_flags(fields: Iterable[str]) -> Iterator[None]:
    """A context in which a UserError about these fields, whose values came from the command line,
    names the flags, because these are what the user can change."""
    try:
        yield
    except UserError as e:
        raise UserError(in_flags(str(e), fields)) from e


def in_flags(sentence: str, fields: Iterable[str]) -> str:
    """`max_steps must be positive` -> `--max-steps must be positive`. A field whose name is an
    English word is replaced only at the beginning."""
    fields = list(fields)
    long = "|".join(name for name in fields if "_" in name) or "(?!)"
    sentence = re.sub(
        rf"(?<![\w./-])({long})(?![\w/]|\.\w)", lambda found: flag_of(found[0]), sentence
    )
    return re.sub(
        rf"^({'|'.join(fields) or '(?!)'})(?![\w/-]|\.\w)",
        lambda found: flag_of(found[0]),
        sentence,
    )
