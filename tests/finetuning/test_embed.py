"""`embed`: states of the library, pooled, centred and whitened; models of sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from electrify import UserError
from electrify.finetuning import new_texts
from electrify.finetuning.embed import embed, embed_files
from electrify.finetuning.options import EmbedConfig
from small import run

TEXTS = ["the film was good", "one plot", "", "it is a very very bad film and not fine", "two"]


@pytest.mark.parametrize("name", ["electra", "modernbert"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_are_pooled_states(zoo: Path, name: str, pooling: Any) -> None:
    tokenizer = AutoTokenizer.from_pretrained(zoo / name)
    model = AutoModel.from_pretrained(zoo / name).eval()
    found = embed(zoo / name, TEXTS, pooling=pooling, bf16="false")
    assert (found.shape, found.dtype) == ((len(TEXTS), 16), np.float32)
    for text, vector in zip(TEXTS, found, strict=True):
        with torch.inference_mode():
            states_LD = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        wanted = states_LD.mean(0) if pooling == "mean" else states_LD[0]
        np.testing.assert_allclose(vector, wanted.numpy(), atol=1e-5)


def corpus() -> list[str]:
    rng = np.random.default_rng(0)
    words = ["good", "bad", "film", "plot", "very", "not", "one", "two", "three", "is", "the"]
    return [" ".join(rng.choice(words, rng.integers(1, 9))) for _ in range(200)]


def test_centring_and_whitening(zoo: Path) -> None:
    texts = corpus()
    plain = embed(zoo / "bert", texts, bf16="false")
    centred = embed(zoo / "bert", texts, center=texts, bf16="false")
    np.testing.assert_allclose(centred, plain - plain.mean(0), atol=1e-5)
    white = embed(zoo / "bert", texts, whiten=texts, bf16="false").astype(np.float64)
    np.testing.assert_allclose(white.mean(0), 0, atol=1e-3)
    spread = np.cov(white.T, bias=True)
    # A last norm takes one direction away: its variance is rounding and stays small.
    np.testing.assert_allclose(spread[:15, :15], np.eye(15), atol=1e-2)
    assert spread[15, 15] < 1.01
    with pytest.raises(
        UserError, match="whitening vectors of width 16 needs at least 17 texts, not 5"
    ):
        embed(zoo / "bert", TEXTS, whiten=TEXTS)
    with pytest.raises(UserError, match="center and whiten exclude each other"):
        embed(zoo / "bert", TEXTS, whiten=TEXTS, center=TEXTS)


def test_files(
    zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In blocks of two. Truncated texts of the corpus are not counted."""
    monkeypatch.setattr(new_texts, "BLOCK_ITEMS", 2)
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    other = tmp_path / "corpus.txt"
    long = [*corpus(), "very " * 60]
    other.write_text("\n".join(long))
    out = tmp_path / "out.npy"
    flags = ["--output-file", str(out), "--bf16", "false", "--center", str(other)]
    assert run("embed", str(zoo / "bert"), str(path), *flags) == 0
    said = capsys.readouterr()
    assert f"{out}: 5 texts in" in said.out
    assert "truncated" not in said.err
    wanted = embed(zoo / "bert", TEXTS, center=long, bf16="false")
    np.testing.assert_allclose(np.load(out, mmap_mode="r"), wanted, atol=1e-5)
    table = tmp_path / "texts.csv"
    table.write_text("n,text\n" + "".join(f"{k},{t}\n" for k, t in enumerate(TEXTS)))
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


def test_a_model_of_sentence_transformers(zoo: Path, tmp_path: Path) -> None:
    """Its own pooling and dense layer, as its library computes them."""
    reason = "sentence-transformers is not installed: pip install 'electrify[sentence]'"
    library = pytest.importorskip("sentence_transformers", reason=reason)
    parts = pytest.importorskip("sentence_transformers.models", reason=reason)
    torch.manual_seed(0)
    encoder = parts.Transformer(str(zoo / "bert"), max_seq_length=32)
    modules = [encoder, parts.Pooling(16, pooling_mode="cls"), parts.Dense(16, 8)]
    library.SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "model"))
    assert (tmp_path / "model" / "2_Dense").is_dir()
    model = library.SentenceTransformer(str(tmp_path / "model"), device="cpu")
    found = embed(tmp_path / "model", TEXTS, bf16="false")
    np.testing.assert_array_equal(found, model.encode(TEXTS))
    assert found.shape == (len(TEXTS), 8)
    with pytest.raises(UserError, match="has its own pooling"):
        embed(tmp_path / "model", TEXTS, pooling="cls")
