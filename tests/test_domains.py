"""benchmarks/domains on made-up packages: what the data makers write, and one script from end to
end."""

from __future__ import annotations

import csv
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import packages

DOMAINS = Path(__file__).parent.parent / "benchmarks" / "domains"
MAKERS: dict[str, Callable[[Path], list[str]]] = {
    "molecules": packages.molecules,
    "dna": packages.dna,
    "chinese": packages.chinese,
    "python_code": packages.python_code,
    "intents": packages.intents,
}
WRITTEN = {
    "molecules": ["corpus.txt", "heldout.csv", "train.csv"],
    "dna": ["corpus.txt", "heldout.csv", "train.csv"],
    "chinese": [
        "corpus.txt", "sentiment-heldout.csv", "sentiment-train.csv",
        "tags-heldout.conll", "tags-train.conll",
    ],
    "python_code": ["heldout.jsonl", "train.jsonl"],
    "intents": ["corpus.txt", "heldout.jsonl", "train.jsonl"],
}  # fmt: skip


def made(name: str, words: list[str], out: Path) -> dict[str, bytes]:
    """The files that a data maker writes."""
    command = [sys.executable, "-B", str(DOMAINS / f"{name}.py"), *words, "--output-dir", str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()}


def rows(name: str, content: bytes) -> list[tuple[str, str]]:
    """(text, label) of the examples; of a tagger's (the sentence, its tags)."""
    text = content.decode()
    if name.endswith(".jsonl"):
        return [tuple(json.loads(line).values()) for line in text.splitlines()]
    if name.endswith(".csv"):
        table = list(csv.reader(text.splitlines()))
        assert table[0][1] == "label"
        return [(one, label) for one, label in table[1:]]
    blocks = [[line.split("\t") for line in b.splitlines()] for b in text.strip().split("\n\n")]
    return [("".join(w for w, _ in b), " ".join(tag for _, tag in b)) for b in blocks]


@pytest.mark.parametrize("name", MAKERS)
def test_data_of_a_domain(name: str, tmp_path: Path) -> None:
    """Layout, the same bytes again, and nothing of the held-out part elsewhere."""
    words = MAKERS[name](tmp_path)
    files = made(name, words, tmp_path / "one")
    assert made(name, words, tmp_path / "two") == files
    corpus = "\n".join(text.decode() for at, text in files.items() if at.startswith("corpus"))
    assert sorted(at for at in files if not at.startswith("corpus/")) == WRITTEN[name]
    assert len(corpus) > 500
    for at in (at for at in files if "heldout" in at):
        held_out = rows(at, files[at])
        train = rows(at, files[at.replace("heldout", "train")])
        assert len(train) > len(held_out) > 8
        assert not {text for text, _ in train} & {text for text, _ in held_out}
        assert not [text for text, _ in held_out if text in corpus]
        assert not [text for text, _ in held_out if text.lower() in corpus.lower()]
        if not at.endswith(".conll"):
            counts = Counter(label for _, label in train)
            assert set(counts) == {label for _, label in held_out}
            assert max(counts.values()) <= 3 * min(counts.values())


def test_dna_shares_nothing_with_what_is_held_out(tmp_path: Path) -> None:
    files = made("dna", packages.dna(tmp_path), tmp_path / "data")

    def kmers(text: str) -> set[str]:
        return {text[at : at + 24] for at in range(len(text) - 23)}

    held_out = rows("a.csv", files["heldout.csv"])
    held = set().union(*(kmers(text) for text, _ in held_out))
    held |= {kmer[::-1].translate(str.maketrans("ACGT", "TGCA")) for kmer in held}
    for line in files["corpus.txt"].decode().split():
        assert not kmers(line) & held
    for text, _ in rows("a.csv", files["train.csv"]):
        assert len(text) == 150
        assert not kmers(text) & held


TEMPLATES = st.recursive(
    st.sampled_from(["a", "b ", " c", "{s}", "<r>"]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({';'.join(parts)})"),
        inner.map(lambda one: f"[{one}]"),
    ),
    max_leaves=8,
)


@given(TEMPLATES, st.integers(0, 9))
@settings(max_examples=60)
def test_sentences_of_a_template(template: str, seed: int) -> None:
    """No sign of the grammar is left, and the words are those of the template."""
    sys.path.insert(0, str(DOMAINS))
    try:
        import grammar
    finally:
        sys.path.remove(str(DOMAINS))
    text = grammar.sample(
        grammar.parse(template), random.Random(seed), rules={"r": "(x|y)"}, value=lambda *_: "s"
    )
    known = set(template) - set("{}<>()[]|;r") | (set("xy") if "<r>" in template else set())
    assert set(text) <= known | {" "}
    assert text == " ".join(text.split())
    for wrong in (f"({template}", f"{template}]"):
        with pytest.raises(ValueError, match=r"missing|closes nothing|too many"):
            grammar.parse(wrong)
