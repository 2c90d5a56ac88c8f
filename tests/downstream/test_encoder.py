from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from electrify.downstream.encoder import layers_of, learning_rates, load
from electrify.downstream.examples import Example
from electrify.downstream.fingerprints import encoder_fingerprint, may_be_same
from electrify.downstream.heads import Finetuned, TextHead, grade_class
from electrify.downstream.lengths import Cut
from electrify.errors import UserError
from electrify.hub import commit_of
from electrify.train.optim import parameter_groups

CPU = torch.device("cpu")


def classifier(folder: Path) -> Finetuned:
    return Finetuned(
        load(str(folder), device=CPU).encoder,
        TextHead(16, 2, dropout=0.0, std=0.02, last=False, grade=grade_class),
    )


def copy(zoo: Path, name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(zoo / name, tmp_path / name))


def edit_weights(folder: Path, change) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.mark.parametrize("name", ["electra", "bert", "roberta"])
def test_the_weights_are_those_of_the_checkpoint_and_every_parameter_is_in_one_group(
    zoo: Path, name: str
):
    model = classifier(zoo / name)
    saved = load_file(zoo / name / "model.safetensors")
    named = dict(model.named_parameters())
    for key, parameter in named.items():
        if not key.startswith("head."):
            assert torch.equal(parameter, saved[f"{name}.{key.removeprefix('encoder.')}"])
    assert not [key for key in named if "pooler" in key], (
        "a pooler would be random, and is not used"
    )
    groups = parameter_groups(
        named, rates=learning_rates(named, peak=1.0, decay=0.5), weight_decay=0.0
    )
    assert sorted(id(p) for g in groups for p in g["params"]) == sorted(
        id(p) for p in model.parameters()
    )


def test_layerwise_decay_by_hand(zoo: Path):
    named = dict(classifier(zoo / "electra").named_parameters())
    assert layers_of(named) == 2
    rates = learning_rates(named, peak=3e-4, decay=0.8)
    by_hand = {
        "head.out.weight": 3e-4,
        "head.out.bias": 3e-4,
        "encoder.encoder.layer.1.attention.self.query.weight": 2.4e-4,
        "encoder.encoder.layer.0.output.LayerNorm.bias": 1.92e-4,
        "encoder.embeddings_project.weight": 1.536e-4,
        "encoder.embeddings.word_embeddings.weight": 1.536e-4,
    }
    for name, rate in by_hand.items():
        assert rates[name] == pytest.approx(rate), name
    assert rates.keys() == named.keys()
    assert {round(r / 3e-4, 6) for r in rates.values()} == {1.0, 0.8, 0.64, 0.512}


def test_other_names_of_layers():
    tensor = torch.nn.Parameter(torch.zeros(1))
    names = [
        "encoder.embeddings.tok_embeddings.weight",
        "encoder.layers.0.attn.Wo.weight",
        "encoder.layers.11.mlp.weight",
        "encoder.final_norm.weight",
        "head.bias",
    ]
    rates = learning_rates(dict.fromkeys(names, tensor), peak=1.0, decay=0.5)
    assert [rates[n] for n in names] == [0.5**13, 0.5**12, 0.5, 0.5, 1.0]


def test_a_checkpoint_without_some_encoder_weights_is_refused_by_name(zoo: Path, tmp_path: Path):
    folder = copy(zoo, "electra", tmp_path)
    edit_weights(folder, lambda t: t.pop("electra.encoder.layer.1.output.dense.weight"))
    with pytest.raises(
        UserError,
        match=(
            r"lacks 1 of the encoder's 39 weights: encoder.layer.1.output.dense.weight; for random "
            r"weights say random:"
        ),
    ):
        load(str(folder), device=CPU)


def test_wrapped_names_and_other_sizes_are_refused(zoo: Path, tmp_path: Path):
    folder = copy(zoo, "bert", tmp_path)
    wrapped = {f"module.{k}": v for k, v in load_file(folder / "model.safetensors").items()}
    save_file(wrapped, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"lacks \d+ of the encoder's \d+ weights: .* and \d+ more"):
        load(str(folder), device=CPU)
    folder = copy(zoo, "roberta", tmp_path)
    config = json.loads((folder / "config.json").read_text()) | {"hidden_size": 32}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="roberta: "):
        load(str(folder), device=CPU)


def test_more_layers_in_the_file_than_in_the_config_is_refused(zoo: Path, tmp_path: Path):
    folder = copy(zoo, "electra", tmp_path)
    config = json.loads((folder / "config.json").read_text()) | {"num_hidden_layers": 1}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"holds 2 layers, its config.json says 1"):
        load(str(folder), device=CPU)


def test_truncated_weights(zoo: Path, tmp_path: Path):
    folder = copy(zoo, "electra", tmp_path)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"damaged|cannot be loaded"):
        load(str(folder), device=CPU)


def test_a_folder_without_tokenizer_or_with_a_foreign_one(zoo: Path, tmp_path: Path):
    folder = copy(zoo, "bert", tmp_path)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UserError, match="the folder holds no tokenizer"):
        load(str(folder), device=CPU)
    whole = json.loads((zoo / "bert" / "tokenizer.json").read_text())
    whole["model"]["vocab"]["surplus"] = 99
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    with pytest.raises(
        UserError, match=r"ids up to 99, the model has \d+ embeddings; they do not belong together"
    ):
        load(str(folder), device=CPU)


