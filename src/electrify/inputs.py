"""What callers in Python give: keywords, texts, labels and lists in memory become the options and
files of a command."""

from __future__ import annotations

import glob
import inspect
import json
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from .errors import UserError, need
from .names import meant_by, nearest
from .values import Options

Given = ParamSpec("Given")
Result = TypeVar("Result")
TEXT = "text"
SPLITS = {"train", "test", "validation", "valid", "dev"}
FILE_NAME = re.compile(r"\S+\.[A-Za-z]\w{1,6}(\.(gz|xz|bz2|zst))?")
"""What is a name in a list of names, whether there is such a file or not."""


# ------------------------------------------------------------------ keywords


def as_keywords(text: str) -> str:
    """A text with its flags as keywords: --no-header is header=False. Lines for a shell, between
    backticks, stay."""

    def keyword(flag: re.Match[str]) -> str:
        return flag[2].replace("-", "_") + "=False" * bool(flag[1])

    parts = text.split("`")
    # Names in the cache of the Hub hold two hyphens, too.
    parts[::2] = [re.sub(r"(?<![\w-])--(no-)?([a-z][a-z-]*)", keyword, part) for part in parts[::2]]
    return "`".join(parts)


def keywords(
    *more: type[Options] | Iterable[str], but: Collection[str] = ()
) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """A function that users call from Python. Its keywords are its own and `more`: names, or the
    options of a command, without `but`. Names of other libraries are taken for these, sentences
    for the user name keywords, and where the first argument is a keyword the next comes first.
    Raises UserError for a keyword that it lacks, that is given twice, or that is missing."""

    def decorated(function: Callable[Given, Result]) -> Callable[Given, Result]:
        signature, function_name = inspect.signature(function), function.__name__
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        places = [p.name for p in own if p.kind is p.POSITIONAL_OR_KEYWORD]
        added = (one.names() if isinstance(one, type) else one for one in more)
        names = {p.name for p in own}.union(*added) - {"self", *but}

        @wraps(function)
        def call(*args: Any, **given: Any) -> Result:
            given = known(function_name, given, names)
            # pretrain("electra-tiny", corpus=data): the recipe moves on to the second place. Where
            # the first argument is a keyword, the others do so if all still have a place.
            if places[0] in given and len(args) + len(given.keys() & {*places}) <= len(places):
                args = (given.pop(places[0]), *args)
            try:
                signature.bind(*args, **given)
            except TypeError as e:
                raise UserError(f"{function_name}(): {e}") from None
            try:
                return function(*args, **given)
            except UserError as e:
                raise UserError(as_keywords(str(e))) from None

        return call

    return decorated


