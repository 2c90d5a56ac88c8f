"""Vectors of texts: those of the library's states, centred and whitened as said, in both files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from electrify import EmbedConfig, UserError, embed, embed_files
from electrify.inference import source
from electrify.inference.pooling import fitted
from small import run

TEXTS = ["the film was good", "one plot", "", "it is a very very bad film and not fine", "two"]


@pytest.mark.parametrize("name", ["electra", "modernbert"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_are_pooled_states(zoo: Path, name: str, pooling: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(zoo / name)
    model = AutoModel.from_pretrained(zoo / name).eval()
    found = embed(str(zoo / name), TEXTS, pooling=pooling, bf16="false")  # type: ignore
    assert (found.shape, found.dtype) == ((len(TEXTS), 16), np.float32)
    for text, vector in zip(TEXTS, found, strict=True):
        with torch.inference_mode():
            states_LD = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        wanted = states_LD.mean(0) if pooling == "mean" else states_LD[0]
        np.testing.assert_allclose(vector, wanted.numpy(), atol=1e-5)


def test_the_folder_of_a_fine_tuning_stands_for_its_model(zoo: Path, tmp_path: Path) -> None:
    """As for `predict`."""
    scores = tmp_path / "scores"
    (scores / "models").mkdir(parents=True)
    (scores / "scores.jsonl").touch()
    (scores / "models" / "one").symlink_to(zoo / "bert")
    wanted = embed(str(zoo / "bert"), TEXTS, bf16="false")
    np.testing.assert_array_equal(embed(str(scores), TEXTS, bf16="false"), wanted)
    path = tmp_path / "new.txt"
    path.write_text("the film was good\n")
    assert run("embed", str(scores), str(path), "--output-file", str(tmp_path / "a.npy")) == 0
    (scores / "models" / "two").symlink_to(zoo / "electra")
    with pytest.raises(UserError, match="holds 2 models; name one of"):
        embed(str(scores), TEXTS)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"max_seq_length": 1}, "max_seq_length "),
        ({"bf16": "yes"}, "bf16 cannot be 'yes'"),
        ({"pooling": "max"}, "pooling cannot be 'max'"),
    ],
)
def test_wrong_arguments_from_python(zoo: Path, given: dict[str, Any], says: str) -> None:
    """As the command line says them: some were taken for others, in silence."""
    with pytest.raises(UserError, match=says):
        embed(**{"model": str(zoo / "bert"), "texts": TEXTS} | given)


def test_a_path_of_a_model(zoo: Path) -> None:
    wanted = embed(str(zoo / "bert"), TEXTS, bf16="false")
    np.testing.assert_array_equal(embed(zoo / "bert", TEXTS, bf16="false"), wanted)


def corpus() -> list[str]:
    rng = np.random.default_rng(0)
    words = ["good", "bad", "film", "plot", "very", "not", "one", "two", "three", "is", "the"]
    return [" ".join(rng.choice(words, rng.integers(1, 9))) for _ in range(200)]


def test_centring_and_whitening(zoo: Path) -> None:
    texts = corpus()
    plain = embed(str(zoo / "bert"), texts, bf16="false")
    centred = embed(str(zoo / "bert"), texts, center=texts, bf16="false")
    np.testing.assert_allclose(centred, plain - plain.mean(0), atol=1e-5)
    white = embed(str(zoo / "bert"), texts, whiten=texts, bf16="false").astype(np.float64)
    np.testing.assert_allclose(white.mean(0), 0, atol=1e-3)
    spread = np.cov(white.T, bias=True)
    # A last norm takes one direction away: its variance is rounding and stays small.
    np.testing.assert_allclose(spread[:15, :15], np.eye(15), atol=1e-2)
    assert spread[15, 15] < 1.01
    given = np.array(texts)
    same = embed(str(zoo / "bert"), given, center=given, bf16="false")
    np.testing.assert_array_equal(same, centred)
    with pytest.raises(UserError, match="5 texts, and whitening vectors of width 16 needs more"):
        embed(str(zoo / "bert"), TEXTS, whiten=TEXTS)
    with pytest.raises(UserError, match="center and whiten exclude each other"):
        embed(str(zoo / "bert"), TEXTS, whiten=TEXTS, center=TEXTS)


def test_a_transform_does_not_depend_on_blocks() -> None:
    vectors_ND = torch.randn(300, 6, generator=torch.Generator().manual_seed(0)) * 3 + 100
    one = fitted([vectors_ND], width=6, whiten=True, shown="x")
    many = fitted(vectors_ND.split(7), width=6, whiten=True, shown="x")
    torch.testing.assert_close(one(vectors_ND).abs(), many(vectors_ND).abs(), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(one(vectors_ND).T.cov(correction=0), torch.eye(6), atol=1e-4, rtol=0)


def test_texts_of_the_corpus_are_not_counted_as_cut(
    zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("the film was good\n" * 3)
    other = tmp_path / "corpus.txt"
    other.write_text(("very " * 40 + "bad\n") * 5)
    flags = ["--output-file", str(tmp_path / "out.npy"), "--max-seq-length", "16"]
    assert run("embed", str(zoo / "bert"), str(path), *flags, "--center", str(other)) == 0
    assert "were cut" not in capsys.readouterr().err


def test_files(
    zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In blocks of two, whose number numpy's header learns at the end."""
    monkeypatch.setattr(source, "BLOCK_ITEMS", 2)
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    other = tmp_path / "corpus.txt"
    other.write_text("\n".join(corpus()), encoding="utf-8")
    out = tmp_path / "out.npy"
    flags = ["--output-file", str(out), "--bf16", "false", "--center", str(other)]
    assert run("embed", str(zoo / "bert"), str(path), *flags) == 0
    assert f"{out}: 5 texts in" in capsys.readouterr().out
    found = np.load(out, mmap_mode="r")
    wanted = embed(str(zoo / "bert"), TEXTS, center=corpus(), bf16="false")
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    table = tmp_path / "texts.csv"
    table.write_text("n,text\n" + "".join(f"{k},{t}\n" for k, t in enumerate(TEXTS)), "utf-8")
    rows = tmp_path / "out.parquet"
    embed_files(
        EmbedConfig(
            model=str(zoo / "bert"), files=(str(table),), output_file=str(rows),
            center=str(other), bf16="false",
        )
    )  # fmt: skip
    from pyarrow import parquet

    read = parquet.read_table(rows)
    assert read.column_names == ["n", "text", "embedding"]
    assert read["text"].to_pylist() == TEXTS
    np.testing.assert_allclose(np.array(read["embedding"].to_pylist()), wanted, atol=1e-5)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "corpus.txt", "out.npy", "out.parquet", "texts.csv", "texts.txt",
    ]  # fmt: skip


def test_a_table_of_vectors_loses_no_column(
    zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--output-file", str(tmp_path / "out.parquet")]
    (tmp_path / "a.csv").write_text("text,id\nthe film,1\n")
    (tmp_path / "b.csv").write_text("text,name\nthe plot,x\n")
    (tmp_path / "c.jsonl").write_text('{"text": "the film"}\n{"text": "the plot", "id": 2}\n')
    for files, says in (
        (["a.csv", "b.csv"], "b.csv has other columns than"),
        (["c.jsonl"], "a row has a column 'id' that the first row does not have"),
    ):
        assert run("embed", str(zoo / "bert"), *(str(tmp_path / f) for f in files), *out) == 2
        assert says in capsys.readouterr().err
        assert not (tmp_path / "out.parquet").exists()
    npy = ["--output-file", str(tmp_path / "out.npy")]
    assert (
        run("embed", str(zoo / "bert"), *(str(tmp_path / f) for f in ("a.csv", "b.csv")), *npy) == 0
    )
    assert np.load(tmp_path / "out.npy").shape[0] == 2
