"""A file of examples as one text, compressed or not, and the file ending that tells its layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ...errors import UserError
from ...text.decoding import must_be_text
from ...text.endings import FASTA, SMILES
from ...text.records import MAX_LINE
from ...text.small_files import decode, joined
from ...text.streams import compression_of, read_chunks

MAX_EXAMPLES_BYTES = 1 << 32
"""Unpacked; the examples of a file are held in memory, and the largest published sets of labelled
texts have three quarters of that."""


ONE_RECORD_A_LINE = frozenset({".txt", *FASTA, *SMILES})
"""Endings of files in which a line cannot hold a line end of another kind."""


def must_be_file(path: str | Path) -> None:
    """Raises UserError if there is nothing of this name, or a folder."""
    if not Path(path).exists():
        raise UserError(f"{path}: no such file")
    if Path(path).is_dir():
        raise UserError(f"{path} is a folder; give the files in it")


def whole(path: str | Path, *, official: bool = False) -> str:
    """The text of a file, also of .gz, .bz2, .xz and .zst. official: a published file, which may
    hold odd control characters. Raises UserError if it is missing, truncated, binary or another
    encoding than UTF-8."""
    path = Path(path)
    must_be_file(path)
    longest = MAX_LINE if ending_of(path) != ".json" else None  # SQuAD's files are one line
    chunks = read_chunks(path) if official else _recognised(path)
    data = joined(chunks, str(path), limit=MAX_EXAMPLES_BYTES, longest=longest)
    return decode(data, str(path))


def lines(path: str | Path, *, advance: Callable[[int], None] | None = None) -> Iterator[str]:
    """The lines of a file of any size, each with its line end, in bounded memory; otherwise as
    `whole`. advance: see `read_chunks`."""
    path = Path(path)
    must_be_file(path)
    number = 0
    rest = b""
    only_returns = False  # the line ends of old machines
    for chunk in _recognised(path, advance):
        if number == 0 and not rest:
            only_returns = b"\r" in chunk and b"\n" not in chunk
        if only_returns and b"\n" in chunk:
            raise UserError(
                f"{path}: its lines end with carriage returns at first and with line feeds later; "
                "give the file one kind of line ends"
            )
        *found, rest = (rest + chunk.replace(b"\r", b"\n" if only_returns else b"\r")).split(b"\n")
        for raw in found:
            number += 1
            yield _line(raw, path, number) + "\n"
        if len(rest) > MAX_LINE:
            raise UserError(
                f"{path}, line {number + 1} is longer than {MAX_LINE >> 20} MB; is this one "
                "example a line?"
            )
    if rest:
        yield _line(rest, path, number + 1)


def _line(raw: bytes, path: Path, number: int) -> str:
    """One line as text. Raises UserError for a zero byte, or another encoding than UTF-8."""
    if b"\r" in raw.removesuffix(b"\r") and ending_of(path) in ONE_RECORD_A_LINE:
        raise UserError(
            f"{path}, line {number}: a carriage return inside the line, which may be meant as its "
            "end; give the file one kind of line ends"
        )
    if b"\0" in raw:
        raise UserError(
            f"{path}, line {number}: a zero byte; this is a binary file, not UTF-8 text"
        )
    try:
        return raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as e:
        raise UserError(
            f"{path}, line {number}: not UTF-8 (byte 0x{raw[e.start]:02x}); convert the file to "
            "UTF-8"
        ) from None


def bare(raw_lines: Iterable[str]) -> Iterator[str]:
    """Lines without their line ends, as `lines_of` gives them."""
    return (line.removesuffix("\n").removesuffix("\r") for line in raw_lines)


def _recognised(path: Path, advance: Callable[[int], None] | None = None) -> Iterator[bytes]:
    """The chunks of a file. Raises UserError if the first says that it is not text."""
    chunks = read_chunks(path, advance=advance)
    first = next(chunks, b"")
    must_be_text(path, first)
    yield first
    yield from chunks


def ending_of(path: str | Path) -> str:
    """`.jsonl` of a.jsonl and of a.jsonl.xz."""
    path = Path(path)
    return (path.with_suffix("") if compression_of(path) else path).suffix.lower()
