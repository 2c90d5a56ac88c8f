"""Encoders and fine-tuned models: loaded strictly, trained as classes of the library, and saved so
that plain transformers code computes the same."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from toy import alone, chunks, logits_of, questions, reader_of, sharpened
from zoo import predict, save_tokenizer

from electrify.errors import UserError
from electrify.finetuning import model as module
from electrify.finetuning.model import (
    PLAIN,
    computing_in_bf16,
    learning_rates,
    probabilities_of,
    save,
    with_fresh_head,
)
from electrify.finetuning.problems import Answering, Tagging, Texts
from electrify.finetuning.tasks import Example, Saved
from electrify.finetuning.tasks import saved as saved_as

ZOO = ("electra", "bert", "roberta", "modernbert", "deberta")
TEXTS = ["good", "the bad film and the plot was very bad", "it is one fine film"]


@pytest.mark.parametrize("name", ZOO)
def test_the_weights_are_those_of_the_checkpoint(zoo: Path, name: str) -> None:
    """Of the masked LM or discriminator that it holds, also in the class that is trained."""
    reader = reader_of(zoo / name)
    prefix = reader.encoder.base_model_prefix
    tensors = load_file(zoo / name / "model.safetensors")
    wanted = {key.removeprefix(f"{prefix}."): t for key, t in tensors.items()}
    for kind in ("classification", "tagging", "answering"):
        net = with_fresh_head(reader, kind, ("a", "b"))  # type: ignore[arg-type]
        named = dict(net.encoder.named_parameters())
        assert len(named) > 10
        for key, parameter in named.items():
            if "pooler" not in key:
                assert torch.equal(parameter, wanted[key]), key


@pytest.mark.parametrize(
    ("name", "key", "tensor", "says"),
    [
        ("electra", "electra.encoder.layer.1.output.dense.weight", None, "lacks 1 of"),
        # Trained with it, the encoder computes something else; the first is of relative_key.
        *(
            (name, key, torch.ones(16), "does not use")
            for name, key in (
                ("bert", "bert.encoder.layer.0.attention.self.distance_embedding.weight"),
                ("deberta", "encoder.conv.conv.weight"),
                ("modernbert", "model.layers.0.attn.Wqkv.bias"),
            )
        ),
    ],
)
def test_weights_that_are_missing_or_not_used(zoo, tmp_path, name, key, tensor, says):
    folder = Path(shutil.copytree(zoo / name, tmp_path / name))
    tensors = load_file(folder / "model.safetensors")
    tensors.pop(key, None)
    tensors |= {} if tensor is None else {key: tensor}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=f"{says} .*{key.removeprefix('electra.')}"):
        reader_of(folder)


@pytest.mark.parametrize("kind", ["classification", "tagging"])
def test_heads_of_a_checkpoint_never_enter_a_task(zoo: Path, tmp_path: Path, kind: Any) -> None:
    """Some discriminators have the library's class for tags, with two labels. The head of a task is
    drawn by the seed."""
    folder = Path(shutil.copytree(zoo / "modernbert", tmp_path / "model"))
    config = transformers.AutoConfig.from_pretrained(folder)
    transformers.AutoModelForTokenClassification.from_config(config).save_pretrained(folder)
    before = load_file(folder / "model.safetensors")
    reader, found = reader_of(folder), list[dict[str, Tensor]]()
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        library = with_fresh_head(reader, kind, ("a", "b")).library
        found.append({n: p for n, p in library.named_parameters() if n.startswith("class")})
    (key,) = (key for key in found[0] if key.endswith("weight"))
    assert torch.equal(found[0][key], found[1][key])
    assert not torch.equal(found[0][key], found[2][key])
    assert before[key].shape == found[0][key].shape
    assert not torch.equal(found[0][key], before[key])


BY_HAND = {
    "electra": {
        "library.classifier.out_proj.weight": 1.0,
        "library.electra.encoder.layer.1.attention.self.query.weight": 0.5,
        "library.electra.encoder.layer.0.output.LayerNorm.bias": 0.25,
        "library.electra.embeddings_project.weight": 0.125,
        "library.electra.embeddings.word_embeddings.weight": 0.125,
    },
    "bert": {
        "library.bert.pooler.dense.weight": 1.0,
        "library.bert.encoder.layer.1.output.dense.weight": 0.5,
        "library.bert.embeddings.LayerNorm.weight": 0.125,
    },
    "modernbert": {
        "library.head.dense.weight": 1.0,
        "library.model.final_norm.weight": 0.5,
        "library.model.layers.1.attn.Wqkv.weight": 0.5,
        "library.model.layers.0.mlp.Wi.weight": 0.25,
        "library.model.embeddings.norm.weight": 0.125,
        "library.model.embeddings.tok_embeddings.weight": 0.125,
    },
    "deberta": {
        "library.pooler.dense.weight": 1.0,
        "library.deberta.encoder.layer.1.output.dense.weight": 0.5,
        "library.deberta.encoder.layer.0.output.dense.weight": 0.25,
        # Every layer reads the table of distances.
        "library.deberta.encoder.rel_embeddings.weight": 0.125,
        "library.deberta.encoder.LayerNorm.weight": 0.125,
        "library.deberta.embeddings.LayerNorm.weight": 0.125,
    },
}


@pytest.mark.parametrize("name", BY_HAND)
def test_learning_rates_by_hand(zoo: Path, name: str) -> None:
    net = with_fresh_head(reader_of(zoo / name), "classification", ("a", "b"))
    rates = learning_rates(net, peak=1.0, decay=0.5)
    assert rates.keys() == dict(net.named_parameters()).keys()
    for key, rate in BY_HAND[name].items():
        assert rates[key] == rate, key
    assert set(rates.values()) == {0.5**k for k in range(4)}
    # Public code of ELECTRA: n + 2 - depth, of embeddings 0, of layer i i + 1, of the head n + 2.
    skipping = learning_rates(net, peak=1.0, decay=0.5, skip=True)
    assert all(skipping[key] == (rate if rate == 1 else rate / 2) for key, rate in rates.items())


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It tells a text by its last token."""
    folder = tmp_path_factory.mktemp("gpt2")
    size = save_tokenizer(folder, framed=False)
    torch.manual_seed(1)
    shape = {"n_embd": 16, "n_positions": 64, "n_layer": 2, "n_head": 2}
    config = transformers.GPT2Config(vocab_size=size, **shape)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", [*ZOO, "gpt2"])
