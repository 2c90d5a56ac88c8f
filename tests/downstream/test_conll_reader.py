from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from electrify.downstream.examples import Sentence
from electrify.downstream.read.conll import read_sentence_rows, read_sentences, tag_scheme, to_iob2
from electrify.downstream.spans import spans
from electrify.errors import UserError

TAGGING = Path(__file__).parents[3] / "shared" / "data" / "tagging"
PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}  # fmt: skip
UD = """# newdoc id = a
# text = He can't.
1\tHe\the\tPRON\tPRP\t_\t2\tnsubj\t_\t_
2-3\tcan't\t_\t_\t_\t_\t_\t_\t_\t_
2\tca\tcan\tAUX\tMD\t_\t0\troot\t_\t_
3\tn't\tnot\tPART\tRB\t_\t2\tadvmod\t_\t_
3.1\tgo\tgo\tVERB\tVB\t_\t_\t_\t_\t_
4\t.\t.\tPUNCT\t.\t_\t2\tpunct\t_\t_

1\t10 000\t10000\tNUM\tCD\t_\t0\troot\t_\t_
"""


def read(
    tmp_path: Path, text: str | bytes, name: str = "t.txt", **given: Any
) -> tuple[Sentence, ...]:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return (read_sentence_rows if ".jsonl" in name else read_sentences)(path, **given)


def sentence(*pairs: str) -> Sentence:
    words, tags = zip(*(pair.split("/") for pair in pairs), strict=True)
    return Sentence(words, tags)


@pytest.mark.parametrize(
    ("text", "given", "found"),
    [
        ("a X\nb Y\n\nc Z\n", {}, [sentence("a/X", "b/Y"), sentence("c/Z")]),
        ("a X\n\n \t \n\nc Z", {}, [sentence("a/X"), sentence("c/Z")]),
        ("\n\na X\n\n\n", {}, [sentence("a/X")]),
        ("a\tX\n\t\nb\tY\n", {}, [sentence("a/X"), sentence("b/Y")]),
        ("a  N   X \n b V Y\n", {}, [sentence("a/X", "b/Y")]),
        ("a N X\nb V Y\n", {"tag": 1}, [sentence("a/N", "b/V")]),
        ("a N X\nb V Y\n", {"word": -1, "tag": 0}, [sentence("X/a", "Y/b")]),
        (
            "-DOCSTART- -X- O\n\na N X\n\n-DOCSTART- -X- O\n\nb N Y\n",
            {},
            [sentence("a/X"), sentence("b/Y")],
        ),
        ("a N X\n-DOCSTART- O\nb N Y\n", {}, [sentence("a/X"), sentence("b/Y")]),
        ("# NN B\n#hash NN I\n", {}, [sentence("#/B", "#hash/I")]),
        (b"\xef\xbb\xbfa X\r\nb Y\r\n\r\nc Z\r\n", {}, [sentence("a/X", "b/Y"), sentence("c/Z")]),
        (
            "a\u00a0b X\n\u2028 Y\n\u3000\u200b Z\n\x85\x0b W\n",
            {},
            [sentence("a\u00a0b/X", "\u2028/Y", "\u3000\u200b/Z", "\x85\x0b/W")],
        ),
        ("New York\tX\n", {}, [sentence("New York/X")]),
        ("en:a B-X\nen:en: O\n", {"prefix": "en:"}, [sentence("a/B-X", "en:/O")]),
        ("en:a B-X\n", {}, [sentence("en:a/B-X")]),
    ],
)
def test_column_files(
    tmp_path: Path, text: str | bytes, given: dict[str, Any], found: list[Sentence]
):
    assert list(read(tmp_path, text, **given)) == found


def test_tsv_cells_may_hold_spaces(tmp_path: Path):
    assert read(tmp_path, "New York\tB LOC\n . \tO\n", "t.tsv") == (
        sentence("New York/B LOC", "./O"),
    )


