"""DNA: which windows of a genome are translated into protein?

    python benchmarks/domains/dna.py --package biopython-*.tar.gz --output-dir DATA

The annotated records are those of biopython's tests that hold real genes on a long sequence: a
chloroplast, a piece of a fly's and of a plant's chromosome, and a plasmid. A window of 150 bases is
`coding` if it lies inside a coding stretch (on either strand, without introns) and `noncoding` if
it touches none. Each is read on a random strand, and each record gives as many windows of one
class as of the other, so that the organism does not tell the class. Blocks of 6,000 bases are held
out; no window crosses their borders.

corpus.txt: windows of 600 bases of all that is not held out, at random places and on both strands,
and of other DNA in those tests (a vertebrate alignment, pieces of genomes, genes). Training windows
and pieces of the corpus that share 24 bases in a row with a held-out window, on either strand, are
left out (a chloroplast holds one long stretch twice).
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from labelled import Example, balanced, share_of, shares, write_lines, write_table
from packages import members

RECORDS = (
    "Tests/GenBank/NC_000932.gb",  # chloroplast of Arabidopsis thaliana
    "Tests/GenBank/extra_keywords.gb",  # Drosophila melanogaster, a BAC clone
    "Tests/GenBank/arab1.gb",  # Arabidopsis thaliana, a BAC clone
    "Tests/GenBank/NC_005816.gb",  # a plasmid of Yersinia pestis
)
ALIGNMENT = "Tests/MAF/ucsc_mm9_chr10_big.maf"
SEQUENCES = re.compile(r"Tests/(Blat|codonalign)/\w+\.(fa|fasta)")
WINDOW, LINE, BLOCK, SHARED = 150, 600, 6000, 24
STEP = WINDOW // 3
HELD_OUT_SHARE = 0.25
COVERAGE = 12  # how often a base is in the corpus, about
OTHER_STRAND = str.maketrans("acgt", "tgca")


@dataclass(frozen=True)
class Record:
    name: str
    bases: str
    coding: list[tuple[int, int]]
    """stretches [first, last) of coding sequence, on either strand"""


def other_strand(bases: str) -> str:
    return bases.translate(OTHER_STRAND)[::-1]


def genbank(name: str, text: str) -> Record:
    """A record in GenBank's format: its sequence, and where its CDS features lie."""
    features, _, origin = text.partition("\nORIGIN")
    bases = re.sub(r"[^a-z]", "", origin.partition("\n//")[0].partition("\n")[2].lower())
    coding = []
    for place in re.findall(r"^     CDS +([^/]*)", features, re.M):
        # `J00194.1:100..202` lies in another record; < and > mark a gene that goes on outside.
        found = re.findall(r"(?<![\w.:])<?(\d+)\.\.>?(\d+)", place)
        coding += [(int(first) - 1, int(last)) for first, last in found]
    return Record(name, bases, sorted(coding))


def windows(record: Record) -> Iterator[tuple[int, str]]:
    """(where it begins, its class) of each window that lies in one block and has one class."""
    for block in range(0, len(record.bases), BLOCK):
        for at in range(block, min(block + BLOCK, len(record.bases)) - WINDOW + 1, STEP):
            end = at + WINDOW
            if not set(record.bases[at:end]) <= set("acgt"):
                continue
            if any(first <= at and end <= last for first, last in record.coding):
                yield at, "coding"
            elif all(last <= at or end <= first for first, last in record.coding):
                yield at, "noncoding"


def is_held_out(record: Record, at: int, seed: int) -> bool:
    return share_of(f"{record.name} {at // BLOCK}", seed) < HELD_OUT_SHARE


def kmers(bases: str) -> Iterator[str]:
    return (bases[at : at + SHARED] for at in range(len(bases) - SHARED + 1))


