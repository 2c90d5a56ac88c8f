"""What the labels of the user's own texts are: names of classes, several of them, or numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import UserError
from ..tasks import Kind
from .columns import WHOLE_NUMBER
from .tables import class_name, number_of

Cells = tuple[str, str | None, Any, str]
"""Text, second text, label as written, and the place of the row."""
OWN_METRICS: dict[Kind, tuple[str, ...]] = {
    "classification": (
        "accuracy",
        "macro_f1",
        "balanced_accuracy",
        "roc_auc",
        "pr_auc",
        "ece",
    ),
    "multilabel": ("micro_f1", "macro_f1", "accuracy", "roc_auc", "pr_auc"),
    "regression": ("spearman", "pearson"),
}
MOST, SOME = 0.8, 0.1
"""From these shares of numbers, and of decimal ones, labels are not taken for names of classes."""
FOR_PEOPLE = re.compile(r"[-+]?\d+(,\d+|[.,]\d+\s*%)")
"""Decimal numbers that are written for people: a comma, or a sign for percent."""


@dataclass(frozen=True)
class Marked:
    """What the columns of an example say, one for each class: the names of the columns with a 1,
    and of the empty ones."""

    held: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def held_in(value: Any) -> list[Any]:
    """The labels of one example; text holds them between bars."""
    if isinstance(value, Marked):
        return value.held
    if isinstance(value, list):
        return value
    return (
        [part.strip() for part in value.split("|") if part.strip()]
        if isinstance(value, str)
        else [value]
    )


def checked_kind(cells: list[Cells], wanted: str, train_file: str) -> Kind:
    """The kind of label. Raises UserError if the labels are not of the kind that is wanted."""
    values = [value for _, _, value, _ in cells]
    kind = _kind_of_labels(values) if wanted == "auto" else wanted
    if kind == "classification" and wanted == "auto":
        _must_not_be_numbers(cells)
    assert kind in OWN_METRICS
    if kind != "multilabel" and any(isinstance(v, list | Marked) for v in values):
        raise UserError(
            f"{train_file}: an example may have several labels there, so its problem type is "
            f"multilabel, not {kind}"
        )
    if kind == "multilabel" and not any(held_in(v) for v in values):
        raise UserError(f"{train_file}: no example has a label, so there is nothing to learn")
    return kind


def about_labels(kind: Kind, *, classes: int) -> str:
    """A note on how labels of a kind that nobody named are read."""
    if kind == "regression":
        return "the labels are read as numbers"
    return f"the labels are read as names of {classes:,} {'classes' if classes > 1 else 'class'}"


def _kind_of_labels(values: list[Any]) -> Kind:
    if any(isinstance(v, list | Marked) for v in values):
        return "multilabel"
    return "regression" if _are_decimals(values) else "classification"


def _are_decimals(values: list[Any]) -> bool:
    """Whether all labels are numbers and not all of them integers. The spelling counts: 3.0 is a
    decimal number and 3 is not."""
    return all(number_of(v) is not None for v in values) and not all(map(_is_whole, values))


def _must_not_be_numbers(cells: list[Cells]) -> None:
    """Raises UserError where most labels are numbers, decimal ones among them, and some are not:
    one such cell would make a class of each number."""
    plain = [(value, where, number_of(value) is not None) for _, _, value, where in cells]
    human = [isinstance(v, str) and bool(FOR_PEOPLE.fullmatch(v.strip())) for v, *_ in plain]
    numbers = sum(known or written for (*_, known), written in zip(plain, human, strict=True))
    decimals = sum(human) + sum(_is_decimal(value) for value, *_ in plain)
    if numbers < len(cells) * MOST or decimals < len(cells) * SOME:
        return
    value, where, written = next(
        (v, w, written) for (v, w, known), written in zip(plain, human, strict=True) if not known
    )
    fact = f"{where}: label {str(value)[:40]!r} is not a number"
    classes = "give --problem-type classification if each label is the name of a class"
    if written and "%" in value:
        raise UserError(f"{fact}; write it with a point and without the sign, or {classes}")
    if written:
        signs = "a decimal with a point, thousands without a comma, and several labels with bars"
        raise UserError(f"{fact}; write {signs} (--problem-type multilabel), or {classes}")
    raise UserError(f"{fact}, and {numbers:,} of {len(cells):,} are; correct it, or {classes}")


def _is_decimal(value: Any) -> bool:
    number = number_of(value)
    return number is not None and math.isfinite(number) and not _is_whole(value)


def _is_whole(value: Any) -> bool:
    return str(value).strip().lstrip("+-").isdecimal()


def class_names(values: list[Any], kind: Kind) -> list[str]:
    if kind == "regression":
        return []
    flat = values if kind != "multilabel" else [one for value in values for one in held_in(value)]
    return sorted({class_name(v) for v in flat}, key=_class_order)


def _class_order(name: str) -> tuple[int, float, str]:
    return (0, int(name), name) if WHOLE_NUMBER.fullmatch(name) else (1, 0, name)


def must_be_legible(names: Sequence[str], kind: Kind, train_file: str) -> None:
    """Raises UserError for a label that could not be told apart in the written answers."""
    barred = next((name for name in names if kind == "multilabel" and "|" in name), None)
    if barred is not None:
        raise UserError(
            f"{train_file}: the label {barred[:40]!r} holds a bar, which stands between labels; "
            "rename it"
        )


def must_be_learnable(values: Sequence[float], train_file: str) -> None:
    """Raises UserError for values that numbers of 32 bits, as in a model, cannot tell apart."""
    if not all(map(math.isfinite, values)):
        return  # which is reported where the label is read
    largest = max(map(abs, values))
    spread = max(values) - min(values)
    if spread and (largest > 1e30 or spread < 1e-30 or spread < largest * 1e-4):
        raise UserError(
            f"{train_file}: the labels lie between {min(values):.12g} and {max(values):.12g}, "
            "which a model of 32 bits cannot tell apart; subtract their mean and divide by their "
            "deviation"
        )
