"""Files and data sets as rows: CSV, TSV (no quoting), JSON lines, parquet, FASTA, SMILES, the Hub;
and the sentences of column files (CoNLL, CoNLL-U). Every command reads its tables here.
Below: which columns hold texts and labels, those that are named or those that are found.

Files are streamed and may be compressed (.gz, .bz2, .xz, .zst). Errors name file and line, counted
from 1.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count, groupby, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UserError, failing_as, must_have, need
from ..hub import must_be_reachable
from ..names import nearest
from .streams import Advance, ending_of, text_chunks

CELLS = (".csv", ".tsv")
JSON_LINES = (".jsonl", ".ndjson", ".json")
FASTA = (".fasta", ".fa", ".faa", ".fna", ".ffn")
SMILES = (".smi", ".smiles")
COLUMN_FILES = (".conll", ".conllu", ".iob", ".iob2", ".bio")
"""Files with a word on each line."""
WITH_LISTS = (".jsonl", ".ndjson", ".parquet")
"""Tables whose cells may hold lists."""
MAX_LINE = 1 << 26
"""Limit in bytes for one line or field; it bounds memory."""
BLANKS = " \t"
"""Others, such as the non-breaking space, are part of a word."""
UD_WIDTH = 10
LOOKED_AT = 200
"""Lines that decide whether a file has a word on each line."""
# Reading a batch costs about 11 us, and eight rows are few even where each has the length of a
# book.
_PARQUET_ROWS = 8
# `# id 1` or `# text = ...` before a sentence. The word # is followed by its tag.
_COMMENT = re.compile(r"# (id [^ \t]|[a-z_]+ = )")
# The headings of the tables that a program writes with the ending .smi.
_SMILES_HEADERS = ("smiles", "canonical_smiles", "isomeric_smiles")


Numbered = Iterator[tuple[int, dict[str, Any]]]
"""The number of the line of each row, and its cells."""


class Row(NamedTuple):
    """A row of a table. where: FILE, line N."""

    where: str
    number: int
    cells: dict[str, Any]

    def value(self, column: str) -> Any:
        """Raises UserError if the row has no such column."""
        if column not in self.cells:
            raise UserError(f"{self.where}: no column {column!r} among {', '.join(self.cells)}")
        return self.cells[column]

    def text(self, column: str) -> str:
        """The text in a column; a missing value (null) is an empty text. Raises UserError."""
        value = self.value(column)
        if not isinstance(value, str | None):
            raise UserError(f"{self.where}: {column!r} must be a text, not {str(value)[:40]}")
        return value or ""


# ------------------------------------------------------------------ rows


def lines(path: str | Path, advance: Advance = None, *, errors: str = "strict") -> Iterator[str]:
    """The lines of a file without their line ends. errors: as in `text_chunks`."""
    number, rest = 1, ""
    for chunk in text_chunks(Path(path), advance, errors=errors):
        *found, rest = (rest + chunk).split("\n")
        yield from found
        number += len(found)
        fact = f"{path}, line {number} is longer than {MAX_LINE >> 20} MB; is one record a line?"
        need(len(rest) <= MAX_LINE, fact)
    if rest:
        yield rest


def rows(
    path: str | Path,
    *,
    header: bool | Sequence[str] = True,
    odd: list[str] | None = None,
    advance: Advance = None,
    errors: str = "strict",
    only: str | None = None,
) -> Iterator[Row]:
    """The rows of a file, by its ending. Raises UserError naming file and line.

    Args:
        header: Whether the first line of a .csv or .tsv names its columns, or their names.
            Otherwise they are called by their numbers, from 0.
        odd: Takes the places of lines with a wrong number of columns, which are then left out.
        errors: What becomes of bytes that are not UTF-8, see `text_chunks`.
        only: The column of a .parquet file to read [default: all].
    """
    ending = ending_of(path)
    found = lines(path, advance, errors=errors)
    need(header is not False or ending in CELLS, f"{path}: --no-header is for .csv and .tsv")
    if ending == ".parquet":
        numbered = _parquet_rows(Path(path), advance, only)
    elif ending in CELLS:
        numbered = _table(path, found, header, odd)
    elif ending == ".txt":
        numbered = enumerate(({"text": line} for line in found), 1)
    elif ending in JSON_LINES:
        numbered = _json_rows(path, found)
    elif ending in FASTA:
        named = sequences(path, found)
        numbered = ((n, {"name": name, "sequence": letters}) for n, name, letters in named)
    elif ending in SMILES:
        numbered = _smiles_rows(found)
    else:
        known = ", ".join((*CELLS, ".parquet", ".txt", *JSON_LINES, *FASTA, *SMILES))
        raise UserError(f"{path}: ending {ending!r} is not known; electrify reads {known}")
    place = f"{path}, {'row' if ending == '.parquet' else 'line'}"
    return (Row(f"{place} {number}", number, cells) for number, cells in numbered)


def _table(
    path: str | Path, found: Iterator[str], header: bool | Sequence[str], odd: list[str] | None
) -> Numbered:
    """Tab-separated files in common use do not quote (GLUE, WikiANN), comma-separated ones do."""
    is_csv = ending_of(path) == ".csv"
    how: dict[str, Any] = {} if is_csv else {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    # Python's own limit is 131,072 characters, the length of a chapter.
    csv.field_size_limit(MAX_LINE)
    reader = csv.reader((line + "\n" for line in found), strict=True, **how)
    names = [] if isinstance(header, bool) else list(header)
    try:
        for cells in reader:
            number = reader.line_num
            if not cells and (is_csv or len(names) != 1):
                continue  # an empty line is a row only where a row is one cell without quotes
            if not names and header:
                # Which of two columns of the same name is meant, the user must say.
                names = [f"{c}#{k}" if cells.count(c) > 1 else c for k, c in enumerate(cells)]
                sign = next((s for s in ("\t;|" if is_csv else ",;|") if s in names[0]), None)
                fact = f"{path}, line {number}: one column; the columns seem to be separated by "
                fact, advice = f"{fact}{sign!r}", "save it with commas as .csv, or tabs as .tsv"
                need(sign is None or len(names) > 1, fact, advice)
                continue
            names = names or [str(k) for k in range(len(cells))]
            cells = cells or [""]
            if len(cells) == len(names):
                yield number, dict(zip(names, cells, strict=True))
                continue
            fact = f"line {number}: {len(cells)} columns, expected {len(names)}"
            if odd is None:
                raise UserError(f"{path}, {fact}")
            odd.append(fact)
    except csv.Error as e:
        raise UserError(f"{path}, line {reader.line_num}: broken CSV ({e})") from None


def _json_rows(path: str | Path, found: Iterator[str]) -> Numbered:
    for number, line in enumerate(found, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError) as e:
            hint = "; this looks like one JSON array" * line.lstrip().startswith("[")
            fact = f"{path}, line {number}: broken JSON ({e}){hint}"
            raise UserError(fact, "write one object a line") from None
        yield number, row


def _parquet_rows(path: Path, advance: Advance, only: str | None) -> Numbered:
    must_have(f"reading {path}", "data", "pyarrow")
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    # Without a buffer in advance, which would hold all bytes of a row group.
    how: dict[str, Any] = {"pre_buffer": False, "buffer_size": 1 << 20}
    columns, numbers = None if only is None else [only], count(1)
    try:
        with ParquetFile(path, page_checksum_verification=True, **how) as file:
            for batch in file.iter_batches(batch_size=_PARQUET_ROWS, columns=columns):
                for cells in batch.to_pylist():
                    yield next(numbers), cells
                if advance is not None:
                    advance(path.stat().st_size * batch.num_rows // file.metadata.num_rows)
    except (ArrowException, OSError, UnicodeDecodeError) as e:
        said = str(e).splitlines()[0]
        raise UserError(
            f"{path} is truncated, damaged or not a parquet file ({said}). Fetch or make it again"
        ) from e


def sequences(
    path: str | Path, found: Iterable[str], *, longest: int | None = None
) -> Iterator[tuple[int, str, str]]:
    """(line number, name, letters) of each sequence of a FASTA file: the name without its `>`, the
    letters without white space. Comments and blank lines are left out.

    Args:
        found: The lines of the file.
        longest: Letters from which a sequence comes in pieces of whole lines, all with the number
            of its first line.

    Raises UserError for letters before the first name, and for a name inside a sequence: its line
    end is gone.
    """
    begun: tuple[int, str] | None = None
    parts: list[str] = []
    size = 0
    for number, line in enumerate(chain(found, [">"]), 1):
        is_name = line.startswith(">")
        # After `;` comes a comment, as in the first FASTA files.
        letters = "" if line.startswith((">", ";")) else "".join(line.split())
        is_long = letters and parts and longest is not None and size + len(letters) > longest
        if begun and (is_name or is_long):
            yield *begun, "".join(parts)
            parts, size = [], 0
        if is_name:
            begun = number, line[1:].strip()
        elif letters:
            if begun is None:
                fact = f"{path}, line {number} comes before the first '>' of this FASTA file"
                raise UserError(fact, "give lines of text the ending .txt")
            if ">" in letters:
                fact = f"{path}, line {number}: '>' inside a sequence"
                raise UserError(fact, "in FASTA it begins a line")
            parts.append(letters)
            size += len(letters)


def _smiles_rows(found: Iterator[str]) -> Numbered:
    """The molecule and what follows it on the line, without a line of headings."""
    for number, line in enumerate(found, 1):
        molecule, *name = line.split(None, 1) or [""]
        if molecule and (number > 1 or molecule.lower() not in _SMILES_HEADERS):
            yield number, {"smiles": molecule, "name": "".join(name).strip()}


def hub_rows(name: str, split: str, *, streaming: bool = True) -> Iterator[Row]:
    """The rows of a data set of the Hub, or in a folder. name: may be followed by
    :CONFIGURATION. streaming: whether nothing is kept on disk. Raises UserError."""
    must_have(f"{name}: a data set", "data", "datasets")
    import datasets

    place, _, config = name.partition(":")
    if not Path(place).is_dir():
        must_be_reachable(place, "data set")
    how = f"configuration {config or 'default'}, split {split}"
    with failing_as(f"the data set {place!r} cannot be read, {how}"):
        found = datasets.load_dataset(place, config or None, split=split, streaming=streaming)
        for number, cells in enumerate(found, 1):
            yield Row(f"data set {name}, row {number}", number, cells)


# ------------------------------------------------------------------ a word on each line


def holds_words(path: str | Path) -> bool:
    """Whether the first lines of a .txt or .tsv hold columns with a word on each line: all have as
    many, at least two; a blank line lies between them; and some sentence has two words, one under
    the other."""
    split = re.compile("\t" if ending_of(path) == ".tsv" else "[ \t]+").split
    first = (line.strip(BLANKS) for line in islice(lines(path), LOOKED_AT))
    full = "\n".join(first).strip("\n").split("\n")
    words = ["" if line.startswith(("-DOCSTART-", "# ")) else line for line in full]
    widths = {len(split(line)) for line in words if line}
    beneath = any(one and other for one, other in pairwise(words))
    return len(widths) == 1 and min(widths) >= 2 and "" in full and beneath


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
    numbered = enumerate(lines(path, advance), 1)
    for between, group in groupby(numbered, lambda line: _is_between_sentences(line[1])):
        begun, words = 0, []
        for number, line in () if between else group:
            if line[0] == "#" and (treebank or (not words and _COMMENT.match(line))):
                continue
            by_tabs = tabs or "\t" in line
            cells = line.split("\t") if by_tabs else re.split(" +", line.strip(BLANKS))
            width = width or len(cells)
            if len(cells) != width:
                fact = f"{path}, line {number}: {len(cells)} columns of words and tags"
                raise UserError(f"{fact}, expected {width}", "give texts as .csv or .jsonl")
            if not treebank or cells[0].isdecimal():
                begun = begun or number
                words.append([cell.strip(BLANKS) for cell in cells])
        if words:
            columns = {str(k): list(column) for k, column in enumerate(zip(*words, strict=True))}
            yield Row(f"{path}, line {begun}", begun, columns)


def _is_between_sentences(line: str) -> bool:
    bare = line.strip(BLANKS)
    return not bare or re.split("[ \t]", bare)[0] == "-DOCSTART-"


# ------------------------------------------------------------------ columns


# Known names, in the order in which they are looked for. Capital letters do not matter.
TEXT_COLUMNS = (
    *("text", "sentence", "sentence1", "content", "document", "sequence", "seq", "smiles"),
    *("code", "review", "utterance", "tweet", "body"),
)
PAIRS = (
    *(("text", "text_pair"), ("text", "sentence2"), ("sentence1", "sentence2")),
    *(("sentence", "sentence2"), ("premise", "hypothesis"), ("question1", "question2")),
    *(("question", "sentence"), ("question", "passage"), ("query", "document")),
    *(("query", "passage"), ("title", "body"), ("text_a", "text_b"), ("text1", "text2")),
)
"""Columns of a text and a second one, in the order in which they are looked for."""
LABEL_COLUMNS = (
    *("label", "labels", "category", "class", "target", "intent", "sentiment"),
    *("gold_label", "label_text"),
)
SCORES = ("score", "similarity", "rating")
"""Columns of values, which are labels where no column has one of the names above."""
SHOWN = 30
"""Characters of an example value in a message."""
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?|[-+]?inf(inity)?", re.I)


def number_of(value: Any) -> float | None:
    """The value as a number; None if it is not written as one. (Python also reads 1_1, as 11.)"""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    is_written = isinstance(value, str) and _NUMBER.fullmatch(value.strip())
    return float(value) if is_written else None


def labelled_columns(
    path: str, rows: Sequence[Row], *, text: str | None, pair: str | None, label: str | None
) -> tuple[str, str | None, list[str]]:
    """The names of the columns of the text, of the second text, and of the labels: those given, by
    name or number (labels perhaps several, with commas between), or those that are found. Raises
    UserError."""
    need(bool(rows), f"{path}: no examples")
    by_word = text is None and {"sentence_id", "words"} <= set(rows[0].cells)
    advice = "write sentences with tags as .conll (a word and its tag on a line) or .jsonl (lists)"
    need(not by_word, f"{path}: a word in each row", advice)
    text, pair = text_columns(path, rows, text, pair)
    if label is None:
        labels = [_label_column(path, rows, (text, pair))]
    else:
        labels = [column_named(path, rows, each) for each in label.split(",")]
    each = [text, *labels, *([] if pair is None else [pair])]
    twice = next((repr(name) for name in each if each.count(name) > 1), "")
    need(not twice, f"{path}: text, pair and label need a column each, and {twice} is two")
    return text, pair, labels


def text_columns(
    path: str, rows: Sequence[Row], text: str | None, pair: str | None, *, pairs: bool = True
) -> tuple[str, str | None]:
    """The columns of the text and of a second one. rows: the first of the file, or all. pairs:
    whether a second text is looked for. Raises UserError."""
    known = _lower(rows)
    couples = [(known[a], known[b]) for a, b in PAIRS * pairs if {a, b} <= {*known}]
    if text is not None:
        text = column_named(path, rows, text)
    elif couples and "text" not in known:
        text = couples[0][0]
    elif len(known) == 1:
        (text,) = known.values()
    else:
        text = _among(path, rows, TEXT_COLUMNS, "--text-column")[0]
    if pair is not None:
        return text, column_named(path, rows, pair)
    return text, next((b for a, b in couples if a == text), None)


def column_named(path: str, rows: Sequence[Row], given: str) -> str:
    """The column of this name or number, counted from 0. Raises UserError."""
    header = list(rows[0].cells)
    if given in header:
        return given
    if given.isdecimal() and int(given) < len(header):
        return header[int(given)]
    raise UserError(f"{path}: no column {given!r}{nearest(given, header)}")


def _lower(rows: Sequence[Row]) -> dict[str, str]:
    """The names of the columns, by themselves in lower-case letters."""
    return {name.lower(): name for name in reversed(rows[0].cells)}


def _label_column(path: str, rows: Sequence[Row], texts: tuple[str | None, ...]) -> str:
    flag = "--label-column (several labels, each in a column of 0 and 1, as --label-column a,b,c)"
    free = {name for name, column in _lower(rows).items() if column not in texts}
    plain = LABEL_COLUMNS if free & {*LABEL_COLUMNS} else LABEL_COLUMNS + SCORES
    found = _among(path, rows, plain, flag, but=texts)
    if [name.lower() for name in found] == ["label", "label_text"]:
        return found[1]  # the names of the classes whose numbers are in the other column
    both = " and ".join(map(repr, found))
    need(len(found) == 1, f"{path}: {both} may both hold labels. Name one with --label-column")
    return found[0]


def _among(
    path: str, rows: Sequence[Row], names: Sequence[str], flag: str, *, but: Sequence[Any] = ()
) -> list[str]:
    """The columns with one of these names, in their order. Raises UserError if there is none."""
    known = _lower(rows)
    found = [known[name] for name in names if name in known and known[name] not in but]
    values = "; ".join(
        f"{name}: " + ", ".join(repr(str(row.cells.get(name, ""))[:SHOWN]) for row in rows[:2])
        for name in rows[0].cells
    )
    fact = f"{path}: none of its columns ({values}) is called {', '.join(names)}"
    advice = f"name it with {flag}, and with --no-header if the first line is an example"
    need(bool(found), fact, advice)
    return found
