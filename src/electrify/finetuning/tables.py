"""Files as rows: CSV, TSV (no quoting), JSON lines, parquet, FASTA, SMILES; and the sentences of
column files (CoNLL, CoNLL-U).

Files are streamed and may be compressed (.gz, .bz2, .xz, .zst). Errors name file and line, counted
from 1.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UserError
from ..text.decoding import must_be_text
from ..text.endings import FASTA, SMILES
from ..text.records import MAX_LINE
from ..text.row import separator_hint
from ..text.sequences import SMILES_HEADERS, fasta_lines
from ..text.streams import compression_of, read_chunks

Advance = Callable[[int], None] | None
"""Called with the bytes of the file itself that were read."""
TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
JSON_LINES = (".jsonl", ".ndjson")
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


def ending_of(path: str | Path) -> str:
    """`.jsonl` of a.jsonl and of a.jsonl.xz."""
    path = Path(path)
    return (path.with_suffix("") if compression_of(path) else path).suffix.lower()


def lines(path: str | Path, advance: Advance = None) -> Iterator[str]:
    """The lines of a file without their line ends. Raises UserError for what is not UTF-8 text."""
    path = Path(path)
    number = 0
    rest = b""
    for chunk in read_chunks(path, advance=advance):
        if not number and not rest:
            must_be_text(path, chunk)
        if b"\n" not in chunk:  # the line ends of old machines
            chunk = chunk.replace(b"\r", b"\n")
        *found, rest = (rest + chunk).split(b"\n")
        for raw in found:
            number += 1
            yield _line(raw.removesuffix(b"\r"), path, number)
    if rest:
        yield _line(rest, path, number + 1)


def _line(raw: bytes, path: Path, number: int) -> str:
    if b"\0" in raw:
        raise UserError(f"{path}, line {number}: a zero byte; this is a binary file, not text")
    try:
        return raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as e:
        raise UserError(
            f"{path}, line {number}: not UTF-8 (byte 0x{raw[e.start]:02x}); convert the file to "
            "UTF-8"
        ) from None


def rows(path: str, *, header: bool = True, advance: Advance = None) -> Iterator[Row]:
    """The rows of a file, by its ending.

    Args:
        header: Whether the first line of a .csv or .tsv names its columns. Otherwise their names
            are their numbers, from 0.
    """
    ending = ending_of(path)
    if not header and ending not in (".csv", ".tsv"):
        raise UserError(f"{path}: --no-header is for .csv and .tsv")
    if ending == ".csv":
        # Python's own limit is 131,072 characters, the length of a chapter.
        csv.field_size_limit(MAX_LINE)
        reader = csv.reader((line + "\n" for line in lines(path, advance)), strict=True)
        return _table(path, _csv_cells(path, reader), header)
    if ending == ".tsv":
        cells = (line.split("\t") for line in lines(path, advance))
        return _table(path, enumerate(cells, 1), header)
    if ending in JSON_LINES:
        return _json_rows(path, advance)
    if ending == ".parquet":
        return _parquet_rows(path, advance)
    if ending in FASTA:
        return _sequences(path, advance)
    if ending in SMILES:
        return _molecules(path, advance)
    known = ", ".join(TABLES)
    raise UserError(
        f"{path}: ending {ending!r} is not known; read are {known}, FASTA and SMILES files"
    )


def _csv_cells(path: str, reader: Any) -> Iterator[tuple[int, list[str]]]:
    try:
        for cells in reader:
            if cells:  # an empty line is not a row in CSV
                yield reader.line_num, cells
    except csv.Error as e:
        raise UserError(f"{path}, line {reader.line_num}: broken CSV ({e})") from None


def _table(path: str, found: Iterable[tuple[int, list[str]]], has_header: bool) -> Iterator[Row]:
    header: list[str] = []
    for number, cells in found:
        where = f"{path}, line {number}"
        if not header:
            header = cells if has_header else [str(k) for k in range(len(cells))]
            if len(set(header)) != len(header):
                raise UserError(f"{where}: a column name occurs twice: {', '.join(header)}")
            if has_header:
                continue
        if len(cells) != len(header):
            hint = separator_hint(header, ending_of(path))
            raise UserError(f"{where}: {len(cells)} columns, expected {len(header)}{hint}")
        yield Row(where, number, dict(zip(header, cells, strict=True)))


def _json_rows(path: str, advance: Advance) -> Iterator[Row]:
    for number, line in enumerate(lines(path, advance), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line, object_pairs_hook=_each_once)
        except (ValueError, RecursionError) as e:
            raise UserError(f"{where}: broken JSON ({e})") from None
        if not isinstance(row, dict):
            raise UserError(f"{where}: not a JSON object; write one object a line")
        yield Row(where, number, row)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} occurs twice")
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
    row: Row | None = None
    parts: list[str] = []
    for number, name, letters in fasta_lines(path, (s.encode() for s in lines(path, advance))):
        if name is not None:
            if row is not None:
                yield row._replace(cells=row.cells | {"sequence": "".join(parts)})
            row = Row(f"{path}, line {number}", number, {"name": name.decode().strip()})
            parts = []
        parts.append(letters.decode())
    if row is not None:
        yield row._replace(cells=row.cells | {"sequence": "".join(parts)})


def _molecules(path: str, advance: Advance) -> Iterator[Row]:
    """The molecule and what follows it on the line, without a line of headings."""
    for number, line in enumerate(lines(path, advance), 1):
        # White space is that of ASCII, as for `prepare`.
        molecule, *name = (part.decode() for part in line.encode().split(None, 1) or [b""])
        if molecule and (number > 1 or molecule.lower() not in SMILES_HEADERS):
            cells = {"smiles": molecule, "name": "".join(name).strip()}
            yield Row(f"{path}, line {number}", number, cells)


def text_of(row: Row, column: str) -> str:
    """The text in a column; a missing value (null) is an empty text. Raises UserError."""
    if column not in row.cells:
        raise UserError(f"{row.where}: no column {column!r}; found: {', '.join(row.cells)}")
    value = row.cells[column]
    if value is not None and not isinstance(value, str):
        raise UserError(f"{row.where}: {column!r} must be a text, not {str(value)[:40]}")
    return value or ""


def column_sentences(
    path: str | Path, *, least: int = 2, advance: Advance = None
) -> Iterator[list[tuple[int, list[str]]]]:
    """The sentences of a column file: (line number, cells) of each word.

    A word a line, a blank line between sentences. Columns lie between tabs where the line holds one
    (in .tsv and .conllu always), otherwise between spaces. -DOCSTART- lines and comments before a
    sentence are left out, in .conllu also word ranges and empty nodes.

    Args:
        least: How many columns there must be.
    """
    treebank = ending_of(path) == ".conllu"
    tabs = treebank or ending_of(path) == ".tsv"
    width = UD_WIDTH if treebank else 0
    first = 0
    sentence: list[tuple[int, list[str]]] = []
    for number, line in enumerate(lines(path, advance), 1):
        bare = line.strip(BLANKS)
        if not bare or (bare.startswith("-DOCSTART-") and bare[10:11] in ("", " ", "\t")):
            if sentence:
                yield sentence
            sentence = []
            continue
        if line[0] == "#" and (treebank or (not sentence and _COMMENT.match(line))):
            continue
        cells = line.split("\t") if tabs or "\t" in line else [c for c in bare.split(" ") if c]
        if not width:
            width, first = len(cells), number
        if len(cells) != width:
            like = "as in CoNLL-U, between tabs" if treebank else f"as in line {first}"
            raise UserError(f"{path}, line {number}: {len(cells)} columns, expected {width} {like}")
        if width < least:
            between = "a tab" if tabs else "a tab or spaces"
            raise UserError(
                f"{path}, line {number}: one column; a word and its tag need {between} between them"
            )
        if not treebank or cells[0].isdecimal():
            sentence.append((number, cells))
    if sentence:
        yield sentence