def test_places_that_hold_no_model(zoo: Path, tmp_path: Path):
    with pytest.raises(UserError, match="no such folder"):
        load(str(tmp_path / "nothing"), device=CPU)
    with pytest.raises(UserError, match="no such folder"):
        load("random:./nothing/here", device=CPU)
    with pytest.raises(UserError, match="a file, not a folder"):
        load(str(zoo / "bert" / "config.json"), device=CPU)
    shutil.copytree(zoo / "electra", tmp_path / "run" / "discriminator")
    with pytest.raises(
        UserError, match=r"holds no config.json, .*; did you mean .*run/discriminator\?"
    ):
        load(str(tmp_path / "run"), device=CPU)
    (tmp_path / "gpt").mkdir()
    (tmp_path / "gpt" / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(UserError, match="'t5' model is an encoder with a decoder"):
        load(str(tmp_path / "gpt"), device=CPU)
    (tmp_path / "gpt" / "config.json").write_text('{"model_type": "')
    with pytest.raises(UserError, match="is not JSON"):
        load(str(tmp_path / "gpt"), device=CPU)


def test_random_weights_have_the_same_shape_and_other_values_by_seed(zoo: Path):
    def drawn(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return (
            load(f"random:{zoo / 'electra'}", device=CPU)
            .encoder.encoder.layer[0]
            .output.dense.weight.detach()
        )  # type: ignore[union-attr,index]

    trained = AutoModel.from_pretrained(zoo / "electra").encoder.layer[0].output.dense.weight
    assert drawn(0).shape == trained.shape
    assert torch.equal(drawn(0), drawn(0))
    assert not torch.equal(drawn(0), drawn(1))
    assert drawn(0).std() == pytest.approx(0.02, rel=0.2)


def test_what_inputs_may_be(zoo: Path):
    facts = {name: load(str(zoo / name), device=CPU) for name in ("electra", "bert", "roberta")}
    assert {name: f.segments for name, f in facts.items()} == {
        "electra": True,
        "bert": True,
        "roberta": False,
    }
    assert {name: f.positions for name, f in facts.items()} == {
        "electra": 40,
        "bert": 40,
        "roberta": 39,
    }
    assert {f.made_for for f in facts.values()} == {39, 40}


@pytest.mark.parametrize(
    ("words", "length", "says"),
    [
        (30, 16, "; --max-seq-length 32 holds all of them"),
        (60, 16, "; --max-seq-length 40 is the most that the model was made for, and the longest"),
        (60, 40, "40 tokens, the most that the model was made for, and the longest has 62: split"),
        (60, 50, "; --max-seq-length 40 is the most that the model was made for, and the longest"),
    ],
)
def test_longer_rows_than_a_model_was_made_for(
    zoo: Path, words: int, length: int, says: str
) -> None:
    """DeBERTa computes them, with distances that no training showed."""
    cut = Cut(load(str(zoo / "deberta"), device=CPU), length=length)
    assert cut.loaded.positions > 1000
    cut.add([Example("good " * words, None, 0.0)], [length])
    assert says in cut.text()


def test_fingerprints_notice_weights_but_not_for_random_ones(zoo: Path, tmp_path: Path):
    folder = copy(zoo, "bert", tmp_path)
    before = encoder_fingerprint(str(folder)), encoder_fingerprint(f"random:{folder}")
    assert before[0] == encoder_fingerprint(str(zoo / "bert")) != before[1]
    edit_weights(folder, lambda t: t["bert.embeddings.LayerNorm.bias"].add_(1))
    assert encoder_fingerprint(str(folder)) != before[0]
    assert encoder_fingerprint(f"random:{folder}") == before[1]


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        ("me/a", "me/a", True),
        ("me/a", "me/a@1", True),
        ("me/a@1", "me/a", True),
        ("me/a@1", "me/a@1", True),
        ("me/a@1", "me/a@2", False),
        ("me/a@1", "me/b@1", False),
        ("me/a", "random:me/a@1", False),
        ("0123", "0123", True),
        ("0123", "0124", False),
    ],
)
def test_fingerprints_without_a_commit_are_those_of_any(before: str, now: str, same: bool) -> None:
    assert may_be_same(before, now) is same


@pytest.mark.parametrize("name", ["a/b/c", "no such", "..", "", "x" * 300])
def test_what_the_hub_cannot_have_has_no_commit(name: str) -> None:
    assert commit_of(name) is None


def test_the_norm_of_debertas_distances_is_no_final_norm() -> None:
    """Every layer reads the table, so that its norm has its rate."""
    names = (
        *("embeddings.word_embeddings.weight", "embeddings.LayerNorm.weight"),
        *(f"encoder.layer.{k}.output.LayerNorm.weight" for k in range(3)),
        *("encoder.rel_embeddings.weight", "encoder.LayerNorm.weight", "head.weight"),
    )
    rates = learning_rates(dict.fromkeys(names, torch.zeros(1)), peak=1.0, decay=0.5)  # type: ignore[arg-type]
    assert rates["encoder.LayerNorm.weight"] == rates["encoder.rel_embeddings.weight"] == 0.5**4
    assert rates["embeddings.LayerNorm.weight"] == 0.5**4
    assert [rates[f"encoder.layer.{k}.output.LayerNorm.weight"] for k in (2, 0)] == [0.5, 0.5**3]
    assert rates["head.weight"] == 1.0
