"""A smaller corpus out of a larger one: so many words, the same share of every file.

    python benchmarks/take_words.py CORPUS --words 10e6 --output FILE.txt

For studies of a corpus of a given size, as BabyLM's of 10 M words. Whole documents (text between
blank lines; lines, in a file without any) are taken evenly over each file, so that every domain
keeps its share. Files named valid.* are left out: they stay held out.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from electrify.errors import UserError
from electrify.files import write
from electrify.text.streams import COMPRESSIONS, read_chunks

_BETWEEN = re.compile(r"\n[^\S\n]*\n\s*")
ENDINGS = (".txt", *(f".txt{compressed}" for compressed in COMPRESSIONS))
OFF = 0.02
"""The largest share by which what is taken may miss what was asked for."""


def documents(path: Path) -> list[str]:
    """Those of a file that may be compressed. Raises UserError where it cannot be read."""
    try:
        text = b"".join(read_chunks(path)).decode().strip()
    except UnicodeDecodeError as e:
        raise UserError(f"{path} is not UTF-8 text (byte {e.start}); convert it first") from e
    found = _BETWEEN.split(text)
    return [d for d in (found if len(found) > 1 else text.split("\n")) if d.strip()]


def taken(documents: list[str], share: float) -> Iterator[str]:
    """Documents that hold `share` of the words, evenly over all of them."""
    seen = kept = 0
    for document in documents:
        words = len(document.split())
        seen += words
        if kept + words / 2 <= share * seen:
            kept += words
            yield document


def taken_from(corpus: Path, *, words: float, output: Path) -> None:
    """Writes the smaller corpus and says what it holds. Raises UserError; then nothing is
    written."""
    if not corpus.is_dir():
        raise UserError(f"{corpus} is not a folder; name the one that holds the .txt files")
    if os.path.lexists(output):
        raise UserError(f"{output} is there already; move it away, or choose another --output")
    if output.parent.resolve() == corpus.resolve():
        raise UserError(f"{output} lies among the files to take from; choose another --output")
    if not output.parent.is_dir():
        raise UserError(f"{output.parent}: no such folder; make it first")
    there = sorted(p for ending in ENDINGS for p in corpus.glob(f"*{ending}"))
    files = [p for p in there if not p.name.startswith("valid.")]
    if not files:
        raise UserError(f"{corpus} holds no .txt file (valid.* are left out)")
    read = {p.name: documents(p) for p in files}
    has = {name: sum(len(d.split()) for d in found) for name, found in read.items()}
    total = sum(has.values())
    if not 0 < words <= total:
        raise UserError(f"{corpus} has {total:,} words, not {words:,.0f}; give other --words")
    kept = {name: list(taken(found, words / total)) for name, found in read.items()}
    got = {name: sum(len(d.split()) for d in found) for name, found in kept.items()}
    for name, found in kept.items():
        print(f"{name:24} {has[name]:12,} words, taken {got[name]:10,} in {len(found):,} documents")
    print(f"{'all':24} {total:12,} words, taken {sum(got.values()):10,}")
    if abs(sum(got.values()) - words) > OFF * words:
        raise UserError(
            f"whole documents of {corpus} give {sum(got.values()):,} words, not {words:,.0f}: they "
            "are too long for so few; give more --words"
        )
    write(output, "\n\n".join(d for found in kept.values() for d in found) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--words", type=float, required=True)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    try:
        taken_from(args.corpus, words=args.words, output=args.output)
    except (UserError, OSError) as e:
        print(e, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