def test_neither_padding_nor_the_batch_changes_a_text(zoo: Path, decoder: Path, name: str) -> None:
    reader = reader_of(decoder if name == "gpt2" else zoo / name)
    assert reader.last == (name == "gpt2")
    problem = Texts(reader, "classification", ("a", "b"), max_seq_length=39)
    net = sharpened(problem.net(dropout=None))
    rows = problem.rows([Example(text) for text in TEXTS])
    together = logits_of(net, rows)
    torch.testing.assert_close(together, alone(net, rows), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(together[0], together[1], atol=1e-3)


SIZE: dict[str, Any] = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2}
WIDE = SIZE | {"num_attention_heads": 4, "intermediate_size": 48}
ATTENTIVE: dict[str, Any] = {
    "bert": transformers.BertConfig(**WIDE),
    "modernbert": transformers.ModernBertConfig(
        **WIDE, pad_token_id=0, cls_token_id=2, sep_token_id=3, local_attention=4
    ),
    "gpt2": transformers.GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=4),
    # Two query heads to one key head:
    "qwen2": transformers.Qwen2Config(**WIDE, num_key_value_heads=2),
}


@pytest.mark.parametrize("name", ATTENTIVE)
def test_plain_attention_is_the_librarys(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32 and in bfloat16, and for long rows by the fused kernel."""
    found: list[Any] = []
    for implementation in ("sdpa", PLAIN):
        torch.manual_seed(0)
        model = transformers.AutoModel.from_config(
            ATTENTIVE[name], attn_implementation=implementation
        )
        found.append(model.eval())
    ids = torch.randint(4, 50, (3, 12), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(12) < torch.tensor([[12], [7], [1]])).long()

    def states(model: Any, *, bf16: bool = False) -> Tensor:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            found = model(input_ids=ids, attention_mask=mask).last_hidden_state
        return found[mask.bool()].float()

    theirs, ours = (states(model) for model in found)
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-5)
    near = states(found[1], bf16=True)
    assert torch.cosine_similarity(near, theirs, dim=-1).min() > 0.999
    calls: list[int] = []
    real = F.scaled_dot_product_attention

    def spy(*args: Any, **named: Any) -> Tensor:
        calls.append(1)
        return real(*args, **named)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    assert torch.equal(states(found[1]), ours)
    assert not calls
    monkeypatch.setattr(module, "LONG_ROW", 12)
    torch.testing.assert_close(states(found[1]), ours, atol=1e-5, rtol=1e-5)
    assert len(calls) == 2


@pytest.mark.parametrize("name", ["bert", "modernbert"])
@pytest.mark.parametrize("kind", ["classification", "answering"])
def test_the_head_computes_in_float32(zoo: Path, name: str, kind: Any) -> None:
    net = sharpened(with_fresh_head(reader_of(zoo / name), kind, ("a", "b")))
    inputs = {"input_ids": torch.tensor([[2, 5, 13, 3]])}
    with torch.inference_mode():
        exact = net(inputs)
        computing_in_bf16(net.encoder)
        near = net(inputs)
    assert near.dtype is torch.float32
    assert not torch.equal(near, near.bfloat16().float())
    assert not torch.equal(near, exact)
    torch.testing.assert_close(near, exact, atol=0.1, rtol=0.05)


LENGTH: dict[str, Any] = {"max_seq_length": 32}


def saved(problem: Any, folder: Path, **more: Any) -> Any:
    """A net with a fresh head, which is saved in the folder."""
    net = sharpened(problem.net(dropout=None))
    save(net, problem.reader, "toy", folder, reading=LENGTH, **more)
    return net


def loaded(folder: Path, what: str) -> tuple[Any, Any]:
    """The model and the tokenizer of the folder, by the library alone."""
    auto = getattr(transformers, f"AutoModelFor{what}")
    model = auto.from_pretrained(folder).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("name", ["electra", "modernbert", "deberta"])
@pytest.mark.parametrize("classes", [2, 9])
def test_classes_in_a_pipeline(zoo: Path, tmp_path: Path, name: str, classes: int) -> None:
    labels, folder = tuple(f"class {k}" for k in range(classes)), tmp_path / "saved"
    problem = Texts(reader_of(zoo / name), "classification", labels, **LENGTH)
    net = saved(problem, folder)
    logits_NC = logits_of(net, problem.rows([Example(text) for text in TEXTS]))
    wanted_NC = probabilities_of(problem.kind, logits_NC)
    pipeline = transformers.pipeline("text-classification", model=str(folder), device="cpu")
    by_the_library = pipeline(TEXTS, top_k=None)
    ours = predict(folder, TEXTS, bf16="false", device="cpu", probabilities=True)
    for wanted_C, theirs, one in zip(wanted_NC, by_the_library, ours, strict=True):
        wanted = dict(zip(labels, wanted_C.tolist(), strict=True))
        assert {row["label"]: row["score"] for row in theirs} == pytest.approx(wanted, abs=1e-5)
        assert one["probabilities"] == pytest.approx(wanted, abs=1e-6)
        assert one["predicted_label"] == theirs[0]["label"] == max(wanted, key=wanted.__getitem__)
    assert saved_as(str(folder)) == Saved("classification", labels, LENGTH)
    config = json.loads((folder / "config.json").read_text())
    assert config["dtype"] == "float32"
    assert config["architectures"] == [type(net.library).__name__]


@pytest.mark.parametrize("name", ["electra", "roberta", "deberta"])
def test_pairs_and_several_labels_in_the_librarys_class(zoo, tmp_path, name):
    folder = tmp_path / "saved"
    problem = Texts(reader_of(zoo / name), "multilabel", ("a", "b", "c"), **LENGTH)
    net = saved(problem, folder)
    rows = problem.rows([Example(text, "it was", ()) for text in TEXTS])
    wanted_NC = probabilities_of(problem.kind, logits_of(net, rows))
    found = predict(folder, TEXTS, pairs=["it was"] * 3, bf16="false", probabilities=True)
    assert saved_as(str(folder)).kind == "multilabel"
    model, tokenizer = loaded(folder, "SequenceClassification")
    inputs = tokenizer(TEXTS, ["it was"] * 3, padding=True, return_tensors="pt")
    with torch.inference_mode():
        theirs_NC = model(**inputs).logits.sigmoid()
    torch.testing.assert_close(theirs_NC, wanted_NC, atol=1e-5, rtol=1e-5)
    for one, wanted_C in zip(found, wanted_NC.tolist(), strict=True):
        assert list(one["probabilities"].values()) == pytest.approx(wanted_C, abs=1e-6)
        on = [c for c, p in zip("abc", wanted_C, strict=True) if p > 0.5]
        assert one["predicted_labels"] == on


@pytest.mark.parametrize("name", ZOO)
def test_a_regression_on_its_own_scale(zoo: Path, tmp_path: Path, name: str) -> None:
    """Mean and deviation of the training values are in the saved weights."""
    folder = tmp_path / "saved"
    problem = Texts(reader_of(zoo / name), "regression", (), **LENGTH)
    problem.fit([Example("a", None, value) for value in (100.0, 110.0, 160.0)])
    assert (problem.center, problem.scale) == (pytest.approx(370 / 3), pytest.approx(26.2466929))
    net = saved(problem, folder, scaled=(problem.scale, problem.center))
    logits_NC = logits_of(net, problem.rows([Example(text) for text in TEXTS]))
    wanted = problem.values(logits_NC)
    assert max(wanted) - min(wanted) > 0.1
    model, tokenizer = loaded(folder, "SequenceClassification")
    with torch.inference_mode():
        theirs = model(**tokenizer(TEXTS, padding=True, return_tensors="pt")).logits[:, 0].tolist()
    assert theirs == pytest.approx(wanted, abs=1e-4)
    pipeline = transformers.pipeline("text-classification", model=str(folder), device="cpu")
    piped = [row["score"] for row in pipeline(TEXTS, function_to_apply="none")]
    assert piped == pytest.approx(wanted, abs=1e-4)
    ours = predict(folder, TEXTS, bf16="false")
    assert [one["predicted_value"] for one in ours] == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("name", ["electra", "modernbert", "deberta"])
def test_tags_by_plain_transformers_code(zoo: Path, tmp_path: Path, name: str) -> None:
    """The class with the largest mean of the logits of a word's tokens."""
    folder = tmp_path / "saved"
    saved(Tagging(reader_of(zoo / name), "tagging", ("A", "B", "C"), **LENGTH), folder)
    made = [s.words for s in chunks().train[::5]] + [("films", "the", "plotlys", "badly")]  # type: ignore[union-attr]
    found = predict(folder, made, bf16="false")
    model, tokenizer = loaded(folder, "TokenClassification")
    seen = set()
    for words, one in zip(made, found, strict=True):
        inputs = tokenizer(list(words), is_split_into_words=True, return_tensors="pt")
        with torch.inference_mode():
            logits_LC = model(**inputs).logits[0]
        word_L = inputs.word_ids(0)
        wanted = []
        for k in range(len(words)):
            mine_PC = logits_LC[[place for place, word in enumerate(word_L) if word == k]]
            wanted.append(model.config.id2label[int(mine_PC.mean(0).argmax())])
        assert one["predicted_tags"] == wanted
        seen |= set(wanted)
    assert len(seen) > 1


@pytest.mark.parametrize("name", ["electra", "modernbert", "deberta"])
def test_answers_by_plain_transformers_code(zoo: Path, tmp_path: Path, name: str) -> None:
    """The span of the context, at most 30 tokens long, with the largest sum of logits."""
    folder = tmp_path / "saved"
    saved(Answering(reader_of(zoo / name), "answering", (), **LENGTH), folder)
    every = questions(impossible=True)[::3]
    asked, contexts = [q.question for q in every], [q.context for q in every]
    found = predict(folder, asked, pairs=contexts, bf16="false")
    model, tokenizer = loaded(folder, "QuestionAnswering")
    for q, one in zip(every, found, strict=True):
        inputs = tokenizer(q.question, q.context, return_tensors="pt", return_offsets_mapping=True)
        offsets = inputs.pop("offset_mapping")[0].tolist()
        context_L = torch.tensor([part == 1 for part in inputs.sequence_ids(0)])
        with torch.inference_mode():
            out = model(**inputs)
        scores_LL = (out.start_logits[0][:, None] + out.end_logits[0]).triu()
        may_LL = (context_L[:, None] & context_L).triu()
        best = scores_LL.masked_fill(~may_LL, -1e9).flatten().argmax().item()
        first, last = divmod(int(best), len(offsets))
        assert one["predicted_answer"] == q.context[offsets[first][0] : offsets[last][1]]
        assert one["answer_score"] == pytest.approx(float(scores_LL[first, last]), abs=1e-4)
