"""What the data makers share: examples with a label, their files, and the rule that nothing that is
held out may be seen before."""

from __future__ import annotations

import csv
import hashlib
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

# A shorter text is found by chance, and teaches nothing.
SHORTEST = 8


@dataclass(frozen=True)
class Example:
    text: str
    label: str


class HeldOut:
    """Texts that may not occur in anything a model is trained on."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._by_start: dict[str, list[str]] = defaultdict(list)
        for text in sorted({text for text in texts if len(text) >= SHORTEST}):
            self._by_start[text[:SHORTEST]].append(text)

    def occurs_in(self, text: str) -> bool:
        """Whether one of the texts (of SHORTEST characters and more) is a part of `text`."""
        for at in range(len(text) - SHORTEST + 1):
            for held in self._by_start.get(text[at : at + SHORTEST], ()):
                if text.startswith(held, at):
                    return True
        return False


def share_of(name: str, seed: int) -> float:
    """A number in [0, 1) that depends on a name and the seed only, so that the side on which a
    package or a region falls does not depend on what else there is."""
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def balanced(examples: Sequence[Example], wanted: int, rng: random.Random) -> list[Example]:
    """At most `wanted` examples, of each class as many as of the others as far as there are so
    many; the order is random."""
    by_label: dict[str, list[Example]] = defaultdict(list)
    for example in examples:
        by_label[example.label].append(example)
    drawn: list[Example] = []
    left = sorted(by_label.items(), key=lambda item: (len(item[1]), item[0]))  # the rarest first
    for k, (_, those) in enumerate(left):
        share = (wanted - len(drawn)) // (len(left) - k)
        drawn += rng.sample(those, min(share, len(those)))
    rng.shuffle(drawn)
    return drawn


def write_table(path: Path, columns: tuple[str, str], examples: Sequence[Example]) -> None:
    """.csv with a header, or .jsonl."""
    with path.open("w", encoding="utf-8", newline="") as f:
        if path.suffix == ".jsonl":
            for one in examples:
                row = {columns[0]: one.text, columns[1]: one.label}
                f.write(json.dumps(row, ensure_ascii=False) + "\n")
        else:
            table = csv.writer(f, lineterminator="\n")
            table.writerow(columns)
            table.writerows((one.text, one.label) for one in examples)


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """The number of lines that were written."""
    count = 0
    with path.open("w", encoding="utf-8") as f:
        for line in lines:
            f.write(line + "\n")
            count += 1
    return count


def shares(name: str, examples: Sequence[Example]) -> str:
    """`train: 820 examples; low 40.7 %, ...`, for the person who made them."""
    counts = Counter(example.label for example in examples)
    parts = (f"{label} {100 * n / len(examples):.1f} %" for label, n in counts.most_common())
    return f"{name}: {len(examples)} examples; {', '.join(parts)}"
