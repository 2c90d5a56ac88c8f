"""What is said about a text before and after it is prepared."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from electrify.errors import UserError
from electrify.text.corpus import read_manifest
from electrify.text.options import PrepareConfig
from electrify.text.prepare import keeping_accents, prepare
from electrify.text.report import beginnings, look, note_on_unknown
from electrify.text.sources import choose_sources
from electrify.text.tokenizer import load_tokenizer, reading_text
from small import mistake

PROSE = (
    "The train from Berlin arrived late, and nobody was waiting at the station. Anna had\n"
    "expected her brother, who lived in the old house by the river; he never came.\n\n"
) * 40
MOLECULES = "".join(f"O=S(Br)CN{'O' * n}Cl\n" for n in range(200))
GERMAN = "\n\n".join(
    f"Der Zug aus Köln kam um {n} Uhr an, und niemand war dort. Die Leute gingen nach Hause "
    "und lasen ein Buch über den Fluss."
    for n in range(40)
)


@pytest.mark.parametrize(
    ("text", "changes", "flags"),
    [
        (PROSE, {}, ""),
        (MOLECULES, {}, "--document-boundary line --no-lowercase"),
        (MOLECULES, {"lowercase": False, "document_boundary": "line"}, ""),
        (MOLECULES, {"tokenizer": "elsewhere"}, ""),
        ("acgt" * 900 + "\n\n" + "ttga" * 900, {}, "--tokenizer bpe --pre-tokenizer none"),
        ("北京的火车来得很晚，没有人在等。\n\n" * 50, {}, "--tokenizer unigram"),
    ],
    ids=lambda x: str(x)[:12],
)
def test_advice_names_what_differs(text: str, changes: dict[str, Any], flags: str) -> None:
    options = PrepareConfig(inputs=("a.txt",), output_dir="out", **changes)
    said = look([text], options, {"txt"})
    assert flags == (said and said.partition("consider ")[2].removesuffix(" (docs/other_text.md)"))


def config(source: Path, out: Path, **changes: Any) -> PrepareConfig:
    options: dict[str, Any] = {
        "vocab_size": 300,
        "workers": 1,
        "document_boundary": "line",
        "valid_fraction": 0.0,
    } | changes
    return PrepareConfig(inputs=(str(source),), output_dir=str(out), **options)


def foreign(tmp_path: Path, *, lines: int) -> Path:
    """100 lines, of which some are in letters that the tokenizer below has not seen."""
    draw = random.Random(0)
    known = ["".join(draw.choices("abcdefgh", k=20)) for _ in range(100 - lines)]
    other = ["".join(draw.choices("ξψωφ", k=20)) for _ in range(lines)]
    path = tmp_path / f"{lines}.txt"
    path.write_text("\n".join(known + other) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    source = foreign(tmp_path, lines=0)
    prepare(config(source, tmp_path / "letters", tokenizer="character"))
    return str(tmp_path / "letters" / "tokenizer")


def test_a_warning_above_a_hundredth(tmp_path, tokenizer, capsys):
    quiet = prepare(config(foreign(tmp_path, lines=1), tmp_path / "a", tokenizer=tokenizer))
    assert "WARNING" not in capsys.readouterr().err
    assert quiet.counts["unk_characters"] == 20
    loud = prepare(config(foreign(tmp_path, lines=5), tmp_path / "b", tokenizer=tokenizer))
    said = capsys.readouterr().err
    assert "WARNING: 5.0% of the characters of 5.txt are unknown to the tokenizer ([UNK])" in said
    assert (loud.counts["unk_characters"], loud.counts["unk_documents"]) == (100, 5)


def test_a_refusal_above_a_tenth_and_its_flag(tmp_path: Path, tokenizer: str) -> None:
    out = tmp_path / "out"
    options = config(foreign(tmp_path, lines=20), out, tokenizer=tokenizer)
    with pytest.raises(UserError, match=r"20\.0% of the characters .*--allow-unk accepts it"):
        prepare(options)
    assert not (out / "manifest.json").exists()
    # The work is not done again.
    accepted = prepare(replace(options, allow_unk=True))
    assert accepted.counts["unk_documents"] == 20
    assert prepare(options) == accepted == read_manifest(out)


def test_a_note_on_the_texts_that_a_model_reads(tokenizer: str) -> None:
    """The share is of the characters that are not white space: four of seven."""
    for reader in (load_tokenizer(tokenizer), reading_text(load_tokenizer(tokenizer))):
        assert "warning: 57.1% of" in note_on_unknown("model", reader, ["ξψ ωφ", "abc"])
        assert note_on_unknown("model", reader, ["abc"]) == ""


def test_a_trained_one_is_judged_before_the_text_is_tokenised(tmp_path, capsys):
    """1,000 signs cannot be in a vocabulary of 64; nothing is left behind."""
    draw = random.Random(0)
    signs = [chr(0x4E00 + i) for i in range(1000)]
    source = tmp_path / "a.txt"
    source.write_text("\n".join("".join(draw.choices(signs, k=50)) for _ in range(200)))
    words: list[Any] = ["prepare", source, "--output-dir", tmp_path / "out", "--workers", "1"]
    said = mistake(capsys, *words, "--vocab-size", "64", "--document-boundary", "line")
    assert "of the characters of a sample of the text are unknown" in said
    manifest = prepare(config(source, tmp_path / "out", tokenizer="byte"))
    assert manifest.counts["unk_tokens"] == 0
    assert manifest.vocab_size == 261


@pytest.mark.parametrize(("text", "stripped"), [(GERMAN, False), (PROSE, True)])
def test_accents_are_kept_where_many_words_have_one(tmp_path, text, stripped):
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    options = config(tmp_path / "a.txt", tmp_path / "data")
    texts = beginnings(choose_sources(options), options)
    assert keeping_accents(texts, options).accents_stripped == stripped
    asked = replace(options, strip_accents=True)
    assert keeping_accents(texts, asked) == asked
