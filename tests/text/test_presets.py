"""Presets, and the advice that a look at the text gives."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from electrify.errors import UserError
from electrify.text.corpus import read_manifest
from electrify.text.options import PRESETS, PrepareConfig, differing, from_preset
from electrify.text.sources import choose_sources
from electrify.text.report import advice, case_has_meaning, kind_of
from small import mistake, run, write_text

PLACE: dict[str, Any] = {"inputs": ("a.txt",), "output_dir": "out"}


def lines_of(pieces: list[str], *, size: int, lines: int = 200, end: str = "") -> str:
    draw = random.Random(0)
    return "".join("".join(draw.choices(pieces, k=size)) + end + "\n" for _ in range(lines))


SMILES = lines_of(["C", "c", "N", "O", "(", "=O", ")", "Cl", "[nH]", "1"], size=20, end="=C")
PROTEIN = lines_of(list("ACDEFGHIKLMNPQRSTVWY"), size=300)
SPACED = lines_of([c + " " for c in "ACDEFGHIKLMNPQRSTVWY"], size=60)
DNA = lines_of(list("ACGT"), size=200)
LOGS = "".join(
    f"2026-01-{i % 28 + 1:02} 10:00:00 WARN Unit{i} failed code={i}\n" for i in range(99)
)
CODE = Path(__file__).read_text(encoding="utf-8")
PROSE = (
    "The train from Berlin arrived late, and nobody was waiting at the station. Anna had\n"
    "expected her brother, who lived in the old house by the river; he never came.\n\n"
) * 40


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_can_work(name: str) -> None:
    config = from_preset(name, **PLACE)
    assert config.trains_tokenizer


def test_prose_is_the_defaults() -> None:
    assert from_preset("prose", **PLACE) == PrepareConfig(**PLACE)


def test_what_is_given_wins() -> None:
    config = from_preset("dna", **PLACE, vocab_size=100, lowercase=False)
    assert (config.vocab_size, config.lowercase, config.chunk_length) == (100, False, 6)
    other = from_preset("dna", **PLACE, tokenizer="bpe")
    assert (other.tokenizer, other.pre_tokenizer, other.chunk_length) == ("bpe", "auto", None)
    plain = from_preset("dna", **PLACE, pre_tokenizer="auto")
    assert plain.tokenizer == "character"
    with pytest.raises(UserError, match="there is no preset 'proteins'; did you mean 'protein'"):
        from_preset("proteins", **PLACE)


def test_a_preset_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "a.txt"
    source.write_text(SMILES)
    out = tmp_path / "out"
    words = ["prepare", str(source), "--output-dir", str(out), "--preset", "smiles"]
    assert run(*words, "--vocab-size", "99", "--workers", "1") == 0
    said = capsys.readouterr().err
    assert "preset smiles sets --tokenizer character" in said
    assert "--max-seq-length 128" in said
    assert "--vocab-size" not in said
    assert "consider" not in said
    manifest = read_manifest(out)
    assert manifest.options["lowercase"] is False
    assert manifest.options["vocab_size"] == 99
    assert manifest.counts["documents"] == 200
    assert manifest.counts["unk_tokens"] == 0
    assert "did you mean 'smiles'?" in mistake(
        capsys, "prepare", source, "--output-dir", out, "--preset", "smile"
    )


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (SMILES, "smiles"),
        (PROTEIN, "protein"),
        (SPACED, "protein"),
        (DNA, "dna"),
        (DNA.lower(), "dna"),
        (LOGS, "logs"),
        (CODE, "code"),
        (PROSE, None),
        (PROSE.upper(), None),
        ("Der Zug aus Berlin kam spät an. " * 50, None),
        ("北京的火车来得很晚，没有人在等。" * 50, None),
    ],
    ids=lambda x: str(x)[:12],
)
def test_kinds_of_text(text: str, kind: str | None) -> None:
    assert kind_of(text) == kind


def test_case_that_carries_meaning() -> None:
    assert not case_has_meaning(PROSE)
    assert case_has_meaning("getValueOf(theItem) NaCl + KBr HTTPServer " * 20)


def advised(folder: Path, text: str, **changes: Any) -> str:
    source = folder / "a.txt"
    source.write_text(text, encoding="utf-8")
    config = PrepareConfig(inputs=(str(source),), output_dir=str(folder / "out"), **changes)
    return advice(choose_sources(config), config)


def test_advice_names_what_differs(tmp_path: Path) -> None:
    said = advised(tmp_path, SMILES)
    assert said.startswith("a.txt looks like molecules, one per line: consider ")
    assert "--preset smiles, which is --tokenizer character --vocab-size 512 --no-lowercase" in said
    said = advised(tmp_path, SMILES, lowercase=False, vocab_size=99, document_boundary="line")
    assert said.endswith("which is --tokenizer character")
    assert not advised(tmp_path, SMILES, tokenizer=str(tmp_path / "elsewhere"))


def test_what_a_preset_has_set_is_not_advised_again(tmp_path: Path) -> None:
    """`--preset dna --tokenizer byte` was told to take chunks, which byte refuses."""
    for preset in PRESETS:
        for kind in ("bpe", "unigram", "character", "byte"):
            assert differing(preset, from_preset(preset, **PLACE, tokenizer=kind)) == []
    config = PrepareConfig(**PLACE, tokenizer="byte")
    assert differing("dna", config) == ["--document-boundary line"]
    assert "--chunk-length" not in advised(tmp_path, DNA, tokenizer="byte")
    assert "--chunk-length 6" in advised(tmp_path, DNA)


def test_advice_for_lines_and_none_for_prose(tmp_path: Path) -> None:
    assert advised(tmp_path, PROSE) == ""
    assert advised(tmp_path, "too short") == ""
    lines = PROSE.replace("\n\n", "\n")
    assert "consider --document-boundary line" in advised(tmp_path, lines)
    assert advised(tmp_path, lines, document_boundary="file") == ""
    assert "\n" not in advised(tmp_path, lines)
    generated = write_text(tmp_path / "g.txt", size=20_000).read_text(encoding="utf-8")
    assert advised(tmp_path, generated) == ""


def test_advice_for_a_script_without_spaces(tmp_path: Path) -> None:
    chinese = "\n\n".join(
        "我们在北京大学学习汉语。今天的天气很好,我想去公园散步。" for _ in range(40)
    )
    said = advised(tmp_path, chinese)
    assert said.endswith("took each of its characters by itself: consider --tokenizer unigram")
    for kind in ("unigram", "bpe", "character"):
        assert "unigram" not in advised(tmp_path, chinese, tokenizer=kind)
    korean = "\n\n".join(
        "우리는 서울 대학교에서 한국어를 배우고 있습니다. 오늘은 날씨가 좋다." for _ in range(40)
    )
    assert advised(tmp_path, korean) == ""
    assert advised(tmp_path, PROSE + "北京" * 20) == ""


def test_advice_for_a_script_with_marks_and_few_spaces(tmp_path: Path) -> None:
    """Vowels and tones of Thai are marks, which are not letters to Python."""
    thai = "\n\n".join(
        "\u0e17\u0e35\u0e48\u0e19\u0e35\u0e48\u0e01\u0e34\u0e19" * 20 for _ in range(9)
    )
    said = advised(tmp_path, thai)
    assert "no spaces between words" in said
    assert "consider --tokenizer bpe --pre-tokenizer none" in said
    assert "no spaces" not in advised(tmp_path, "/usr/share/doc/" * 99)


def test_advice_where_accents_are_frequent(tmp_path: Path) -> None:
    """German was written without its umlauts, and nothing said so."""
    german = "\n\n".join(
        f"Der Zug aus Köln kam um {n} Uhr an, und niemand war dort. Die Leute gingen nach Hause "
        "und lasen ein Buch über den Fluss."
        for n in range(40)
    )
    said = advised(tmp_path, german)
    assert said.startswith("a.txt looks as if accents carried a meaning (8.0% of the words")
    assert "consider --no-strip-accents, or --no-lowercase, which keeps case, too (docs/" in said
    assert advised(tmp_path, german, strip_accents=False) == ""
    assert advised(tmp_path, german, lowercase=False) == ""
    only = advised(tmp_path, german, lowercase=False, strip_accents=True)
    assert only.endswith("consider --no-strip-accents (docs/other_text.md)")
    assert advised(tmp_path, german.encode("ascii", "ignore").decode() + " Café" * 3) == ""


def test_rows_have_their_boundaries(tmp_path: Path) -> None:
    source = tmp_path / "a.csv"
    source.write_text("text\n" + SMILES)
    config = PrepareConfig(inputs=(str(source),), output_dir=str(tmp_path / "out"))
    said = advice(choose_sources(config), config)
    assert "--preset smiles" in said
    assert "--document-boundary" not in said


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"pre_tokenizer": "chunks"}, "chunk_length"),
        ({"chunk_length": 3}, "chunk_length"),
        ({"chunk_length": 65, "pre_tokenizer": "chunks"}, "chunk_length"),
        ({"tokenizer": "byte", "pre_tokenizer": "chunks", "chunk_length": 3}, "pre_tokenizer"),
        ({"tokenizer": "some/where", "pre_tokenizer": "none"}, "pre_tokenizer"),
    ],
)
def test_pre_tokenizers_that_cannot_work(options: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=f"^{named} "):
        PrepareConfig(**PLACE, **options)
