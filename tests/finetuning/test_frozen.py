"""Linear probes of texts and words."""

import itertools
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from toy import chunks, reader_of, task_of
from transformers import AutoModel, AutoTokenizer

from electrify import embed
from electrify.errors import UserError
from electrify.finetuning import new_texts
from electrify.finetuning.frozen import FrozenTagging, FrozenTexts, cosine_score
from electrify.finetuning.loop import Answered
from electrify.finetuning.metrics import spearman
from electrify.finetuning.one_run import finetune_one, problem_of
from electrify.finetuning.options import FinetuneSettings
from electrify.finetuning.tasks import Example, Sentence, TaskData
from golden import tasks
from small import run

PROBE = FinetuneSettings(
    frozen_encoder="all", learning_rate=0.02, num_train_epochs=60, dropout=0.0, bf16="false"
)


def probe_of(zoo: Path, name: str, own: TaskData, layers: Any) -> Any:
    settings = replace(PROBE, frozen_encoder=layers)
    return problem_of(own, reader_of(zoo / name), settings)


def must_be(found: torch.Tensor, problem: Any, raw: torch.Tensor) -> None:
    """These features, standardised by the training examples."""
    wanted = (raw - problem.mean_F) / problem.std_F
    torch.testing.assert_close(found, wanted, atol=1e-3, rtol=1e-3)


def states_of(problem: Any, text: str) -> tuple[torch.Tensor, ...]:
    """The hidden states [L, D] of every layer."""
    ids = problem.reader.tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        found = problem.reader.encoder(**ids, output_hidden_states=True)
    return tuple(states_1LD[0] for states_1LD in found.hidden_states)


@pytest.mark.parametrize(
    ("name", "layers"), [("electra", "last"), ("modernbert", "last4"), ("deberta", "all")]
)
def test_features_are_the_mean_of_a_texts_states(zoo: Path, name: str, layers: str) -> None:
    """Special tokens included. Two blocks and the embeddings: there are no four layers."""
    own = tasks()["classes"]
    problem = probe_of(zoo, name, own, layers)
    assert isinstance(problem, FrozenTexts)
    found_NF = problem.training(own.train).features_RF
    torch.testing.assert_close(found_NF.mean(0), torch.zeros(found_NF.shape[1]), atol=1e-4, rtol=0)
    torch.testing.assert_close(found_NF.std(0, correction=0), torch.ones(found_NF.shape[1]))
    states = states_of(problem, own.train[3].text)  # type: ignore[union-attr]
    taken = states[-1:] if layers == "last" else states
    must_be(found_NF[3], problem, torch.cat([states_LD.mean(0) for states_LD in taken]))


def test_a_pair_is_two_texts(zoo: Path) -> None:
    own = tasks()["pairs"]
    problem = probe_of(zoo, "bert", own, "last")
    found_NF = problem.training(own.train).features_RF
    first: Any = own.train[0]
    u, v = (states_of(problem, text)[-1].mean(0) for text in (first.text, first.pair))
    must_be(found_NF[0], problem, torch.cat([u, v, (u - v).abs(), u * v]))


def test_features_of_words_are_the_mean_states_of_their_tokens(zoo: Path) -> None:
    """In windows, too, in the order of the words, standardised by the training words."""
    made = [Sentence(("films", "the", "plotlys"), ("A", "B", "A")), *chunks().train]
    own = task_of("tagging", made)
    problem = probe_of(zoo, "electra", own, "all")
    assert isinstance(problem, FrozenTagging)
    words = problem.training(made)
    assert words.features_RF.shape == (sum(len(s.words) for s in made), 3 * 16)  # type: ignore[union-attr]
    torch.testing.assert_close(words.features_RF.mean(0), torch.zeros(48), atol=1e-4, rtol=0)
    states = states_of(problem, "films the plotlys")
    raw_WF = torch.cat([torch.stack([s[1:3].mean(0), s[3], s[4:7].mean(0)]) for s in states], -1)
    must_be(words.features_RF[:3], problem, raw_WF)
    net = problem.net(dropout=0.0)
    torch.nn.init.normal_(net.out.weight)
    tags = problem.answers(net.eval(), Answered(made, words))
    assert [len(t) for t in tags] == [len(s.words) for s in made]  # type: ignore[union-attr]
    flat = net({"features": words.features_RF}).argmax(-1).tolist()
    assert [own.labels.index(t) for one in tags for t in one] == flat


@pytest.mark.parametrize(
    ("name", "metric", "least"),
    [("pairs", "accuracy", 0.95), ("several", "micro_f1", 0.95), ("values", "spearman", 0.7)],
)
def test_the_head_learns_and_the_encoder_stays(zoo, name, metric, least):
    model = str(zoo / "electra")
    before = reader_of(model).encoder.state_dict()
    found = finetune_one(model, tasks()[name], seed=0, settings=PROBE)
    assert found.scores[metric] > least, found.curve
    after = reader_of(model).encoder.state_dict()
    assert all(torch.equal(t, after[name]) for name, t in before.items())
    assert found.parameters < 2000  # only the head's


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


