"""The layout of `--help`: flags in groups by purpose, one spelling each, and a usage line that
names only what is required."""

from __future__ import annotations

import argparse
import shutil
import textwrap

# In a narrower terminal, flag and text do not fit side by side, and the text begins on the next
# line.
NARROW = 100
# The column where the text begins.
SIDE_BY_SIDE = 36
BELOW = 10
WIDEST = 140  # longer lines are hard to read


class HelpFormatter(argparse.HelpFormatter):
    """argparse's formatter, but without second spellings (--max_steps) and separate lines for
    --no-x."""

    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns - 2, WIDEST)
        super().__init__(
            prog, max_help_position=SIDE_BY_SIDE if width >= NARROW - 2 else BELOW, width=width
        )

    def add_argument(self, action: argparse.Action) -> None:
        if not is_opposite(action):
            super().add_argument(action)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return textwrap.fill(
            " ".join(text.split()),
            width,
            initial_indent=indent,
            subsequent_indent=indent,
            break_on_hyphens=False,
        )

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return super()._format_action_invocation(action)
        flags = [flag for flag in action.option_strings if "_" not in flag]
        if is_switch(action):
            return f"{flags[0]} | --no-{flags[0][2:]}"
        value = f" {self._format_args(action, action.dest.upper())}" if action.nargs != 0 else ""
        return ", ".join(flags) + value


def is_switch(action: argparse.Action) -> bool:
    """Whether it is a Boolean flag, which means true if it is given without a value."""
    return action.nargs == "?" and action.const == "true"


def is_opposite(action: argparse.Action) -> bool:
    return action.const == "false" and action.option_strings[0].startswith("--no-")


def usage_of(parser: argparse.ArgumentParser, needed: list[str]) -> str:
    """`electrify pretrain DATA --output-dir RUN [FLAGS]`. needed: required flags that argparse does
    not know to be required."""
    words = [parser.prog]
    flags = [
        action for action in parser._actions if action.option_strings and not is_opposite(action)
    ]
    for action in parser._actions:
        if not action.option_strings:
            words.append(placeholder(action))
    for action in flags:
        if action.required or action.option_strings[0] in needed:
            words.append(f"{action.option_strings[0]} {action.metavar or action.dest.upper()}")
    optional = [
        action for action in flags if not action.required and action.option_strings[0] not in needed
    ]
    pieces = [*words, "[FLAGS]"] if len(optional) > 1 else words
    return _broken(pieces, indent=len("usage: ")).replace("%", "%%")


def _broken(pieces: list[str], *, indent: int) -> str:
    """The pieces with spaces between them, on as many lines as they need."""
    width = min(shutil.get_terminal_size().columns - 2, WIDEST) - indent
    lines = [pieces[0]]
    for piece in pieces[1:]:
        if len(lines[-1]) + 1 + len(piece) <= width:
            lines[-1] += f" {piece}"
        else:
            lines.append(" " * 4 + piece)
    return ("\n" + " " * indent).join(lines)


def placeholder(action: argparse.Action) -> str:
    """A positional argument: NAME, NAME... for one or more, [NAME] and [NAME...] if it may be left
    out."""
    name = str(action.metavar or action.dest)
    several = name + "..." * (action.nargs in ("+", "*"))
    return f"[{several}]" if action.nargs in ("?", "*") else several
