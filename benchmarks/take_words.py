"""A smaller corpus out of a larger one: so many words, the same share of every file.

    python benchmarks/take_words.py CORPUS --words 10e6 --output FILE.txt

For studies of a corpus of a given size, as BabyLM's of 10 M words. Whole documents (text between
blank lines) are taken evenly over each file, so that every domain keeps its share. Files named
valid.* are left out: they stay held out.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from electrify.text.streams import read_chunks

_BETWEEN = re.compile(r"\n[^\S\n]*\n\s*")


def documents(path: Path) -> list[str]:
    """Those of a file that may be compressed."""
    text = b"".join(read_chunks(path)).decode()
    return [document for document in _BETWEEN.split(text.strip()) if document]


def taken(documents: list[str], share: float) -> Iterator[str]:
    """Documents that hold `share` of the words, evenly over all of them."""
    seen = kept = 0
    for document in documents:
        words = len(document.split())
        seen += words
        if kept + words / 2 <= share * seen:
            kept += words
            yield document


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--words", type=float, required=True)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    files = sorted(set(args.corpus.glob("*.txt*")) - {args.output})
    read = {p.name: documents(p) for p in files if not p.name.startswith("valid.")}
    words = {name: sum(len(d.split()) for d in found) for name, found in read.items()}
    total = sum(words.values())
    if not 0 < args.words <= total:
        print(f"{args.corpus} has {total:,} words, not {args.words:,.0f}", file=sys.stderr)
        return 2
    share = args.words / total
    kept = {name: list(taken(found, share)) for name, found in read.items()}
    args.output.write_text("\n\n".join(d for found in kept.values() for d in found) + "\n")
    for name, found in kept.items():
        count = sum(len(d.split()) for d in found)
        print(f"{name:24} {words[name]:12,} words, taken {count:10,} in {len(found):,} documents")
    print(f"{'all':24} {total:12,} words, taken {len(args.output.read_text().split()):10,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
