"""The inputs named by the user -> sources, in an order that does not depend on the file system; and
the column of each table that holds its texts. What is left out of a folder is counted and named: a
corpus is never shortened silently."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from ..errors import UserError
from ..files import sha256
from ..progress import say
from .options import PrepareConfig
from .streams import COMPRESSIONS, Advance, compression_of, ending_of, whole
from .tables import FASTA, JSON_LINES, SMILES, TEXT_COLUMNS, Row, hub_rows, rows, text_columns

Format = Literal["txt", "md", "jsonl", "csv", "tsv", "parquet", "fasta", "smi", "pydocs", "hub"]
FORMATS: dict[str, Format] = {
    **dict.fromkeys((".txt", ".text"), "txt"),
    **dict.fromkeys((".md", ".markdown"), "md"),
    **dict.fromkeys(JSON_LINES, "jsonl"),
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    **dict.fromkeys(FASTA, "fasta"),
    **dict.fromkeys(SMILES, "smi"),
}
WITH_COLUMNS = ("jsonl", "csv", "tsv", "parquet")
SOURCE_CODE = frozenset(
    {".py", ".pyi", ".c", ".h", ".cc", ".cpp", ".hpp", ".cu", ".cs", ".java", ".kt", ".scala"}
    | {".go", ".rs", ".swift", ".js", ".jsx", ".ts", ".tsx", ".rb", ".php", ".pl", ".lua", ".r"}
    | {".jl", ".hs", ".ml", ".sh", ".sql"}
)
LOGS = frozenset({".log"})
NAMED = SOURCE_CODE | LOGS  # text if the user asks for it by name or pattern
# A folder of texts may hold such files beside its corpus, so there they count only if the user says
# what a document is in them.
IN_FOLDERS: dict[str, frozenset[str]] = {"file": SOURCE_CODE, "line": LOGS}
"""by document_boundary: further endings of text in a folder"""
# Files that describe a corpus and are not part of it. They are used only if the user names them.
_ABOUT = re.compile(
    r"(readme|licen[cs]e|copying|notice|changelog|contributing|code_of_conduct)(\..*)?", re.I
)
# Names that tell a corpus (finished or not), a run, a study, results of fine-tuning, a model. Their
# vocabularies, reports and cards have the endings of texts.
_MADE_WITH = (
    ("manifest.json", "unigram.npy"),
    ("unfinished/state.json",),
    ("config.yaml", "run.json"),
    ("study.yaml", "cells"),
    ("finetune.json",),
    ("search.json", "grid"),
    ("electrify.json",),
)
_SHOWN = 3
PYDOCS = "pydocs"
HUB = "hub:"
_HUB_NAME = re.compile(r"\w[\w.-]*(/[\w.-]+)?(:[\w.-]+)?")

LeftOut = dict[str, list[str]]
"""Names by the reason why they are left out."""
NO_FILE = "links that lead nowhere, pipes or devices"
LINKED = "links to folders (not followed)"
MADE = "folders that electrify made"


@dataclass(frozen=True)
class Source:
    """One input: a file, the corpus `pydocs`, or a data set. `name` goes into the manifest:
    relative, never an absolute path."""

    name: str
    format: Format
    path: Path = Path()
    hub: str = ""
    """data set name or a local folder, followed by `:CONFIG` if one was given"""
    in_folder: bool = False
    """found in a folder or by a glob, not named by the user"""
    column: str = ""
    """the column that holds the texts, where it is known"""

    @property
    def size(self) -> int:
        """Bytes of the file; 0 if unknown."""
        return self.path.stat().st_size if self.path.name else 0

    def identity(self) -> dict[str, Any]:
        """name, bytes and sha256: whether this is the same input as before. A data set is known by
        its name only, unless it is a folder here."""
        if self.format == "pydocs":
            from .pydocs import identity

            return {"name": self.name, "bytes": 0, "sha256": identity()}
        if self.format != "hub":
            return {"name": self.name, "bytes": self.size, "sha256": sha256(self.path)}
        folder = Path(self.hub.partition(":")[0])
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        found = hashlib.sha256()
        for path in paths:
            name = path.relative_to(folder).as_posix()
            found.update(name.encode() + b"\0" + bytes.fromhex(sha256(path)))
        size = sum(path.stat().st_size for path in paths)
        return {"name": self.name, "bytes": size, "sha256": found.hexdigest() if paths else ""}


def choose_sources(options: PrepareConfig) -> list[Source]:
    """The inputs that hold text, with the column of each table. Reports what is left out of a
    folder. Raises UserError if nothing remains."""
    left: LeftOut = {}
    further = IN_FOLDERS.get(options.document_boundary, frozenset())
    chosen, aside = [], []
    for source in resolve(options.inputs, left, output=Path(options.output_dir), further=further):
        found = source
        if source.format in WITH_COLUMNS:
            with suppress(UserError):  # whatever reads all of it says what is wrong
                found = replace(source, column=column_of(source, options))
        # Next to the texts of a folder, a table or a .json usually holds metadata about them.
        is_table = source.format in ("csv", "tsv") or ending_of(source.path) == ".json"
        is_other = not found.column or (_is_usual(options) and found.column != TEXT_COLUMNS[0])
        (aside if source.in_folder and is_table and is_other else chosen).append(found)
    if not chosen:  # the tables of a folder or pattern are the corpus, and their column has a name
        chosen = [source for source in aside if source.column]
        aside = [source for source in aside if not source.column]
    if aside:
        without = f"tables without a column {options.text_column!r}"
        left[without] = [source.name for source in aside]
    if left:
        say(left_out(left))
    if not chosen:
        column_of(aside[0], options)  # which raises the error
        raise UserError(
            f"no file of {', '.join(options.inputs)} has a column {options.text_column!r}"
        )
    named: dict[str, list[Source]] = {}
    for source in chosen:
        if _is_usual(options) and source.column not in ("", options.text_column):
            named.setdefault(source.column, []).append(source)
    for column, those in named.items():
        say(
            f"{shown(those)}: no column {options.text_column!r}, so the text is read from "
            f"{column!r}; --text-column names another one"
        )
    for source in chosen:
        numbered = options.text_column.isdecimal() and options.text_column != source.column
        if numbered and options.header and source.format in ("csv", "tsv"):
            say(
                f"{source.name}: column {options.text_column} is called {source.column!r} by the "
                "first line; --no-header if that line is an example"
            )
    return chosen


def _is_usual(options: PrepareConfig) -> bool:
    """Whether no column was named."""
    return options.text_column == TEXT_COLUMNS[0]


def shown(sources: list[Source]) -> str:
    """A few of the names, for a message."""
    names = [s.name for s in sources]
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" * (len(names) > _SHOWN))


def left_out(left: LeftOut) -> str:
    """`left out 3; hidden: 2 (.a, .b); empty files: 1 (c.txt)`."""
    groups = (
        f"{reason}: {len(names)} ({', '.join(names[:_SHOWN])}{' ...' * (len(names) > _SHOWN)})"
        for reason, names in left.items()
    )
    return f"left out {sum(map(len, left.values()))}; {'; '.join(groups)}"


# ------------------------------------------------------------------ rows


def rows_of(
    source: Source,
    options: PrepareConfig,
    counts: Counter[str],
    *,
    advance: Advance = None,
    only: str | None = None,
) -> Iterator[Row]:
    """The rows of a source that has rows. only: the column to read, where that saves work. counts:
    receives encoding_errors of JSON lines."""
    if source.format == "hub":
        return hub_rows(source.hub, options.dataset_split)
    header = options.header or source.format not in ("csv", "tsv")

    def mend(line: str, where: str) -> str:
        return whole(line, options.encoding_errors, counts, lambda: where) or ""

    return rows(source.path, header=header, advance=advance, mend=mend, only=only)


def column_of(source: Source, options: PrepareConfig) -> str:
    """The column that holds the texts of a source of rows, found as `finetune` finds it; empty if
    it has no row. Raises UserError."""
    if source.format == "smi":
        return "smiles"
    row = next(rows_of(source, options, Counter()), None)
    if row is None:
        return ""
    name = str(source.path) if source.path.name else f"data set {source.name}"
    unnamed = _is_usual(options) and TEXT_COLUMNS[0] not in row.cells and source.format != "hub"
    given = None if unnamed else options.text_column
    return text_columns(name, [row], given, None, pairs=False)[0]


# ------------------------------------------------------------------ files


def format_of(path: Path, further: frozenset[str] = frozenset()) -> Format | None:
    """The format by the name, ignoring a suffix of compression; None if we do not support it.
    further: endings of plain text beside FORMATS."""
    ending = ending_of(path)
    kind = "txt" if ending in further else FORMATS.get(ending)
    return None if kind == "parquet" and compression_of(path) else kind


def resolve(
    inputs: Sequence[str],
    left: LeftOut,
    *,
    output: Path | None = None,
    further: frozenset[str] = frozenset(),
) -> list[Source]:
    """The sources in order, each file once.

    Args:
        left: Takes what was found in folders or by patterns and is left out.
        output: The output folder, whose files are not input even if it is inside an input folder.
        further: Endings of text in folders beside the known ones; source code and logs that are
            named, or asked for by a pattern, are text anyway.

    Raises UserError for an input that does not exist or holds no text.
    """
    once: dict[object, Source] = {}
    for item in inputs:
        for source in _resolved(item, left, further):
            key = source.path.resolve() if source.path.name else source.hub
            ours = isinstance(key, Path) and output and key.is_relative_to(output.resolve())
            if not (ours and source.in_folder):
                once.setdefault(key, source)
    if not once:
        raise UserError(
            f"all text of {', '.join(inputs)} lies in the output folder, whose files are not "
            "input. Choose another --output-dir"
        )
    return list(once.values())


def _resolved(item: str, left: LeftOut, further: frozenset[str]) -> list[Source]:
    if item == PYDOCS:
        return [Source(PYDOCS, "pydocs")]
    if item.startswith(HUB):
        name = os.path.expanduser(item[len(HUB) :])
        if not name:
            raise UserError(
                "`hub:` needs the name of a data set, as in hub:wikitext:wikitext-2-raw-v1"
            )
        return [Source(HUB + (Path(name).name if name.startswith("/") else name), "hub", hub=name)]
    path = Path(item).expanduser()
    if path.is_dir():
        return _in_folder(path, item, left, further)
    if path.exists():
        kind = format_of(path, NAMED)
        if kind is None:
            raise UserError(
                f"{path} is not of a known kind; known endings: {', '.join(FORMATS)}, each but "
                f".parquet also with {', '.join(COMPRESSIONS)}; and those of source code and logs"
            )
        return [Source(path.name, kind, path)]
    if glob.has_magic(item):
        return _by_pattern(path, item, left)
    # The Hub is asked only where hub: says so: for a mistyped folder that would take a minute.
    beside_a_folder = "/" in item and path.parent.is_dir()
    may_be_meant = format_of(path) is None and not beside_a_folder and _HUB_NAME.fullmatch(item)
    hint = f"; a data set of the Hub is written {HUB}{item}" if may_be_meant else ""
    raise UserError(f"no such file or folder: {item}{hint}")


def _in_folder(folder: Path, item: str, left: LeftOut, further: frozenset[str]) -> list[Source]:
    must_not_be_made(folder)
    mine: LeftOut = {}
    sources = []
    for path in _walked(folder, folder, mine):
        name = path.relative_to(folder).as_posix()
        kind = format_of(path, further)
        about = "files about the corpus" if _ABOUT.fullmatch(path.name) else ""
        if reason := _unfit(path, kind) or about:
            mine.setdefault(reason, []).append(name)
        elif kind is not None:
            name = f"{folder.resolve().name}/{name}"
            sources.append(Source(name, kind, path, in_folder=True))
    if not sources:
        raise UserError(
            f"the folder {item} holds no text file; known endings: {', '.join(FORMATS)}; source "
            f"code with --preset code, .log with --preset logs{f' ({left_out(mine)})' * bool(mine)}"
        )
    _add(left, mine)
    return sources


def _walked(folder: Path, top: Path, left: LeftOut) -> Iterator[Path]:
    """The files below a folder that may be read, in sorted order. Links to files are followed
    (caches of data sets consist of them). Links to folders are not, because two that lead back
    would give more paths than can be walked; the user can name such a folder as an input."""
    for path in sorted(folder.iterdir()):
        is_folder = path.is_dir()
        reason = ""
        if path.name.startswith("."):
            reason = "hidden"
        elif is_folder and path.is_symlink():
            reason = LINKED
        elif is_folder and is_made(path):
            reason = MADE
        elif not is_folder and not path.is_file():
            reason = NO_FILE
        elif not os.access(path, os.R_OK):
            reason = "files and folders that may not be read"
        if reason:
            left.setdefault(reason, []).append(path.relative_to(top).as_posix())
        elif is_folder:
            yield from _walked(path, top, left)
        else:
            yield path


def _unfit(path: Path, kind: Format | None) -> str:
    """Why a file that was found is left out."""
    if kind is None:
        return "files of other kinds"
    # An empty archive is damaged, and reading it reports that.
    return "" if path.stat().st_size or compression_of(path) else "empty files"


def _by_pattern(pattern: Path, item: str, left: LeftOut) -> list[Source]:
    """The text files that match, without hidden names unless the pattern asks for them. `**` stands
    for any number of folders and does not follow links to folders."""
    fixed = next(i for i, part in enumerate(pattern.parts) if glob.has_magic(part))
    base, parts = Path(*pattern.parts[:fixed]), pattern.parts[fixed:]
    must_not_be_made(base)
    deep = "**" in parts
    try:
        found = sorted(base.glob("/".join(parts) + "/*" * (parts[-1] == "**")))
    except ValueError as e:
        raise UserError(
            f"the pattern {item} cannot be followed ({e}). Write ** between slashes, as in "
            "FOLDER/**/*.txt, or one *"
        ) from e
    aside: LeftOut = {}
    if deep:
        deque(_walked(base, base, aside), maxlen=0)
    mine: LeftOut = {LINKED: aside[LINKED]} if LINKED in aside else {}
    made = cache(is_made)
    sources = []
    for path in found:
        below = path.relative_to(base)
        if any(p.startswith(".") for p in below.parts) and not any(p[0] == "." for p in parts):
            continue
        kind = format_of(path, NAMED)
        name = below.as_posix()
        if path.is_dir():
            reason = "" if deep else "folders into which this pattern does not lead"
        elif any(made(base / folder) for folder in below.parents):
            reason = MADE
        else:
            reason = NO_FILE if not path.is_file() else _unfit(path, kind)
            if not reason and kind is not None:
                sources.append(Source(path.name, kind, path, in_folder=True))
        if reason:
            mine.setdefault(reason, []).append(name)
    if not sources:
        raise UserError(f"no text file matches {item!r}" + f" ({left_out(mine)})" * bool(mine))
    _add(left, mine)
    return sources


def _add(left: LeftOut, more: LeftOut) -> None:
    for reason, names in more.items():
        left.setdefault(reason, []).extend(names)


def is_made(folder: Path) -> bool:
    """Whether electrify made the folder."""
    return any(all((folder / name).exists() for name in names) for names in _MADE_WITH)


def must_not_be_made(folder: Path) -> None:
    """Raises UserError for a folder that electrify made."""
    if is_made(folder):
        raise UserError(
            f"{folder} is a folder that electrify made, and its vocabularies and reports are not a "
            "corpus. Name the texts themselves"
        )
