"""Files as rows: CSV, TSV (no quoting), JSON lines, parquet, FASTA, SMILES; and the sentences of
column files (CoNLL, CoNLL-U).

Files are streamed and may be compressed (.gz, .bz2, .xz, .zst). Errors name file and line, counted
from 1.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UserError, need
from ..text.decoding import text_chunks
from ..text.endings import FASTA, SMILES
from ..text.records import MAX_LINE
from ..text.row import separator_hint
from ..text.sequences import SMILES_HEADERS, fasta_lines
from ..text.streams import compression_of

Advance = Callable[[int], None] | None
"""Called with the bytes of the file itself that were read."""
WITH_LISTS = (".jsonl", ".ndjson", ".parquet")
"""Tables whose cells may hold lists."""
COLUMN_FILES = (".conll", ".conllu", ".iob", ".iob2", ".bio")
"""Files with a word on each line."""
BLANKS = " \t"
"""Others, such as the non-breaking space, are part of a word."""
UD_WIDTH = 10
_PARQUET_ROWS = 256
# `# id 1` or `# text = ...` before a sentence. The word # is followed by its tag.
_COMMENT = re.compile(r"# (id [^ \t]|[a-z_]+ = )")


class Row(NamedTuple):
    """A row of a table. where: FILE, line N."""

    where: str
    number: int
    cells: dict[str, Any]

    def value(self, column: str) -> Any:
        """Raises UserError if the row has no such column."""
        found = ", ".join(self.cells)
        need(column in self.cells, f"{self.where}: no column {column!r}; found: {found}")
        return self.cells[column]

    def text(self, column: str) -> str:
        """The text in a column; a missing value (null) is an empty text. Raises UserError."""
        value = self.value(column)
        fact = f"{self.where}: {column!r} must be a text, not {str(value)[:40]}"
        need(value is None or isinstance(value, str), fact)
        return value or ""


def ending_of(path: str | Path) -> str:
    """`.jsonl` of a.jsonl and of a.jsonl.xz."""
    path = Path(path)
    return (path.with_suffix("") if compression_of(path) else path).suffix.lower()


def lines(path: str | Path, advance: Advance = None) -> Iterator[str]:
    """The lines of a file without their line ends. Raises UserError for what is not UTF-8 text."""
    number, rest = 0, b""
    try:
        for chunk in text_chunks(Path(path), advance):
            *found, rest = (rest + chunk).split(b"\n")
            for raw in found:
                number += 1
                yield raw.decode()
        if rest:
            number += 1
            yield rest.decode()
    except UnicodeDecodeError:
        raise UserError(f"{path}, line {number}: not UTF-8; convert the file to UTF-8") from None


def rows(
    path: str,
    *,
    header: bool | Sequence[str] = True,
    odd: list[str] | None = None,
    advance: Advance = None,
) -> Iterator[Row]:
    """The rows of a file, by its ending. Raises UserError naming file and line.

    Args:
        header: Whether the first line of a .csv or .tsv names its columns, or their names.
            Otherwise they are called by their numbers, from 0.
        odd: Takes the places of lines with a wrong number of columns, which are then left out.
    """
    ending = ending_of(path)
    if ending in (".csv", ".tsv"):
        cells = enumerate((line.split("\t") for line in lines(path, advance)), 1)
        found = cells if ending == ".tsv" else _csv_cells(path, advance)
        return _table(path, found, header, odd)
    need(header is not False, f"{path}: --no-header is for .csv and .tsv")
    readers = {".txt": _text_rows, ".parquet": _parquet_rows}
    readers |= dict.fromkeys((".jsonl", ".ndjson"), _json_rows)
    readers |= dict.fromkeys(FASTA, _sequences) | dict.fromkeys(SMILES, _molecules)
    known = ", ".join((".csv", ".tsv", *readers))
    need(ending in readers, f"{path}: ending {ending!r} is not known; electrify reads {known}")
    return readers[ending](path, advance)


def _text_rows(path: str, advance: Advance) -> Iterator[Row]:
    for number, line in enumerate(lines(path, advance), 1):
        yield Row(f"{path}, line {number}", number, {"text": line})


def _csv_cells(path: str, advance: Advance) -> Iterator[tuple[int, list[str]]]:
    # Python's own limit is 131,072 characters, the length of a chapter.
    csv.field_size_limit(MAX_LINE)
    reader = csv.reader((line + "\n" for line in lines(path, advance)), strict=True)
    try:
        for cells in reader:
            if cells:  # an empty line is not a row in CSV
                yield reader.line_num, cells
    except csv.Error as e:
        raise UserError(f"{path}, line {reader.line_num}: broken CSV ({e})") from None


def _table(
    path: str,
    found: Iterable[tuple[int, list[str]]],
    header: bool | Sequence[str],
    odd: list[str] | None,
) -> Iterator[Row]:
    names = [] if isinstance(header, bool) else list(header)
    for number, cells in found:
        where = f"{path}, line {number}"
        if not names and header:
            names = cells
            hint = separator_hint(names, ending_of(path))
            need(not hint, f"{where}: one column{hint}")
            need(len(set(names)) == len(names), f"{where}: a column name occurs twice: {names}")
            continue
        names = names or [str(k) for k in range(len(cells))]
        if len(cells) == len(names):
            yield Row(where, number, dict(zip(names, cells, strict=True)))
            continue
        fact = f"line {number}: {len(cells)} columns, expected {len(names)}"
        if odd is None:
            raise UserError(f"{path}, {fact}")
        odd.append(fact)


def _json_rows(path: str, advance: Advance) -> Iterator[Row]:
    for number, line in enumerate(lines(path, advance), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line, object_pairs_hook=_each_once)
        except (ValueError, RecursionError) as e:
            raise UserError(f"{where}: broken JSON ({e})") from None
        need(isinstance(row, dict), f"{where}: not a JSON object; write one object a line")
        yield Row(where, number, row)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError("a key occurs twice")
    return row


def _parquet_rows(path: str, advance: Advance) -> Iterator[Row]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as e:
        raise UserError(f"reading {path} needs pyarrow: pip install 'electrify[data]'") from e
    try:
        number = 0
        # Without a buffer in advance, which would hold all bytes of a row group.
        with ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
            for batch in file.iter_batches(batch_size=_PARQUET_ROWS):
                for cells in batch.to_pylist():
                    number += 1
                    yield Row(f"{path}, row {number}", number, cells)
                if advance is not None:
                    advance(Path(path).stat().st_size * batch.num_rows // file.metadata.num_rows)
    except (ArrowException, OSError) as e:
        said = str(e).splitlines()[0]
        raise UserError(f"{path} cannot be read as a parquet file ({said})") from e


def _sequences(path: str, advance: Advance) -> Iterator[Row]:
    """Name and letters of each sequence of a FASTA file."""
    found = fasta_lines(path, (line.encode() for line in lines(path, advance)))
    row: Row | None = None
    parts: list[str] = []
    for number, name, letters in chain(found, [(0, b"", b"")]):  # one more name ends the last
        if name is not None:
            if row is not None:
                yield row._replace(cells=row.cells | {"sequence": "".join(parts)})
            row = Row(f"{path}, line {number}", number, {"name": name.decode().strip()})
            parts = []
        parts.append(letters.decode())


def _molecules(path: str, advance: Advance) -> Iterator[Row]:
    """The molecule and what follows it on the line, without a line of headings."""
    for number, line in enumerate(lines(path, advance), 1):
        # White space is that of ASCII, as for `prepare`.
        molecule, *name = (part.decode() for part in line.encode().split(None, 1) or [b""])
        if molecule and (number > 1 or molecule.lower() not in SMILES_HEADERS):
            cells = {"smiles": molecule, "name": "".join(name).strip()}
            yield Row(f"{path}, line {number}", number, cells)


def column_sentences(path: str | Path, *, advance: Advance = None) -> Iterator[Row]:
    """The sentences of a column file: rows whose columns, called by their numbers, are lists with a
    cell for each word. where: the first word's line.

    A word a line, a blank line between sentences. Columns lie between tabs where the line holds one
    (in .tsv and .conllu always), otherwise between spaces. -DOCSTART- lines and comments before a
    sentence are left out, in .conllu also word ranges and empty nodes.
    """
    treebank = ending_of(path) == ".conllu"
    tabs = treebank or ending_of(path) == ".tsv"
    width = UD_WIDTH if treebank else 0
    begun = 0
    words: list[list[str]] = []
    for number, line in enumerate(chain(lines(path, advance), [""]), 1):
        bare = line.strip(BLANKS)
        if not bare or re.split("[ \t]", bare)[0] == "-DOCSTART-":
            if words:
                columns = {
                    str(k): list(column) for k, column in enumerate(zip(*words, strict=True))
                }
                yield Row(f"{path}, line {begun}", begun, columns)
            words = []
            continue
        if line[0] == "#" and (treebank or (not words and _COMMENT.match(line))):
            continue
        cells = line.split("\t") if tabs or "\t" in line else [c for c in bare.split(" ") if c]
        width = width or len(cells)
        fact = f"{path}, line {number}: {len(cells)} columns, expected {width}"
        need(len(cells) == width, fact)
        if not treebank or cells[0].isdecimal():
            begun = number if not words else begun
            words.append([cell.strip(BLANKS) for cell in cells])