def test_conllu(tmp_path: Path):
    upos = (sentence("He/PRON", "ca/AUX", "n't/PART", "./PUNCT"), sentence("10 000/NUM"))
    for more in ({}, {"tag": "upos"}, {"tag": 3}, {"tag": -7}):
        assert read(tmp_path, UD, "t.conllu", **more) == upos
    assert [s.tags for s in read(tmp_path, UD, "t.CONLLU", tag="xpos")] == [
        ("PRP", "MD", "RB", "."),
        ("CD",),
    ]
    assert read(tmp_path, UD, "t.conllu", word=2)[0].words == ("he", "can", "not", ".")
    assert (
        read(tmp_path, UD, "t.conllu", tag=9)[0].tags == ("_",) * 4
    )  # no tags, but asked for by its number


@pytest.mark.parametrize("ending", PACK)
def test_compressed_files(tmp_path: Path, ending: str):
    assert read(tmp_path, PACK[ending](UD.encode()), f"t.conllu{ending}") == read(
        tmp_path, UD, "t.conllu"
    )
    assert read(tmp_path, PACK[ending](b"# X\n"), f"t.txt{ending}") == (sentence("#/X"),)
    assert read(tmp_path, PACK[ending](b"a b\tX\n"), f"t.tsv{ending}") == (sentence("a b/X"),)
    assert read(
        tmp_path, PACK[ending](b'{"tokens": ["a"], "tags": ["X"]}'), f"t.jsonl{ending}"
    ) == (sentence("a/X"),)
    with pytest.raises(UserError, match=rf"t\.txt\{ending} is (truncated|damaged)"):
        read(tmp_path, PACK[ending](b"a X\n" * 1000)[:-12], f"t.txt{ending}")


UD_LINE = "1\ta\ta\tNOUN\tNN\t_\t0\troot\t_\t_\n"


