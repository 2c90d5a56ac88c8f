"""Starting from Hugging Face folders: what is taken, what is told, what is refused. Every folder
here is written by transformers itself."""

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
import yaml
from runs import MLM, RTD, WORDS, random_built, write_tokenizer
from safetensors.torch import load_file, save_file
from torch import nn

from batches import built, from_sequences, shaken
from electrify import cli
from electrify.build import Built
from electrify.errors import UserError
from electrify.exporting.loading import quiet
from electrify.recipe import load, override
from electrify.text.corpus import Corpus
from electrify.train.start import (
    _fit_rows,
    fill_from,
    load_model,
    must_know_the_words,
    shape_in,
    with_shapes,
)
from small import pretrain_words

SHAPE = {"vocab_size": len(WORDS), "embedding_size": 8, "hidden_size": 16, "num_hidden_layers": 2}
SHAPE |= {"num_attention_heads": 2, "intermediate_size": 24, "max_position_embeddings": 20}
SMALL = SHAPE | {"hidden_size": 8, "num_attention_heads": 1, "intermediate_size": 12}


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def folder(path: Path, kind: str, fields: dict[str, Any] | None = None, *, seed: int = 7) -> str:
    """A folder of the class `kind` with random weights."""
    family = "Bert" if kind.startswith("Bert") else "Electra"
    fields = dict(fields or SHAPE)
    if family == "Bert":
        fields.pop("embedding_size", None)
    model = getattr(transformers, kind)(getattr(transformers, family + "Config")(**fields))
    shaken(model, seed)
    with quiet():
        model.save_pretrained(path)
    return str(path)


def values(built: Built) -> dict[str, dict[str, torch.Tensor]]:
    return {
        name: {n: p.detach().clone() for n, p in half.parameters().items()}
        for name, half in built.exports.items()
    }


def changed(built: Built, before: dict[str, dict[str, torch.Tensor]], half: str) -> set[str]:
    after = built.exports[half].parameters()
    return {n for n, p in after.items() if not torch.equal(p, before[half][n])}


def test_the_shape_of_a_folder(tmp_path):
    start, model = folder(tmp_path, "ElectraForMaskedLM", SMALL), load("electra-tiny").model
    shape = shape_in(start, model, len(WORDS))
    assert (shape.hidden_size, shape.embedding_size) == (8, 8)
    assert (shape.num_attention_heads, shape.vocab_size) == (1, len(WORDS))
    with pytest.raises(UserError, match=f"vocabulary of {len(WORDS)}, the corpus one of 99"):
        shape_in(start, model, 99)


def test_every_weight_is_taken(tmp_path):
    built = random_built(RTD)
    before = values(built)
    start = folder(tmp_path, "ElectraForPreTraining")
    lines = load_model(built.discriminator, start, "electra")
    assert lines == ["every weight found and used"]
    assert changed(built, before, "discriminator") == set(before["discriminator"])


@pytest.mark.parametrize(("kind", "ignored"), [("ElectraModel", 0), ("ElectraForMaskedLM", 5)])
def test_a_missing_head_keeps_its_initial_values(tmp_path, kind, ignored):
    built = random_built(RTD)
    before = values(built)
    lines = load_model(built.discriminator, folder(tmp_path, kind), "electra")
    assert lines[0] == "it has no weights of the head, which keeps its initial values"
    encoder = {name for name in before["discriminator"] if name.startswith("encoder.")}
    assert changed(built, before, "discriminator") == encoder
    assert [f"ignored {ignored} weights" in line for line in lines[1:]] == [True] * (ignored > 0)


def test_of_what_two_networks_share_the_discriminators_folder_decides(tmp_path):
    built = random_built(RTD)
    starts = {
        "discriminator": folder(tmp_path / "d", "ElectraForPreTraining", seed=1),
        "generator": folder(tmp_path / "g", "ElectraForMaskedLM", SMALL, seed=2),
    }
    *lines, last = [line.rpartition(": ")[2] for line in fill_from(built, RTD, starts)]
    assert lines == ["every weight found and used"] * 2
    assert last == f"of the weights that both share, {starts['discriminator']} decides"
    for name, start in starts.items():
        theirs = load_file(Path(start) / "model.safetensors")
        ours = built.exports[name].exported()
        kept = {k for k in ours if torch.equal(ours[k], theirs[k])}
        shared = {k for k in ours if k.startswith("electra.embeddings.")}
        assert kept == ours.keys() - (shared if name == "generator" else set())


@pytest.mark.parametrize("objective", [RTD, MLM])
def test_bert_folders_of_one_width(tmp_path, objective):
    """A language model gives BERT's own logits."""
    built = random_built(override(objective, {"embedding_size": 16, "tie": "none"}))
    before = values(built)
    half, start = built.discriminator, folder(tmp_path, "BertForPreTraining")
    lines = load_model(half, start, "electra")
    parts = "" if objective is MLM else "encoder."
    wanted = {n for n in before["discriminator"] if n.startswith(parts)}
    assert changed(built, before, "discriminator") == wanted
    assert any("ignored 4 weights" in line for line in lines), "pooler and next-sentence head"
    if objective is MLM:
        ids = [[2, 5, 9, 8, 3]]
        with quiet(), torch.no_grad():
            bert = transformers.BertForPreTraining.from_pretrained(start).eval()
            theirs = bert(torch.tensor(ids)).prediction_logits[0]
            ours = half.head(half.encoder.eval()(from_sequences(ids, row_length=5, pad=0)))
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("fields", "lacks", "says"),
    [
        ({"hidden_size": 32}, "nothing", r"is \(32, 8\) there, \(16, 8\) here"),
        ({"hidden_act": "relu"}, "nothing", "hidden_act relu"),
        ({}, "layer.1.output", "lacks 4 weights of the encoder"),
    ],
)
def test_a_folder_that_does_not_fit(tmp_path, fields, lacks, says):
    built = random_built(RTD)
    before = values(built)
    start = folder(tmp_path, "ElectraForPreTraining", SHAPE | fields)
    file = tmp_path / "model.safetensors"
    weights = {name: t for name, t in load_file(file).items() if lacks not in name}
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(UserError, match=says):
        load_model(built.discriminator, start, "electra")
    assert not changed(built, before, "discriminator")


