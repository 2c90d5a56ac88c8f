"""Texts, examples and pairs of a made-up language, the same on every machine."""

from __future__ import annotations

import json
import random
from pathlib import Path

_SYLLABLES = [
    *("ba", "chi", "do", "fé", "gu", "ha", "jo", "ka", "li", "mu", "no", "pla", "qui", "ré"),
    *("sho", "tra", "ü", "va", "we", "xi", "yo", "zu", "ström", "élan"),
]


class Language:
    """Nouns, adjectives and verbs by frequency; each noun has its own few adjectives and verbs."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = rng = random.Random(seed)
        made = ("".join(rng.choices(_SYLLABLES, k=rng.randint(1, 4))) for _ in range(2000))
        words = list(dict.fromkeys(made))
        self.nouns, self.adjectives, self.verbs = words[:400], words[400:700], words[700:1000]
        self.habits = {
            n: (rng.sample(self.adjectives, 3), rng.sample(self.verbs, 3)) for n in self.nouns
        }

    def noun(self) -> str:
        return self.nouns[int(len(self.nouns) * self.rng.random() ** 3)]

    def sentence(self) -> str:
        one, other = self.noun(), self.noun()
        (adjectives, verbs), (others, _) = self.habits[one], self.habits[other]
        end = self.rng.choice([".", ".", ".", "?", f", {self.rng.randint(1, 2030)}.", " - 東京!"])
        return (
            f"The {self.rng.choice(adjectives)} {one} {self.rng.choice(verbs)}ed a "
            f"{self.rng.choice(others)} {other}{end}"
        )

    def document(self) -> str:
        return " ".join(self.sentence() for _ in range(self.rng.randint(2, 9)))

    def documents(self, size: int) -> list[str]:
        """Of so many characters together, or a few more."""
        found: list[str] = []
        while size > 0:
            found.append(self.document())
            size -= len(found[-1])
        return found


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def prose(path: Path, *, size: int = 200_000, seed: int = 0) -> Path:
    return write(path, "\n\n".join(Language(seed).documents(size)) + "\n")


def mixed(folder: Path) -> Path:
    """A folder with a file of each kind that `prepare` reads, and some that it must not."""
    import bz2
    import gzip
    import lzma

    import zstandard

    made = Language(1)
    some = [made.documents(20_000) for _ in range(9)]
    write(folder / "a.txt", "\n\n".join(some[0]))
    write(folder / "b.md", "# A title\n\n" + "\n\n".join(some[1]))
    rows = [json.dumps({"text": text, "id": i}) for i, text in enumerate(some[2])]
    write(folder / "c.jsonl", "\n".join(rows))
    cells = ['"' + text.replace('"', '""') + '"' for text in some[3]]
    write(folder / "d.csv", "text,id\n" + "\n".join(f"{c},{i}" for i, c in enumerate(cells)))
    write(folder / "e.tsv", "text\tid\n" + "\n".join(f"{t}\t1" for t in some[4]))
    compress = {"gz": gzip, "bz2": bz2, "xz": lzma, "zst": zstandard}
    for (ending, module), texts in zip(compress.items(), some[5:], strict=True):
        (folder / "deep").mkdir(exist_ok=True)
        raw = module.compress("\n\n".join([*texts, some[0][0]]).encode())
        (folder / "deep" / f"f.txt.{ending}").write_bytes(raw)
    write(folder / "notes.pdf", "not a text")
    write(folder / ".hidden.txt", "nobody reads this")
    return folder


def chains(path: Path, letters: str, *, count: int = 300) -> Path:
    """Proteins or DNA as FASTA, or something like molecules, one a line."""
    rng = random.Random(2)
    rows = ["".join(rng.choices(letters, k=rng.randint(30, 200))) for _ in range(count)]
    if path.suffix == ".smi":
        return write(path, "".join(f"{row} molecule {i}\n" for i, row in enumerate(rows)))
    return write(path, "".join(f">chain {i}\n{row}\n" for i, row in enumerate(rows)))


def tasks(folder: Path) -> Path:
    """Small sets in the layout of GLUE, CoNLL and BLiMP, and files of one's own."""
    made = Language(3)
    rng = made.rng
    half = made.nouns[:20]

    def sts(count: int) -> str:
        lines = ["index\t" + "-\t" * 6 + "sentence1\tsentence2\tscore"]
        for i in range(count):
            one = made.sentence()
            share = rng.random()
            other = " ".join(w if rng.random() < share else made.noun() for w in one.split())
            lines.append("\t".join([str(i), *["-"] * 6, one, other, f"{5 * share:.3f}"]))
        return "\n".join(lines) + "\n"

    def cola(count: int) -> str:
        lines = []
        for _ in range(count):
            sentence = made.sentence()
            right = rng.random() < 0.5
            told = (
                sentence if right else " ".join(rng.sample(sentence.split(), len(sentence.split())))
            )
            lines.append(f"x\t{int(right)}\t\t{told}")
        return "\n".join(lines) + "\n"

    def conll(count: int) -> str:
        tags = {True: "B-NP", False: "O"}
        sentences = [made.sentence().split() for _ in range(count)]
        return (
            "\n\n".join(
                "\n".join(f"{w} X {tags[w.strip('.?,') in made.habits]}" for w in s)
                for s in sentences
            )
            + "\n"
        )

    def own(count: int) -> str:
        lines = ["text,label"]
        for _ in range(count):
            noun = rng.choice(half)
            kind = ("animal", "thing", "place")[half.index(noun) % 3]
            lines.append(f"the {rng.choice(made.adjectives)} {noun} is here,{kind}")
        return "\n".join(lines) + "\n"

    def many(count: int) -> str:
        lines = ["text,question,number,loud"]
        for _ in range(count):
            text = made.sentence().replace(",", "")
            cells = (str(int(mark in text)) if rng.random() < 0.9 else "" for mark in "?2!")
            lines.append(",".join([text, *cells]))
        return "\n".join(lines) + "\n"

    def questions(count: int) -> str:
        rows = []
        for i in range(count):
            context = made.document()
            words = context.split()
            at = rng.randrange(3, len(words))
            start = len(" ".join(words[:at])) + 1
            answers = {"text": [words[at]], "answer_start": [start]}
            question = f"What comes after {words[at - 1]}?"
            rows.append(
                {"id": str(i), "context": context, "question": question, "answers": answers}
            )
        return "".join(json.dumps(row) + "\n" for row in rows)

    for name, text in (("train", sts), ("dev", sts)):
        write(folder / "STS-B" / f"{name}.tsv", text(80))
    for name in ("train", "dev"):
        write(folder / "CoLA" / f"{name}.tsv", cola(120))
    for name in ("train", "test"):
        write(folder / "conll2000" / f"{name}.txt", conll(60))
    for valid in (False, True):
        write(folder / "own" / ("valid.csv" if valid else "own.csv"), own(150))
        write(folder / "many" / ("valid.csv" if valid else "many.csv"), many(100))
        name = "valid.jsonl" if valid else "questions.jsonl"
        write(folder / "questions" / name, questions(60))
    for part, name in (("blimp", "order"), ("blimp", "word"), ("blimp/supplement", "turn")):
        pairs = []
        for _ in range(20):
            good = made.sentence()
            bad = (
                " ".join(reversed(good.split()))
                if name == "order"
                else good.replace("The", made.noun(), 1)
            )
            row = {
                "sentence_good": good,
                "sentence_bad": bad,
                "field": "syntax",
                "linguistics_term": name,
            }
            pairs.append(json.dumps(row))
        write(folder / part / f"{name}.jsonl", "\n".join(pairs) + "\n")
    return folder
