"""The inputs named by the user -> sources, in an order that does not depend on the file system; and
the column of each table that holds its texts. What is left out of a folder is counted and named: a
corpus is never shortened silently."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import UserError, need
from ..files import sha256
from ..progress import say
from .options import PrepareConfig
from .streams import COMPRESSIONS, Advance, compression_of, ending_of
from .tables import (
    CELLS,
    FASTA,
    JSON_LINES,
    SMILES,
    TEXT_COLUMNS,
    Row,
    hub_rows,
    rows,
    text_columns,
)

Format = Literal["txt", "md", "table", "fasta", "smiles", "pydocs", "hub"]
FORMATS: dict[str, Format] = {
    **dict.fromkeys((".txt", ".text"), "txt"),
    **dict.fromkeys((".md", ".markdown"), "md"),
    **dict.fromkeys((*JSON_LINES, *CELLS, ".parquet"), "table"),
    **dict.fromkeys(FASTA, "fasta"),
    **dict.fromkeys(SMILES, "smiles"),
}
SOURCE_CODE = frozenset(
    {".py", ".pyi", ".c", ".h", ".cc", ".cpp", ".hpp", ".cu", ".cs", ".java", ".kt", ".scala"}
    | {".go", ".rs", ".swift", ".js", ".jsx", ".ts", ".tsx", ".rb", ".php", ".pl", ".lua", ".r"}
    | {".jl", ".hs", ".ml", ".sh", ".sql"}
)
# A folder of texts may hold such files beside its corpus, so there they count only if the user says
# what a document is in them.
IN_FOLDERS = {"file": SOURCE_CODE, "line": frozenset({".log"})}
"""by document_boundary: further endings of text in a folder"""
NAMED = SOURCE_CODE | IN_FOLDERS["line"]  # text if the user asks for it by name or pattern
# Files that describe a corpus and are not part of it. They are used only if the user names them.
_ABOUT = re.compile(
    r"(readme|licen[cs]e|copying|notice|changelog|contributing|code_of_conduct)(\..*)?", re.I
)
# What is in a corpus (finished or not), a run, a study, results of fine-tuning, a model, whose
# vocabularies, reports and cards have the endings of texts.
_MADE_WITH = (
    *(("manifest.json", "unigram.npy"), ("unfinished/state.json",), ("run.json", "config.yaml")),
    *(("study.yaml", "encoders"), ("finetune.json",), ("electrify.json",)),
)
MADE = "folders that electrify made"
_SHOWN = 3
PYDOCS = "pydocs"
HUB = "hub:"


@dataclass
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
    why: str = ""
    """the reason why it is left out of the corpus, if it is"""

    @property
    def size(self) -> int:
        """Bytes of the file; 0 if unknown."""
        return self.path.stat().st_size if self.path.name else 0

    def identity(self) -> dict[str, Any]:
        """name, bytes and sha256: whether this is the same input as before. A data set is known by
        its name only."""
        digest = sha256(self.path) if self.path.name else ""
        if self.format == "pydocs":
            from .pydocs import identity

            digest = identity()
        return {"name": self.name, "bytes": self.size, "sha256": digest}


def choose_sources(options: PrepareConfig) -> list[Source]:
    """The inputs that hold text, with the column of each table. Reports what is left out of a
    folder. Raises UserError if nothing remains."""
    further = IN_FOLDERS.get(options.document_boundary, frozenset())
    found = resolve(options.inputs, output=Path(options.output_dir), further=further)
    for source in found:
        if source.format == "table" and not source.why:
            with suppress(UserError):  # whatever reads all of it says what is wrong
                source.column = column_of(source, options)
        # Next to the texts of a folder, a table or a .json may hold metadata about them.
        may_be_data = source.in_folder and ending_of(source.path) in (*CELLS, ".json")
        if may_be_data and not (source.column or source.why):
            source.why = "tables without a column of text"
    chosen = [source for source in found if not source.why]
    if len(chosen) < len(found):
        say(left_out(found))
    if not chosen:
        column_of(found[0], options)  # which raises the error, unless the table has no row
        raise UserError(f"the corpus is empty: no text in {shown(found)}")
    usual = TEXT_COLUMNS[0]
    others = {s.column for s in chosen} - {"", usual}
    for column in sorted(others) if options.text_column == usual else ():
        say(
            f"{shown([s for s in chosen if s.column == column])}: no column {usual!r}, so the text "
            f"is read from {column!r}. --text-column names another one"
        )
    return chosen


def shown(sources: Sequence[Source]) -> str:
    """A few of the names, for a message."""
    more = f" and {len(sources) - _SHOWN} more" * (len(sources) > _SHOWN)
    return ", ".join(source.name for source in sources[:_SHOWN]) + more


def left_out(sources: Iterable[Source]) -> str:
    """`left out 3; hidden: 2 (.a, .b); empty files: 1 (c.txt)`."""
    groups: dict[str, list[Source]] = {}
    for source in sources:
        groups.setdefault(source.why, []).append(source)
    groups.pop("", None)
    said = "; ".join(f"{why}: {len(some)} ({shown(some)})" for why, some in groups.items())
    return f"left out {sum(map(len, groups.values()))}; {said}"


# ------------------------------------------------------------------ rows


def rows_of(
    source: Source, options: PrepareConfig, *, advance: Advance = None, only: str | None = None
) -> Iterator[Row]:
    """The rows of a source that has rows. only: the column to read, where that saves work."""
    if source.format == "hub":
        return hub_rows(source.hub, options.dataset_split)
    header = options.header or ending_of(source.path) not in CELLS
    return rows(source.path, header=header, advance=advance, errors="surrogateescape", only=only)


def column_of(source: Source, options: PrepareConfig) -> str:
    """The column that holds the texts of a source of rows, found as `finetune` finds it; empty if
    it has no row. Raises UserError."""
    row = next(rows_of(source, options), None)
    if row is None:
        return ""
    name = str(source.path) if source.path.name else f"data set {source.name}"
    named = options.text_column != TEXT_COLUMNS[0] or TEXT_COLUMNS[0] in row.cells
    given = options.text_column if named or source.format == "hub" else None
    return text_columns(name, [row], given, None, pairs=False)[0]


# ------------------------------------------------------------------ files


def format_of(path: Path, further: frozenset[str] = frozenset()) -> Format | None:
    """The format by the name, ignoring a suffix of compression; None if we do not support it.
    further: endings of plain text beside FORMATS."""
    ending = ending_of(path)
    kind = "txt" if ending in further else FORMATS.get(ending)
    return None if ending == ".parquet" and compression_of(path) else kind


def resolve(
    inputs: Sequence[str], *, output: Path | None = None, further: frozenset[str] = frozenset()
) -> list[Source]:
    """The sources in order, each file once; behind them, what is left out of folders and patterns.

    Args:
        output: The output folder, whose files are not input even if it is inside an input folder.
        further: Endings of text in folders beside the known ones; source code and logs that are
            named, or asked for by a pattern, are text anyway.

    Raises UserError for an input that does not exist or holds no text.
    """
    once: dict[object, Source] = {}
    out: list[Source] = []
    for source in (source for item in inputs for source in _resolved(item, further)):
        key = source.path.resolve() if source.path.name else source.hub
        ours = isinstance(key, Path) and output and key.is_relative_to(output.resolve())
        if source.why:
            out.append(source)
        elif not (ours and source.in_folder):
            once.setdefault(key, source)
    fact = f"all text of {', '.join(inputs)} lies in the output folder, whose files are not input"
    need(bool(once), fact, "choose another --output-dir")
    return [*once.values(), *out]


def _resolved(item: str, further: frozenset[str]) -> list[Source]:
    if item == PYDOCS:
        return [Source(PYDOCS, "pydocs")]
    if item.startswith(HUB):
        name = os.path.expanduser(item[len(HUB) :])
        need(bool(name), "hub: needs a name, as in hub:wikitext:wikitext-2-raw-v1")
        return [Source(HUB + (Path(name).name if name.startswith("/") else name), "hub", hub=name)]
    path = Path(item).expanduser()
    # A text that is given in place of a name may be too long for one.
    if os.path.isdir(path):
        fact = f"{path} is a folder that electrify made, and its reports are not a corpus"
        need(not is_made(path), fact, "name the texts themselves")
        inside = f"{path.resolve().name}/"
        found = [
            _found(inside + p.relative_to(path).as_posix(), p, why, further)
            for p, why in _below(path)
        ]
    elif os.path.exists(path):
        kind = format_of(path, NAMED)
        fact = f"{path} is not of a known kind; known: {', '.join(FORMATS)}, source code and logs"
        if kind is None:
            raise UserError(f"{fact}, each but .parquet also with {', '.join(COMPRESSIONS)}")
        return [Source(path.name, kind, path)]
    else:
        # The Hub is asked only where hub: says so: for a mistyped folder that would take a minute.
        fact = f"no such file or folder: {item:.255} (a data set of the Hub is hub:NAME)"
        need(glob.has_magic(item), fact)
        shallow, why = "**" not in item, "folders into which this pattern does not lead"
        matching = map(Path, sorted(glob.glob(str(path), recursive=True)))
        found = [
            _found(p.name, p, why if p.is_dir() else MADE * is_made(p.parent), NAMED)
            for p in matching
            if shallow or not p.is_dir()
        ]
    fact = f"{item:.255} holds no text file; known: {', '.join(FORMATS)}; in folders source code "
    fact += f"with --preset code, .log with --preset logs{f' ({left_out(found)})' * bool(found)}"
    need(not all(source.why for source in found), fact)
    return found


def _below(folder: Path) -> Iterator[tuple[Path, str]]:
    """The files below a folder in sorted order, and what else is there, with the reason why it is
    left out. Links to files are followed (caches of data sets consist of them). Links to folders
    are not, because two that lead back would give more paths than can be walked; the user can name
    such a folder as an input."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            yield path, "hidden"
        elif not path.is_dir():
            yield path, "files about the corpus" * bool(_ABOUT.fullmatch(path.name))
        elif path.is_symlink():
            yield path, "links to folders (not followed)"
        elif is_made(path):
            yield path, MADE
        else:
            yield from _below(path)


def _found(name: str, path: Path, why: str, further: frozenset[str]) -> Source:
    """A file that an input leads to. why: the reason to leave it out, if one is known."""
    kind = format_of(path, further)
    if not why and (kind is None or not path.is_file()):
        why = "files of other kinds"
    # An empty archive is damaged, and reading it reports that.
    if not why and not path.stat().st_size and not compression_of(path):
        why = "empty files"
    return Source(name, kind or "txt", path, in_folder=True, why=why)


def is_made(folder: Path) -> bool:
    """Whether electrify made the folder."""
    return any(all((folder / name).exists() for name in names) for names in _MADE_WITH)