def test_a_generator_with_other_embeddings_needs_words_of_its_own(tmp_path):
    """Also one whose words are the encoder's and a difference."""
    start = folder(tmp_path, "ElectraForMaskedLM", SMALL | {"embedding_size": 4})
    for tie, fits in (("gdes", False), ("none", True)):
        fields = {"tie": tie, "init_generator": start, "init_discriminator": None}
        with contextlib.nullcontext() if fits else pytest.raises(UserError, match="tie=none"):
            with_shapes(override(RTD, fields), {}, vocab_size=len(WORDS))


def test_vocabularies_are_compared_word_by_word(tmp_path):
    ours = write_tokenizer(tmp_path / "ours")
    must_know_the_words(folder(tmp_path / "bare", "ElectraModel"), ours)
    for name, words in (("same", WORDS), ("other", [*WORDS[:-2], "very", "fast"])):
        write_tokenizer(tmp_path / name, words)
        folder(tmp_path / name, "ElectraModel")
    must_know_the_words(str(tmp_path / "same"), ours)
    with pytest.raises(UserError, match="knows other words than the corpus"):
        must_know_the_words(str(tmp_path / "other"), ours)


EPS = 1e-3  # far from every default, so that a wrong one is seen in the numbers
SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 64, "max_position_embeddings": 32}
OWN: dict[str, dict[str, Any]] = {
    "electra": {"embedding_size": 32, "layer_norm_eps": EPS},
    "deberta-v2": {"layer_norm_eps": EPS, "relative_attention": True, "position_buckets": 8}
    | {"norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": ["p2c", "c2p"]}
    | {"position_biased_input": False, "type_vocab_size": 0, "legacy": False},
    "modernbert": {"norm_eps": EPS, "pad_token_id": 0, "global_attn_every_n_layers": 1},
}
RECIPES = {  # with the epsilon of each architecture
    "electra": ("electra-tiny", 1e-12),
    "deberta-v2": ("electra-deberta-tiny", 1e-7),
    "modernbert": ("electra-modernbert-tiny", 1e-5),
}


def folder_of(path: Path, data: Path, kind: str) -> Path:
    """A random language model of the library."""
    words = Corpus(data, "train").manifest.vocab_size
    config = transformers.AutoConfig.for_model(kind, vocab_size=words, **SIZES | OWN[kind])
    with quiet():
        transformers.AutoModelForMaskedLM.from_config(config).save_pretrained(path)
    return path


@pytest.mark.parametrize("kind", RECIPES)
def test_the_folder_decides(kind: str, small_data: Path, tmp_path: Path, capsys: Any) -> None:
    """Against a flag, too, as of every shape, which a note names; it is written down, and a run
    goes on with it when the folder is gone. The exports were compared with the library, which reads
    it there."""
    start = folder_of(tmp_path / "start", small_data, kind)
    fields = {"max_steps": 2, "init_discriminator": start, "layer_norm_eps": 1e-4}
    fields |= {"hidden_size": 256, "embedding_size": 256}  # slow, and the folder has less
    words = pretrain_words(small_data, tmp_path / "run", recipe=RECIPES[kind][0], **fields)
    line = [str(w) for w in words]
    assert cli.main([*line, "--max-minutes", "1e-9"]) == 75
    said = capsys.readouterr().err
    assert re.search("note: .*layer_norm_eps.* no effect, because init_discriminator", said)
    assert "slow on a CPU" not in said
    start.rename(tmp_path / "gone")
    assert cli.main(line) == 0
    recipe = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert recipe["model"]["layer_norm_eps"] == EPS
    for part in ("discriminator", "generator"):
        config = json.loads((tmp_path / "run" / part / "config.json").read_text())
        assert config["norm_eps" if kind == "modernbert" else "layer_norm_eps"] == EPS


@pytest.mark.parametrize(("recipe", "default"), RECIPES.values())
def test_without_a_folder(recipe: str, default: float) -> None:
    """The flag, of both networks; by default that of the architecture."""
    for given, wanted in ((None, default), (EPS, EPS)):
        networks = built(recipe, init="published", layer_norm_eps=given).exports.values()
        parts = [part for network in networks for part in (network.encoder, network.head)]
        norms = [m.eps for part in parts for m in part.modules() if isinstance(m, nn.LayerNorm)]
        assert len(norms) > 4
        assert set(norms) == {wanted}


def test_only_rows_of_words_are_cut_where_a_table_is_padded() -> None:
    """Positions may be as many as the padded words are."""
    rows = len(WORDS) + 2
    names = ("encoder.embeddings.words.weight", "encoder.embeddings.positions.weight")
    named = {name: torch.ones(rows, 2) for name in (*names, "head.bias_V")}
    _fit_rows(named, random_built(MLM).discriminator)
    assert [len(t) for t in named.values()] == [rows - 2, rows, rows - 2]
