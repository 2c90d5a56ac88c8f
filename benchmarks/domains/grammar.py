"""Sentences from templates as hassil writes them: `[optional]`, `(one|of|these)`, `(any;order)`,
`{slot}` or `{list:slot}`, `<rule>`."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

PIECES = re.compile(r"\{[^}]*\}|<[^>]*>|[\[\]()|;]|[^\[\]()|;{}<>]+")


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Slot:
    name: str


@dataclass(frozen=True)
class Rule:
    name: str


@dataclass(frozen=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class OneOf:
    choices: tuple[Node, ...]


@dataclass(frozen=True)
class AnyOrder:
    parts: tuple[Node, ...]


Node = Text | Slot | Rule | Sequence | OneOf | AnyOrder


def parse(template: str) -> Node:
    """Raises ValueError for a bracket without its counterpart."""
    pieces = PIECES.findall(template)
    node, at = _group(pieces, 0, "")
    if at != len(pieces):
        raise ValueError(f"{template!r} has a bracket too many")
    return node


def sample(
    node: Node,
    rng: random.Random,
    *,
    rules: Mapping[str, str],
    value: Callable[[str, random.Random], str],
) -> str:
    """One sentence, with single spaces. rules: the template of each `<rule>`. value: text for a
    `{slot}`, which may be a template itself."""

    def text(part: Node) -> str:
        match part:
            case Text(words):
                return words
            case Slot(name):
                return text(parse(value(name.partition(":")[0], rng)))
            case Rule(name):
                return text(parse(rules[name]))
            case Sequence(parts):
                return "".join(text(one) for one in parts)
            case OneOf(choices):
                return text(rng.choice(choices))
            case AnyOrder(parts):
                return " ".join(text(one) for one in rng.sample(parts, len(parts)))

    return " ".join(text(node).split())


def _group(pieces: list[str], at: int, closing: str) -> tuple[Node, int]:
    """What stands before the closing bracket, and where to go on behind it."""
    rows: list[list[Node]] = [[]]
    order = False
    while at < len(pieces) and pieces[at] != closing:
        piece = pieces[at]
        at += 1
        if piece in "|;":
            rows.append([])
            order = order or piece == ";"
        elif piece in "([":
            inside, at = _group(pieces, at, ")" if piece == "(" else "]")
            rows[-1].append(inside if piece == "(" else OneOf((inside, Text(""))))
        elif piece in ")]":
            raise ValueError(f"a {piece} closes nothing")
        else:
            rows[-1].append(_leaf(piece))
    if closing and at == len(pieces):
        raise ValueError(f"a {closing} is missing")
    made = tuple(Sequence(tuple(row)) for row in rows)
    node: Node = made[0] if len(made) == 1 else AnyOrder(made) if order else OneOf(made)
    return node, at + bool(closing)


def _leaf(piece: str) -> Node:
    if piece.startswith("{"):
        return Slot(piece[1:-1])
    return Rule(piece[1:-1]) if piece.startswith("<") else Text(piece)