def test_what_vectors_cannot_be(zoo: Path) -> None:
    with pytest.raises(UserError, match="width 16 needs at least 17 texts, not 5"):
        embed(zoo / "bert", TEXTS, whiten=TEXTS)
    with pytest.raises(UserError, match="center and whiten exclude each other"):
        embed(zoo / "bert", TEXTS, whiten=TEXTS, center=TEXTS)


def test_files(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks of two, as arrays and as tables."""
    from pyarrow import parquet

    monkeypatch.setattr(new_texts, "BLOCK_ITEMS", 2)
    other, table = tmp_path / "corpus.txt", tmp_path / "texts.csv"
    other.write_text("\n".join(corpus()))
    table.write_text("n,text\n" + "".join(f"{k},{t}\n" for k, t in enumerate(TEXTS)))
    wanted = embed(zoo / "bert", TEXTS, center=corpus(), bf16="false")
    array, rows = tmp_path / "out.npy", tmp_path / "out.parquet"
    for out in (array, rows):
        flags = ["--output-file", str(out), "--bf16", "false", "--center", str(other)]
        assert run("embed", str(zoo / "bert"), str(table), *flags) == 0
    np.testing.assert_allclose(np.load(array, mmap_mode="r"), wanted, atol=1e-5)
    read = parquet.read_table(rows)
    assert read.column_names == ["n", "text", "embedding"]
    assert read["text"].to_pylist() == TEXTS
    np.testing.assert_allclose(np.array(read["embedding"].to_pylist()), wanted, atol=1e-5)
    table.write_text(table.read_text().replace("n,", "embedding,", 1))
    words = ["embed", str(zoo / "bert"), str(table), "--overwrite", "--output-file"]
    assert (run(*words, str(array)), run(*words, str(rows))) == (0, 2)  # an array has no columns


def test_a_model_of_sentence_transformers(zoo: Path, tmp_path: Path) -> None:
    """Its own pooling and dense layer, as its library computes them."""
    library = pytest.importorskip("sentence_transformers")
    parts = pytest.importorskip("sentence_transformers.models")
    torch.manual_seed(0)
    encoder = parts.Transformer(str(zoo / "bert"), max_seq_length=32)
    modules = [encoder, parts.Pooling(16, pooling_mode="cls"), parts.Dense(16, 8)]
    library.SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "model"))
    model = library.SentenceTransformer(str(tmp_path / "model"), device="cpu")
    found = embed(tmp_path / "model", TEXTS, bf16="false")
    np.testing.assert_array_equal(found, model.encode(TEXTS))
    assert found.shape == (len(TEXTS), 8)
    with pytest.raises(UserError, match="has its own pooling"):
        embed(tmp_path / "model", TEXTS, pooling="cls")
    (tmp_path / "model" / "model.safetensors").rename(tmp_path / "model" / "pytorch_model.bin")
    with pytest.raises(UserError, match="cannot be loaded"):
        embed(tmp_path / "model", TEXTS)


def test_cosines_of_the_layer_that_fits_the_training_pairs_best(zoo: Path, tmp_path: Path) -> None:
    """Their values are those of one layer's cosines, so that this layer is chosen, whatever the
    validation pairs say."""
    texts = ["good", "the bad film", "it is one fine film", "plot", "one plot", "the film is it"]
    pairs = list(itertools.combinations(texts, 2))
    some = [Example(*pair, float(k)) for k, pair in enumerate(pairs)]
    shutil.copytree(zoo / "bert", tmp_path / "bert")
    weights = load_file(tmp_path / "bert" / "model.safetensors")
    # Random layers hardly change their input.
    larger = {n: x * 30 if ".layer." in n and x.ndim == 2 else x for n, x in weights.items()}
    save_file(larger, tmp_path / "bert" / "model.safetensors", metadata={"format": "pt"})
    problem = probe_of(tmp_path, "bert", task_of("regression", some), "all")

    def cosines(layer: int) -> list[float]:
        means = [[states_of(problem, t)[layer].mean(0) for t in pair] for pair in pairs]
        return [float(torch.cosine_similarity(*pair, dim=0)) for pair in means]

    own = task_of("regression", some)
    found = set[float]()
    for layer in range(problem.taken):
        chosen_on = [Example(*p, v) for p, v in zip(pairs, cosines(layer), strict=True)]
        model = str(tmp_path / "bert")
        score = cosine_score(own, model, chosen_on, layers="all", device="cpu")
        assert score == pytest.approx(spearman([e.label for e in some], cosines(layer)))
        found.add(round(score, 6))
    assert len(found) > 1