def known(function: str, given: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The keywords that are given, under the names that the function has for them. Raises UserError
    that names one which it does not have."""
    found = dict[str, Any]()
    for name, value in given.items():
        own = name if name in names else meant_by(name, names)
        if not own:
            raise UserError(f"{function}() has no argument {name!r}{nearest(name, names)}")
        need(own not in found, f"{function}(): {name} is a second value of {own}")
        found[own] = value
    return found


# ------------------------------------------------------------------ texts and rows


def rows_of(data: Any) -> Iterator[Any]:
    """The elements of a data frame, of a data set, of lists by the names of columns, or of any
    iterable. Raises UserError for another mapping, such as a data set of several splits."""
    if isinstance(data, Mapping):
        if not SPLITS & data.keys() and all(isinstance(column, list) for column in data.values()):
            lengths = ", ".join(f"{name} {len(column)}" for name, column in data.items())
            same = len(set(map(len, data.values()))) < 2
            need(same, f"the columns have different lengths: {lengths}")
            rows = zip(*data.values(), strict=True)
            yield from (dict(zip(data, row, strict=True)) for row in rows)
            return
        parts = ", ".join(map(str, data))
        raise UserError(
            f"this is a mapping with {parts:.80}. Give one of its parts, or a list of rows"
        )
    if hasattr(data, "to_dict") and hasattr(data, "columns"):
        yield from data.to_dict("records")
        return
    named = dict[str, Sequence[str]]()
    for column, feature in (getattr(data, "features", None) or {}).items():
        names = getattr(getattr(feature, "feature", feature), "names", None)
        named |= {column: names} if names else {}
    for row in data:
        of_classes = {column: name_of(row[column], names) for column, names in named.items()}
        yield row | of_classes if of_classes else row


def name_of(value: Any, names: Sequence[str]) -> Any:
    """The name of a class of `datasets`, given by its number; -1, of no class, is None. A list of
    numbers is a list of names."""
    if isinstance(value, list):
        return [name_of(one, names) for one in value]
    return names[value] if value is not None and value >= 0 else None


def are_names(data: Any) -> bool:
    """Whether this is a list of names of what is to be read, and not of texts: paths that exist,
    patterns, `pydocs` or hub:NAME."""
    return isinstance(data, list | tuple) and bool(data) and all(map(_is_name, data))


def _is_name(one: Any) -> bool:
    if not isinstance(one, str):
        return isinstance(one, os.PathLike)
    known = one == "pydocs" or one.startswith("hub:") or FILE_NAME.fullmatch(one)
    return bool(known or glob.glob(os.path.expanduser(one)))


@contextmanager
def as_file(data: Any, *columns: str) -> Iterator[Any]:
    """The path of a file: the one that is named, or a temporary one with these rows; None for None.
    Rows that are no mappings are given these columns, as many as they have. Raises UserError, in
    which these rows are no file."""
    if data is None or isinstance(data, str | os.PathLike):
        yield data and os.fspath(data)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "examples.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for number, row in enumerate(rows_of(data), start=1):
                file.write(json.dumps(as_mapping(row, columns, number), default=plain) + "\n")
        try:
            yield str(path)
        except UserError as e:
            raise UserError(str(e).replace(str(path), "the given rows")) from e


def as_mapping(row: Any, columns: Sequence[str], number: int) -> dict[str, Any]:
    """A row as a mapping. Raises UserError for one that is neither a mapping nor a tuple."""
    if isinstance(row, Mapping):
        return dict(row)
    cells = (row,) if isinstance(row, str) else tuple(row) if isinstance(row, Iterable) else ()
    if len(cells) == 2 and all(isinstance(cell, list | tuple) for cell in cells):
        columns = ("tokens", "tags")  # the words of a sentence and their tags
    if not 1 <= len(cells) <= len(columns):
        raise UserError(f"row {number} is {row!r:.60}. Give ({', '.join(columns)}), or a mapping")
    names = [*columns[: len(cells) - 1], columns[-1]] if len(cells) > 1 else columns[:1]
    return dict(zip(names, cells, strict=True))


def plain(value: Any) -> Any:
    """What json does not know: a number or an array of numpy."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def texts_in(data: Any, column: str | None = None) -> list[Any]:
    """The elements of a list or generator, or the column of texts (or lists of words) of a data
    frame or data set. Raises UserError if the column is not known."""
    found = list(rows_of(data))
    if not found or not isinstance(found[0], dict):
        return found
    usual = (TEXT, "tokens", "words") if column is None else (column,)
    column = next((name for name in usual if name in found[0]), None)
    columns = ", ".join(map(str, found[0]))
    need(column is not None, f"none of the columns ({columns}) is {' or '.join(usual)}")
    for number, row in enumerate(found, start=1):
        has = isinstance(row, dict) and column in row
        need(has, f"row {number} has no column {column!r}: {row!r:.60}")
    return [row[column] for row in found]


# ------------------------------------------------------------------ labelled examples


def columns_of(given: dict[str, Any]) -> tuple[str, ...]:
    """The columns of the text, the second text and the label. Two names in text_column become that
    of the text and pair_column."""
    if isinstance(columns := given.get("text_column"), list | tuple):
        need(len(columns) == 2, f"text_column is one column, or the two of pairs, not {columns}")
        given |= zip(("text_column", "pair_column"), columns, strict=True)
    usual = {"text_column": TEXT, "pair_column": "text_pair", "label_column": "label"}
    return tuple(given.get(name) or column for name, column in usual.items())


def with_labels(texts: Any, labels: Any) -> list[tuple[Any, Any]]:
    """Examples. Raises UserError if the two have not as many."""
    both = list(rows_of(texts)), list(labels)
    need(len(both[0]) == len(both[1]), f"{len(both[0])} texts, but {len(both[1])} labels")
    return list(zip(*both, strict=True))


def are_texts(data: Any) -> bool:
    """Whether these are texts alone, without labels."""
    table = isinstance(data, str | Mapping) or hasattr(data, "columns")
    some = hasattr(data, "__len__") and not table and len(data) > 0
    return some and all(isinstance(text, str) for text in data)


def seeds_of(seeds: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options `seeds`, how many there are, and `seed`, the first of those that are listed.
    Raises UserError for others than those in a row."""
    if not isinstance(seeds, list | tuple | range):
        return {"seeds": seeds}
    need("seed" not in given, "seed is the first of seeds: give one of the two")
    first = seeds[0] if seeds and hasattr(seeds[0], "__index__") else 0
    wanted = list(range(first, first + max(1, len(seeds))))
    need(list(seeds) == wanted, f"seeds must be a number of runs, or like {wanted}")
    return {"seeds": len(seeds), "seed": first}


# ------------------------------------------------------------------ n-best lists


def nbest(lists: Any) -> tuple[Any, bool]:
    """N-best lists as mappings, unless they are a file or None, and whether it was one list, which
    is then a list of its own."""
    if lists is None or isinstance(lists, str | os.PathLike):
        return lists, False
    several = list(rows_of(lists))
    alone = bool(several) and all(isinstance(one, str) or _is_scored(one) for one in several)
    several = [several] if alone else several
    return [_nbest(one) if isinstance(one, list | tuple) else one for one in several], alone


def _nbest(one: Sequence[Any]) -> dict[str, Any]:
    """A list of texts, or of texts with their scores."""
    if not one or not all(map(_is_scored, one)):
        return {"hypotheses": one}
    texts, scores = zip(*one, strict=True)
    return {"hypotheses": texts, "scores": scores}


def _is_scored(one: Any) -> bool:
    """Whether this is (text, score)."""
    return isinstance(one, list | tuple) and len(one) == 2 and hasattr(one[1], "__float__")
