"""The same text gives the same tokenizer and shards, also after SIGKILL; damaged archives are
errors."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import time
from pathlib import Path
from typing import Any

import material
import program as adapter
import pytest
import zstandard
from outcomes import Outcome
from program import Program, words

ARCHIVES = {"gz": gzip, "bz2": bz2, "xz": lzma, "zst": zstandard}


def test_corpora(agrees: Any) -> None:
    def measure(program: Program, folder: Path) -> Outcome:
        prose = material.prose(folder / "prose.txt", size=60_000)
        mixed = material.mixed(folder / "mixed")
        proteins = material.chains(folder / "p.fasta", "ACDEFGHIKLMNPQRSTVWY")
        molecules = material.chains(folder / "m.smi", "CNOcn=12")
        dna = material.chains(folder / "d.fasta", "ACGT")
        ones: dict[str, tuple[Path, dict[str, Any]]] = {
            "wordpiece": (prose, {"vocab_size": 600}),
            "wordpiece, cased, white space": (
                prose,
                {"vocab_size": 500, "lowercase": False, "pre_tokenizer": "whitespace"},
            ),
            "unigram": (prose, {"tokenizer": "unigram", "vocab_size": 500}),
            "bpe": (prose, {"tokenizer": "bpe", "vocab_size": 500}),
            "bpe without words": (
                prose,
                {"tokenizer": "bpe", "vocab_size": 400, "pre_tokenizer": "none"},
            ),
            "characters": (prose, {"tokenizer": "character", "vocab_size": 200}),
            "bytes": (prose, {"tokenizer": "byte"}),
            "a folder": (mixed, {"vocab_size": 600, "shard_mb": 1, "min_frequency": 3}),
            "a folder, by lines": (
                mixed / "a.txt",
                {"tokenizer": "byte", "document_boundary": "line", "deduplicate": False},
            ),
            "proteins": (proteins, {"preset": "protein"}),
            "molecules": (molecules, {"preset": "smiles", "deduplicate": False}),
            "DNA": (dna, {"preset": "dna", "max_documents": 200}),
        }
        for source, flags in ones.values():  # as recorded: the default looks at the text
            if source in (prose, mixed, mixed / "a.txt") and "lowercase" not in flags:
                flags["strip_accents"] = True
        common = {"workers": 1, "valid_fraction": 0.1}
        lines = [
            words("prepare", source, output_dir=folder / f"data {i}", **common | flags)
            for i, (source, flags) in enumerate(ones.values())
        ]
        old = folder / "data 0" / "tokenizer"
        lines.append(
            words("prepare", mixed, tokenizer=old, output_dir=folder / f"data {len(ones)}")
        )
        for done in program.batch(lines):
            done.ok()
        names = [*ones, "with a tokenizer that is there"]
        return {name: adapter.corpus(folder / f"data {i}") for i, name in enumerate(names)}

    agrees("text", measure)


def test_prepare_goes_on_after_sigkill(
    program: Program, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    text = material.prose(tmp_path / "prose.txt", size=1_500_000)

    def line(name: str, workers: int) -> list[str]:
        return words("prepare", text, output_dir=tmp_path / name, workers=workers, vocab_size=600)

    began = time.monotonic()
    program.run(line("whole", 1)).ok()
    seconds = time.monotonic() - began
    chance = random.Random(0)
    for _ in range(pytestconfig.getoption("--kills")):
        running = program.start(line("broken", 1))
        time.sleep(chance.uniform(0.2, 1) * seconds)
        running.kill()
    program.run(line("broken", 2)).ok()
    assert adapter.corpus(tmp_path / "broken") == adapter.corpus(tmp_path / "whole")


def test_damaged_archives(program: Program, tmp_path: Path) -> None:
    text = material.prose(tmp_path / "prose.txt", size=30_000).read_bytes()
    half = len(text) // 2
    lines = {}
    for ending, module in ARCHIVES.items():
        whole = module.compress(text)
        second = module.compress(text[:half]) + module.compress(text[half:])[:-9]
        flipped = bytes([*whole[:500], whole[500] ^ 255, *whole[501:]])
        for how, raw in (("cut", whole[:-9]), ("second", second), ("flipped", flipped)):
            file = tmp_path / f"{how}.txt.{ending}"
            file.write_bytes(raw)
            out = tmp_path / f"{how} {ending}"
            lines[file] = words("prepare", file, output_dir=out, workers=1, tokenizer="byte")
    for file, done in zip(lines, program.batch(list(lines.values())), strict=True):
        assert file.name in done.sentence()
    assert not list(tmp_path.glob("*/manifest.json"))
