"""FASTA and SMILES files: a sequence and a molecule are a document each, without their names."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electrify.cli import main
from electrify.errors import UserError
from electrify.finetuning.tables import rows
from electrify.text import documents as documents_module
from electrify.text.choosing import choose_sources
from electrify.text.glimpse import advice
from electrify.text.options import PrepareConfig
from texts import read, write

FASTA = """>sp|P1|ONE first protein
MKVLAA
GIVGLC

>two
MSTN PQRS
> three, without residues
;an old comment
>four
acgt*
"""


def test_sequences_are_joined_and_names_left_out(tmp_path: Path) -> None:
    texts, counts = read(write(tmp_path, "a.fasta", FASTA))
    assert texts == ["MKVLAAGIVGLC", "MSTNPQRS", "acgt*"]
    assert not counts


@pytest.mark.parametrize("ending", ["fa", "faa", "fna", "ffn", "FASTA"])
def test_endings_and_line_ends(tmp_path: Path, ending: str) -> None:
    data = FASTA.replace("\n", "\r\n").encode()
    assert read(write(tmp_path, f"a.{ending}", data))[0] == ["MKVLAAGIVGLC", "MSTNPQRS", "acgt*"]
    packed = write(tmp_path, f"b.{ending}.gz", gzip.compress(data))
    assert read(packed)[0] == ["MKVLAAGIVGLC", "MSTNPQRS", "acgt*"]


def test_text_before_the_first_name_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a\.fa, line 2 comes before the first '>'"):
        read(write(tmp_path, "a.fa", "\nplain text\n>x\nACGT\n"))


def test_files_that_were_joined(tmp_path: Path) -> None:
    data = b">a\nAC\n" + "\ufeff>b\nGT\n".encode()
    assert read(write(tmp_path, "a.fa", data))[0] == ["AC", "GT"]
    with pytest.raises(UserError, match=r"a\.fa, line 2: '>' inside a sequence"):
        read(write(tmp_path, "a.fa", ">a\nAC>b\nGT\n"))


LETTERS = st.characters(codec="utf-8", exclude_categories=("Cc",), exclude_characters=">;")
LETTERS |= st.sampled_from("\x85\x0b\x0c\t")


@given(
    st.lists(st.text(LETTERS, max_size=9)),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
@settings(max_examples=100, deadline=None)
def test_prepare_and_predict_read_the_same(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], end: str
) -> None:
    """Whatever white space Unicode knows."""
    folder = tmp_path_factory.mktemp("x")
    fasta = write(folder, "a.fa", end.join([">x", *lines, ">y", "A"]).encode())
    smiles = write(folder, "a.smi", end.join(lines).encode())
    for path, column in ((fasta, "sequence"), (smiles, "smiles")):
        texts = [row.cells[column].strip() for row in rows(str(path))]
        assert [text for text in texts if text] == read(path)[0]


def test_a_name_without_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds the name only"):
        read(write(tmp_path, "a.fa", b">" + b"A" * (1 << 20)))


@settings(max_examples=50, deadline=None)
@given(
    sequences=st.lists(st.text(alphabet="ACGT", min_size=1, max_size=90), max_size=6),
    width=st.integers(1, 70),
    longest=st.integers(7, 50),
)
def test_nothing_of_a_sequence_is_lost(
    tmp_path_factory: pytest.TempPathFactory, sequences: list[str], width: int, longest: int
) -> None:
    """However lines are folded, and with documents that are cut because they are too long."""
    lines: list[str] = []
    for number, sequence in enumerate(sequences):
        lines.append(f">{number}")
        lines += [sequence[i : i + width] for i in range(0, len(sequence), width)]
    path = write(tmp_path_factory.mktemp("x"), "a.fa", "\n".join(lines))
    assert read(path)[0] == sequences
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("electrify.text.decoding.MAX_DOCUMENT", longest)
        patch.setattr("electrify.text.sequences.MAX_DOCUMENT", longest)
        patch.setattr(documents_module, "MAX_DOCUMENT", longest)
        pieces, counts = read(path)
    assert "".join(pieces) == "".join(sequences)
    assert all(len(piece) <= longest for piece in pieces)
    assert (counts["cuts"] > 0) == any(len(sequence) > longest for sequence in sequences)


def test_molecules_without_names(tmp_path: Path) -> None:
    text = "smiles\tname\nCCO\tethanol\n\nc1ccccc1 benzene 71-43-2\nSmiles\n"
    assert read(write(tmp_path, "a.smi", text))[0] == ["CCO", "c1ccccc1", "Smiles"]
    assert read(write(tmp_path, "b.smiles", "[Na+].[Cl-]"))[0] == ["[Na+].[Cl-]"]


def test_bytes_that_are_not_text(tmp_path: Path) -> None:
    path = write(tmp_path, "a.fa", b">x\nACGT\n>y\nAC\xffGT\n")
    with pytest.raises(UserError, match=r"a\.fa, line 4, is not UTF-8"):
        read(path)
    assert read(path, encoding_errors="skip")[0] == ["ACGT"]


def test_prepared_with_the_preset_and_found_in_folders(tmp_path: Path) -> None:
    folder = tmp_path / "genomes"
    folder.mkdir()
    write(folder, "a.fna", "".join(f">{i}\n" + "ACGTTGCA" * (20 + i) + "\n" for i in range(40)))
    out = tmp_path / "out"
    assert main(["prepare", str(folder), "--preset", "dna", "--output-dir", str(out)]) == 0
    assert (out / "manifest.json").is_file()
    plain = PrepareConfig(inputs=(str(folder),), output_dir=str(tmp_path / "other"))
    assert "--preset dna" in advice(choose_sources(plain), plain)
    assert "--document-boundary" not in advice(choose_sources(plain), plain)