@pytest.mark.parametrize(
    ("name", "text", "given", "said"),
    [
        ("t.txt", "a N X\n\nb X\n", {}, r"t\.txt, line 3: 2 columns, expected 3 as in line 1$"),
        ("t.txt", "a X\nb Y Z\n", {}, r"line 2: 3 columns, expected 2"),
        ("t.txt", "a\tX\nb\tX\tY\n", {}, r"line 2: 3 columns, expected 2"),
        ("t.txt", "\na\nb\n", {}, (
            r"line 2: one column; a word and its tag must be in two, separated by a tab or "
            r"spaces"
        )),
        ("t.tsv", "a X\n", {},
         r"line 1: one column; a word and its tag must be in two, separated by a tab$"),
        ("t.tsv", "a\tX\nb Y\n", {}, r"line 2: 1 columns, expected 2"),
        ("t.txt", "a\tX\n\tY\n", {}, r"line 2: the word is empty"),
        ("t.txt", "a\tX\n  \tY\n", {}, r"line 2: the word is empty"),
        ("t.txt", "a\tX\nb\t\n", {}, r"line 2: the tag is empty"),
        ("t.txt", "a\tN\tX\nb\tN\t \n", {}, r"line 2: the tag is empty"),
        ("t.txt", "a N X\n", {"tag": 3}, r"line 1: no column 3; there are 3, counted from 0"),
        ("t.txt", "a N X\n", {"word": -4}, r"line 1: no column -4; there are 3"),
        ("t.txt", "a N X\n", {"tag": 0}, r"line 1: column 0 cannot be both the word and the tag"),
        ("t.txt", "a N X\n", {"word": 2}, r"line 1: column 2 cannot be both the word and the tag"),
        ("t.txt", "a N X\n", {"tag": "upos"},
         r"t\.txt: no column 'upos'; a column is a number, in \.conllu files also upos or xpos"),
        ("t.txt", "en:a X\nde:b X\n", {"prefix": "en:"},
         r"line 2: the word 'de:b' does not begin with 'en:'"),
        ("t.txt", "en:a X\nen: X\n", {"prefix": "en:"}, r"line 2: the word is empty"),
        ("t.txt", "", {}, r"t\.txt: no sentences"),
        ("t.txt", "\n \n\t\n", {}, r"no sentences"),
        ("t.txt", "-DOCSTART- -X- O O\n\n", {}, r"no sentences"),
        ("t.txt", b"a X\n\xe9t\xe9 X\n", {},
         r"t\.txt, line 2: not UTF-8 \(byte 0xe9\); convert the file to UTF-8"),
        ("t.txt", "a X\n".encode("utf-16"), {}, r"is UTF-16 text; convert it to UTF-8"),
        ("t.txt", b"a X\nb\0 X\n", {}, r"line 2: a zero byte; this is a binary file"),
        ("t.txt", bytes(range(256)) * 9, {}, r"t\.txt is a binary file"),
        ("t.txt", gzip.compress(b"a X\n", mtime=0), {}, r"is gzip data; give it the ending \.gz"),
        ("t.txt.gz", b"a X\n", {}, r"is damaged or not a \.gz file"),
        ("t.txt.xz", b"", {}, r"is empty: a \.xz file of 0 bytes is truncated"),
        ("t.conllu", UD_LINE + "a\tNOUN\n", {},
         r"line 2: 2 columns, expected the 10 of CoNLL-U, separated by tabs"),
        ("t.conllu", UD_LINE.replace("\t", " "), {}, r"line 1: 1 columns, expected the 10"),
        ("t.conllu", UD_LINE + UD_LINE, {},
         r"line 2: ID '1', expected 2; is a line missing, or the blank one between sentences\?"),
        ("t.conllu", UD_LINE.replace("1", "x"), {}, r"line 1: ID 'x', expected 1"),
        ("t.conllu", UD_LINE.replace("NOUN", "_"), {},
         r"line 1: no UPOS \('_'\): the treebank has no such tags, or not on every word"),
        ("t.conllu", UD_LINE.replace("NN", "_"), {"tag": "xpos"},
         r"line 1: no XPOS \('_'\): the treebank has no such tags"),
        ("t.conllu", UD_LINE.replace("NN", "_"), {"tag": -6}, r"line 1: no XPOS"),
        ("t.conllu", UD_LINE.replace("1\ta", "1\t"), {}, r"line 1: the word is empty"),
        ("t.conllu", UD_LINE.replace("1\ta", "1\t_"), {},
         r"t\.conllu: every word is '_': this treebank is published without its text"),
        ("t.conllu", UD_LINE, {"tag": "ner"}, r"no column 'ner'"),
        ("t.conllu", "# text = a\n\n", {}, r"no sentences"),
        ("t.jsonl", '{"tokens": ["a"], "tags": ["X"]}\n{"tokens": ["a"]\n', {},
         r"t\.jsonl, line 2: broken JSON"),
        ("t.jsonl", "3\n", {}, r"line 1: not a JSON object"),
        ("t.jsonl", '{"text": "a", "tags": ["X"]}', {},
         r"line 1: no tokens or words; found: text, tags"),
        ("t.jsonl", '{"tokens": ["a"]}', {},
         r"line 1: no tags or ner_tags or labels; found: tokens"),
        ("t.jsonl", '\n{"tokens": "a b", "tags": ["X"]}', {},
         r"line 2: 'tokens' must be a list of texts, not \"a b\""),
        ("t.jsonl", '{"tokens": ["a"], "ner_tags": [3]}', {},
         r"'ner_tags' must be a list of texts, not \[3\]; write the names of the tags"),
        ("t.jsonl", '{"tokens": ["a", "b"], "tags": ["X"]}', {},
         r"line 1: 2 words, but 1 tags; every word needs one"),
        ("t.jsonl", '{"tokens": [], "tags": []}', {},
         r"line 1: a sentence without words; leave the line out"),
        ("t.jsonl", '{"tokens": ["a", " "], "tags": ["X", "X"]}', {},
         r"line 1: 'tokens' holds an empty text \(number 1, counted from 0\)"),
        ("t.jsonl", '{"tokens": ["a"], "tags": [""]}', {}, r"line 1: 'tags' holds an empty text"),
        ("t.jsonl", '{"tokens": ["\\ud83d"], "tags": ["X"]}', {},
         r"line 1: 'tokens' holds half a surrogate pair"),
        ("t.jsonl", "\n", {}, r"t\.jsonl: no sentences"),
    ],
)  # fmt: skip
def test_bad_files_name_file_and_line(
    tmp_path: Path, name: str, text: str | bytes, given: dict[str, Any], said: str
):
    with pytest.raises(UserError, match=said) as caught:
        read(tmp_path, text, name, **given)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("reader", [read_sentences, read_sentence_rows])
