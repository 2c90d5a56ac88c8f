"""The inputs of `electrify prepare` that hold text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..errors import UserError
from ..progress import say
from .endings import IN_FOLDERS, is_json
from .options import PrepareConfig
from .records import columns_of
from .row import TEXT_COLUMNS, separator_hint
from .source import Source
from .sources import resolve
from .walk import LeftOut, sentence


def choose_sources(options: PrepareConfig) -> list[Source]:
    """The inputs that hold text. Reports what is left out of a folder. Raises UserError if nothing
    remains."""
    sources, left_out = resolve(
        options.inputs,
        output=Path(options.output_dir),
        further=IN_FOLDERS.get(options.document_boundary, frozenset()),
    )
    chosen, aside = [], []
    for source in sources:
        about = _may_be_about_others(source) and options.text_column not in columns_of(source)
        (aside if about else chosen).append(source)
    chosen = _with_columns(chosen, options)
    if not chosen:  # the tables of a folder or pattern are the corpus, and their column has a name
        chosen = [source for source in _with_columns(aside, options) if source.column]
        found = {source.path for source in chosen}
        aside = [source for source in aside if source.path not in found]
    left_out += [
        LeftOut(s.name, f"{_kind(s)} without a column {options.text_column!r}") for s in aside
    ]
    if left_out:
        say(sentence(left_out))
    if not chosen:
        hints = (separator_hint(columns_of(source), source.format or "") for source in aside)
        hint = next(filter(None, hints), "; choose one with text_column")
        raise UserError(
            f"no file of {', '.join(options.inputs)} has a column {options.text_column!r}{hint}"
        )
    return chosen


def _kind(source: Source) -> str:
    return "tables" if source.format in ("csv", "tsv") else "JSON files"


def _may_be_about_others(source: Source) -> bool:
    """Whether it is a table or a .json next to the texts of a folder, which usually holds metadata
    about them."""
    return source.in_folder and (_kind(source) == "tables" or is_json(source.path))


def _with_columns(sources: list[Source], options: PrepareConfig) -> list[Source]:
    """The sources, and where the default column is missing, the only one with a known name in its
    place. Says so."""
    if options.text_column != TEXT_COLUMNS[0]:
        return sources
    named: dict[str, list[Source]] = {}
    found = []
    for source in sources:
        column = _known_column(source)
        source = replace(source, column=column) if column else source
        named.setdefault(column, []).append(source)
        found.append(source)
    for column, those in named.items():
        if column:
            say(
                f"{shown(those)}: no column {options.text_column!r}, so the text is read from "
                f"{column!r}; --text-column names another one"
            )
    return found


def _known_column(source: Source) -> str:
    """The only column with a known name, if none has the usual one; empty otherwise."""
    if source.format not in ("csv", "tsv", "jsonl", "parquet") or not source.path.name:
        return ""
    try:
        known = [name for name in columns_of(source) if name in TEXT_COLUMNS]
    except UserError:  # whatever reads all of it says what is wrong
        return ""
    return known[0] if len(known) == 1 and known[0] != TEXT_COLUMNS[0] else ""


def shown(sources: list[Source]) -> str:
    """A few of the names, for a message."""
    names = [s.name for s in sources]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
