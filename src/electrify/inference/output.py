"""Predictions -> a file, whole or not at all, or standard output."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..console import harmless
from ..downstream.read.conll import TOKENS
from ..errors import UserError
from ..files import written
from .options import EmbedConfig, PredictConfig
from .predictions import Labelled, Prediction, Several, Tagged, rounded
from .sentences import Untagged
from .source import Head, Item

_BREAKS = str.maketrans("\t\n\r", "   ")


def must_be_free(options: PredictConfig | EmbedConfig) -> None:
    """Raises UserError if the output file cannot be written, is there already, or is one of the
    input's."""
    if options.output_file is None:
        return
    path = Path(options.output_file)
    if not path.parent.is_dir():
        raise UserError(f"{path.parent}: no such folder; make it first")
    if not path.exists():
        return
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the name of a file")
    if any(os.path.samefile(file, path) for file in options.files if os.path.exists(file)):
        raise UserError(f"{path} is read and cannot be written at the same time")
    if not options.overwrite:
        raise UserError(f"{path} is there already; choose another --output-file or --overwrite")


@contextmanager
def sink(output_file: str | None) -> Iterator[Callable[[str], object]]:
    """Takes texts for the file, which is there when the block ends without an error; or for
    standard output."""
    if output_file is None:
        yield sys.stdout.write
        return
    with (
        written(Path(output_file)) as part,
        part.open("w", encoding="utf-8", newline="") as stream,
    ):
        yield stream.write


class Layout:
    """How predictions are written. `text` gives what the file holds for some items; the first call
    gives the header, too.

    ending: .jsonl, .csv or .tsv; shown: for a terminal, on which no character of a text may have an
    effect. blanks: cells of a .tsv that held a tab or a line break, which a blank replaces.
    left_out: columns of the input for which a line with a word and its tag has no place.
    """

    def __init__(
        self, ending: str, head: Head, *, labels: tuple[str, ...], every: bool, shown: bool
    ) -> None:
        """every: whether the probability of every label is written. Raises UserError if the input's
        columns do not fit into one table."""
        self.ending = ending
        self.columns = head.columns
        self._known = frozenset(head.columns)
        self.labels = labels
        self.every = every
        self.shown = shown
        self.blanks = 0
        self.left_out: tuple[str, ...] = ()
        self._number = 0
        self._beside: tuple[str, ...] = ()
        # A .tsv repeats lines of words as they are.
        repeated = ending == ".tsv" and all(one.lines for one in (head, *head.others))
        if ending != ".jsonl" and not repeated:
            must_go_together(head, "write .jsonl, or run a command for each")

    def text(self, items: list[Item], predictions: list[Prediction]) -> str:
        both = list(zip(items, predictions, strict=True))
        if self.ending == ".jsonl":
            return "".join(self._json(item, found) for item, found in both)
        if isinstance(predictions[0], Tagged):
            rows = [row for item, one in both for row in self._words(item, one)]
        else:
            rows = [self._cells(item, found) for item, found in both]
            if self._number == 0:
                rows.insert(0, [*self.columns, *self._added(both[0])])
            self._number += len(both)
        if self.ending == ".csv":
            table = io.StringIO()
            # Without the csv module's own line end, a lone carriage return would not be quoted.
            csv.writer(table).writerows(rows)
            return table.getvalue()
        return "".join("\t".join(map(self._cell, row)) + "\n" for row in rows)

    def _added(self, both: tuple[Item, Prediction]) -> dict[str, Any]:
        """What is written beside the input's columns. Raises UserError if the input has such a
        column."""
        item, found = both
        added = found.columns()
        example = item.example
        if isinstance(example, Untagged) and any(
            isinstance(item.columns.get(name), list) and name not in example.beside
            for name in TOKENS
        ):
            added.pop("words")
        if self.every and isinstance(found, Labelled | Several):
            every = {label: rounded(p) for label, p in found.probabilities.items()}
            if self.ending == ".jsonl":
                added["probabilities"] = every
            else:
                added |= {f"probability_{label}": p for label, p in every.items()}
        taken = next((name for name in added if name in item.columns), None)
        if taken is not None:
            raise UserError(
                f"the input has a column {taken!r} already, which would be lost; rename it"
            )
        return added

    def _json(self, item: Item, found: Prediction) -> str:
        row = item.columns | self._added((item, found))
        return json.dumps(row, ensure_ascii=self.shown) + "\n"

    def _cells(self, item: Item, found: Prediction) -> list[str]:
        must_fit(item, self._known, "write .jsonl")
        kept = [as_text(item.columns.get(name)) for name in self.columns]
        return [*kept, *map(as_text, self._added((item, found)).values())]

    def _words(self, item: Item, found: Prediction) -> Iterator[list[str]]:
        """A row for each word. In .tsv a blank line ends a sentence, and a line of the input stays
        as it is; in .csv the number of the sentence comes first, and the input's columns last."""
        example = item.example
        assert isinstance(example, Untagged)
        assert isinstance(found, Tagged)
        self._number += 1
        if self.ending == ".csv":
            yield from self._numbered(item, example, found)
            return
        if not example.cells:
            self.left_out = self.left_out or example.beside
        cells = example.cells or tuple((word,) for word in found.words)
        for row, tag in zip(cells, found.tags, strict=True):
            yield [*row, tag]
        yield []

    def _numbered(self, item: Item, example: Untagged, found: Tagged) -> Iterator[list[str]]:
        if self._number == 1:
            self._beside = example.beside
            head = ["sentence", "word", "predicted_tag"]
            taken = next((name for name in self._beside if name in head), None)
            if taken is not None:
                raise UserError(
                    f"the input has a column {taken!r} already, which would be lost; rename it"
                )
            yield [*head, *self._beside]
        must_fit(item, self._known, "write .jsonl")
        kept: list[Any] = [item.columns.get(name) for name in self._beside]
        for k, (word, tag) in enumerate(zip(found.words, found.tags, strict=True)):
            own = [column[k] for column in kept] if example.cells else map(as_text, kept)
            yield [str(self._number), word, tag, *own]

    def _cell(self, text: str) -> str:
        clean = text.translate(_BREAKS)
        self.blanks += clean != text
        return harmless(clean) if self.shown else clean


def must_fit(item: Item, known: Container[str], advice: str) -> None:
    """Raises UserError if a row has a column that the first one does not have."""
    odd = next((name for name in item.columns if name not in known), None)
    if odd is not None:
        raise UserError(
            f"a row has a column {odd!r} that the first row does not have, so they do not fit into "
            f"one table; {advice}"
        )


def must_go_together(head: Head, advice: str, *, fewer: bool = False) -> None:
    """Raises UserError if the files have different columns. fewer: whether columns that only the
    first one has, and another order, do not count."""
    for other in head.others:
        same = set(other.columns) <= set(head.columns) if fewer else other.columns == head.columns
        if not same:
            raise UserError(
                f"{other.path} has other columns than {head.path}, so they do not fit into one "
                f"table; {advice}"
            )


def as_text(value: Any) -> str:
    """A value in a cell of a table: texts as they are, a list of texts or numbers with bars
    between, nothing for null."""
    match value:
        case None:
            return ""
        case str():
            return value
        case list() if all(isinstance(one, str | int | float) for one in value):
            return "|".join(str(one) for one in value)
    return json.dumps(value, ensure_ascii=False)