def test_missing_files_and_folders(tmp_path: Path, reader: Callable[[Path], Any]):
    with pytest.raises(UserError, match=r"none\.txt: no such file"):
        reader(tmp_path / "none.txt")
    with pytest.raises(UserError, match=r"is a folder; give the files in it"):
        reader(tmp_path)


def test_json_lines(tmp_path: Path):
    rows = [
        {"tokens": ["a", "New York"], "tags": ["O", "B-X"]},
        {"words": ["b"], "labels": ["O"]},
        {"words": ["c"], "ner_tags": ["O"], "labels": 3},
    ]
    text = "\ufeff" + "\r\n\n".join(map(json.dumps, rows))
    assert read(tmp_path, text, "t.jsonl") == (
        sentence("a/O", "New York/B-X"),
        sentence("b/O"),
        sentence("c/O"),
    )


WORD = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters=" \ufeff"),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("separator", ["\t", " ", "   "])
def test_any_words_survive(tmp_path: Path, separator: str):
    @settings(max_examples=30)
    @given(
        st.lists(st.lists(st.tuples(WORD, WORD), min_size=1, max_size=5), min_size=1, max_size=4)
    )
    def check(sentences: list[list[tuple[str, str]]]) -> None:
        text = "\n\n".join(
            "\n".join(separator.join((word, "filler", tag)) for word, tag in pairs)
            for pairs in sentences
        )
        assert [list(zip(s.words, s.tags, strict=True)) for s in read(tmp_path, text)] == sentences

    check()


@pytest.mark.parametrize(
    ("scheme", "tags"),
    [
        ("plain", "NOUN VERB . O"),
        ("plain", "NP-SBJ -LRB- S"),
        ("plain", "N O S E U L"),
        ("iob2", "O O"),
        ("iob2", ""),
        ("iob2", "B-X I-X O B-X B-X B-Y I-Y"),
        ("iob2", "B I O"),
        ("iob1", "I-X I-X B-X O I-Y"),
        ("iob1", "O I-X"),
        ("iob1", "I I O"),
        ("iob1", "B-X I-Y"),
        ("iob1", "B-X O I-X"),  # B- where it is not needed: mixed
        ("iobes", "S-X O B-X I-X E-X"),
        ("iobes", "S-X O"),
        ("iobes", "U-X B-X L-X"),
        ("iobes", "I-X E-X"),
    ],
)
def test_schemes(scheme: str, tags: str):
    assert tag_scheme([tags.split()]) == scheme
    assert tag_scheme([[tag] for tag in ("O", "O")] + [tags.split()]) == (
        scheme if tags else "iob2"
    )


def test_a_scheme_is_that_of_all_sentences():
    assert tag_scheme(iter([("B-X", "I-X"), ("O", "I-X")])) == "iob1"
    assert tag_scheme(iter([("B-X",), ("B-X", "E-X")])) == "iobes"
    assert tag_scheme([("B-X",), ("I-X",)]) == "iob1"


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [
        ("I-X I-X B-X O I-Y I-X", "B-X I-X B-X O B-Y B-X"),
        ("S-X B-X I-X E-X O E-Y", "B-X B-X I-X I-X O B-Y"),
        ("U-A-B B-X L-X", "B-A-B B-X I-X"),
        ("I I O I B", "B I O B B"),
        ("NOUN O .", "NOUN O ."),
        ("", ""),
    ],
)
def test_to_iob2_by_hand(tags: str, wanted: str):
    assert to_iob2(tags.split()) == tuple(wanted.split())


TAG = st.sampled_from(
    [
        "O",
        *(f"{letter}-{kind}" for letter in "BIES" for kind in ("X", "Y", "A-B", "")),
        *"BIES",
        "NOUN",
        "NP-X",
    ]
)


@given(st.lists(TAG, max_size=12))
def test_to_iob2_keeps_the_spans_and_is_idempotent(tags: list[str]):
    once = to_iob2(tags)
    assert spans(once) == spans(tags)
    assert to_iob2(once) == once
    assert tag_scheme([once]) in ("iob2", "plain")