def examples(records: list[Record], rng: random.Random, *, seed: int) -> list[list[Example]]:
    """The training and the held-out windows, each class as often as the other in each record."""
    sides: list[list[Example]] = [[], []]
    for record in records:
        found: list[list[Example]] = [[], []]
        for at, label in windows(record):
            bases = record.bases[at : at + WINDOW]
            strand = bases if rng.random() < 0.5 else other_strand(bases)
            found[is_held_out(record, at, seed)].append(Example(strand.upper(), label))
        for side, those in zip(sides, found, strict=True):
            labels = [one.label for one in those]
            fewer = min(labels.count("coding"), labels.count("noncoding"))
            side += balanced(those, 2 * fewer, rng)
    return sides


def other_sequences(package: Path) -> Iterator[str]:
    """DNA without annotation, in lower case: FASTA files and the rows of an alignment."""
    for _, content in members(package, lambda name: SEQUENCES.fullmatch(name) is not None):
        for one in content.decode("latin-1").split(">")[1:]:
            yield "".join(one.split("\n")[1:]).lower()
    rows: dict[str, str] = {}
    ends: dict[str, str] = {}
    for _, content in members(package, lambda name: name == ALIGNMENT):
        for line in content.decode("ascii").splitlines():
            if line.startswith("s "):
                _, source, start, size, strand, _, bases = line.split()
                # A row that goes on where its species' last one ended is one sequence with it.
                if ends.get(source) != f"{start}{strand}":
                    yield rows.pop(source, "")
                rows[source] = rows.get(source, "") + bases.replace("-", "").lower()
                ends[source] = f"{int(start) + int(size)}{strand}"
    yield from rows.values()


def unseen(bases: str, held: set[str]) -> Iterator[str]:
    """The pieces of a sequence of known bases that share no SHARED bases with a held-out window."""
    for known in re.findall("[acgt]+", bases):
        piece = 0
        for at, kmer in enumerate(kmers(known)):
            if kmer in held:
                if at + SHARED - 1 > piece:
                    yield known[piece : at + SHARED - 1]
                piece = at + 1
        yield known[piece:]


def corpus(pieces: list[str], rng: random.Random) -> Iterator[str]:
    """Windows at random places of the pieces, more of the longer ones, on either strand."""
    for piece in pieces:
        for _ in range(max(1, COVERAGE * len(piece) // LINE)):
            at = rng.randrange(max(1, len(piece) - LINE + 1))
            line = piece[at : at + LINE]
            yield (line if rng.random() < 0.5 else other_strand(line)).upper()


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--package", type=Path, required=True, help="biopython's source distribution")
    p.add_argument("--output-dir", type=Path, required=True)
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    rng = random.Random(a.seed)
    found = members(a.package, lambda name: name in RECORDS)
    records = [genbank(name, content.decode("latin-1")) for name, content in found]
    if not records:
        raise SystemExit(f"{a.package} holds none of {', '.join(RECORDS)}")
    train, held_out = examples(records, rng, seed=a.seed)
    held_out = list(dict.fromkeys(held_out))
    texts = [one.text.lower() for one in held_out]
    held = {kmer for text in texts for both in (text, other_strand(text)) for kmer in kmers(both)}
    kept = [one for one in train if not any(k in held for k in kmers(one.text.lower()))]
    print(f"{len(train) - len(kept)} training windows are like a held-out one and left out")
    train = balanced(kept, len(kept), rng)
    sequences = [*(record.bases for record in records), *other_sequences(a.package)]
    pieces = [piece for one in sequences for piece in unseen(one, held) if len(piece) >= WINDOW]
    lines = list(dict.fromkeys(corpus(pieces, rng)))
    rng.shuffle(lines)
    a.output_dir.mkdir(parents=True, exist_ok=True)
    count = write_lines(a.output_dir / "corpus.txt", lines)
    print(f"corpus: {count} windows of {sum(map(len, pieces))} bases")
    for name, side in (("train", train), ("heldout", held_out)):
        write_table(a.output_dir / f"{name}.csv", ("sequence", "label"), side)
        print(shares(name, side))


if __name__ == "__main__":
    main()