@given(
    st.lists(
        st.tuples(st.sampled_from(["X", "Y", "A-B", ""]), st.integers(1, 3), st.integers(0, 2)),
        max_size=5,
    )
)
def test_every_scheme_of_the_same_chunks_comes_out_as_iob2(chunks: list[tuple[str, int, int]]):
    iob1: list[str] = []
    iob2: list[str] = []
    iobes: list[str] = []
    for kind, length, gap in chunks:
        needed = bool(iob1) and iob1[-1] != "O" and iob1[-1].partition("-")[2] == kind
        iob1 += [f"{'B' if needed else 'I'}-{kind}"] + [f"I-{kind}"] * (length - 1) + ["O"] * gap
        iob2 += [f"B-{kind}"] + [f"I-{kind}"] * (length - 1) + ["O"] * gap
        iobes += (
            [f"S-{kind}"]
            if length == 1
            else [f"B-{kind}", *[f"I-{kind}"] * (length - 2), f"E-{kind}"]
        ) + ["O"] * gap
    assert to_iob2(iob1) == to_iob2(iob2) == to_iob2(iobes) == tuple(iob2)
    if chunks:
        assert (tag_scheme([iob1]), tag_scheme([iob2]), tag_scheme([iobes])) == (
            "iob1",
            "iob2",
            "iobes",
        )


REAL = [
    ("conll2000/train.txt", 8_936, 211_727, "iob2"), ("conll2000/test.txt", 2_012, 47_377, "iob2"),
    ("conll2003/eng.train", 14_041, 203_621, "iob1"),
    ("conll2003/eng.testa", 3_250, 51_362, "iob1"), ("conll2003/eng.testb", 3_453, 46_435, "iob1"),
    ("wnut17/train.conll", 3_394, 62_730, "iob2"), ("wnut17/dev.conll", 1_009, 15_733, "iob2"),
    ("wnut17/test.conll", 1_287, 23_394, "iob2"),
    ("wikiann_en/train.tsv", 20_000, 160_394, "iob2"),
    ("wikiann_en/test.tsv", 10_000, 80_326, "iob2"),
    ("wikiann_en/dev.tsv", 10_000, 80_536, "iob2"),
    ("ud_ewt/train.upos.tsv", 12_544, 204_577, "plain"),
    ("ud_ewt/en_ewt-ud-train.conllu.xz", 12_544, 204_577, "plain"),
]  # fmt: skip


def real(file: str) -> Path:
    if not TAGGING.is_dir():
        pytest.skip("no ../shared/data/tagging")
    return TAGGING / file


@pytest.mark.parametrize(("file", "sentences", "words", "scheme"), REAL)
def test_the_official_files(file: str, sentences: int, words: int, scheme: str):
    found = read_sentences(real(file))
    assert (len(found), sum(len(s.words) for s in found)) == (sentences, words)
    assert tag_scheme([s.tags for s in found]) == scheme
    assert all("-DOCSTART-" not in s.words for s in found)


@pytest.mark.parametrize(("part", "sentences"), [("dev", 2_001), ("test", 2_077)])
def test_the_treebank_and_its_two_columns_agree(part: str, sentences: int):
    treebank = read_sentences(real(f"ud_ewt/en_ewt-ud-{part}.conllu.xz"))
    assert len(treebank) == sentences
    assert treebank == read_sentences(real(f"ud_ewt/{part}.upos.tsv"))
    assert len({tag for s in treebank for tag in s.tags}) == 17
    assert [
        s.words for s in read_sentences(real(f"ud_ewt/en_ewt-ud-{part}.conllu.xz"), tag="xpos")
    ] == [s.words for s in treebank]


def test_the_published_numbers_of_entities():
    found = read_sentences(real("conll2003/eng.testb"))
    assert Counter(kind for s in found for kind, _, _ in spans(s.tags)) == {
        "LOC": 1668,
        "ORG": 1661,
        "PER": 1617,
        "MISC": 702,
    }
    assert Counter(tag[0] for s in found for tag in to_iob2(s.tags)) == {
        "O": 38323,
        "B": 5648,
        "I": 2464,
    }
