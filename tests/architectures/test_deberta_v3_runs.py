"""Runs with DeBERTaV3's own head that detects, by the real verbs: pre-training, going on, export,
and what reads the folder back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file as load_tensors
from short_runs import TEXTS, deberta_words

from electrify import cli, detect
from electrify.build import Vocabulary, compose
from electrify.exporting.loading import quiet
from electrify.recipe import load
from electrify.text.corpus import Corpus
from electrify.tokens import from_sequences
from electrify.train import checkpoint
from small import (
    DROPOUT,
    run,
)

HEAD = {
    f"mask_predictions.{layer}.{part}"
    for layer in ("LayerNorm", "dense", "classifier")
    for part in ("weight", "bias")
}


def words(data: Path, folder: Path, name: str = "electra-deberta", **fields: Any) -> list[str]:
    return deberta_words(data, folder, name, **({"rtd_head": "v3"} | fields))


@pytest.fixture(scope="module")
def v3(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed, with dropout and with a rate at which the head changes."""
    folder = tmp_path_factory.mktemp("v3") / "run"
    assert cli.main(words(small_data, folder, **DROPOUT, learning_rate=0.01)) == 0
    return folder


def test_the_folder_is_that_of_an_encoder(v3: Path) -> None:
    """The library reads every weight of it, and leaves the head alone; another run's generator has
    the library's own class."""
    folder = v3 / "discriminator"
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["DebertaV2Model"]
    with quiet():
        _, info = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert set(info["unexpected_keys"]) == HEAD
    assert {n for n in load_tensors(folder / "model.safetensors") if n in HEAD} == HEAD
    beside = json.loads((v3 / "generator" / "config.json").read_text())
    assert beside["architectures"] == ["DebertaV2ForMaskedLM"]


@pytest.mark.parametrize("name", ["corrective-deberta", "teams", "adversarial", "two-stage"])
def test_a_run_of_each(name, small_data, tmp_path, capsys):
    """Its export was compared with the library's encoder; the doctor knows its head."""
    own: dict[str, Any] = {"generator_size": 1.0, "architecture": "deberta"}
    own |= {"two-stage": {"generator_steps": 4, "max_steps": 4}}.get(name, {})
    folder = tmp_path / "run"
    assert cli.main(words(small_data, folder, name, **own)) == 0
    kept = json.loads((folder / "discriminator" / "config.json").read_text())
    assert kept["architectures"] == ["DebertaV2Model"]
    beside = [part for part in ("corrector", "selector", "generator") if (folder / part).is_dir()]
    assert beside
    for part in beside:
        config = json.loads((folder / part / "config.json").read_text())
        assert config["architectures"] == ["DebertaV2ForMaskedLM"]
    capsys.readouterr()
    status = run("doctor", str(folder), str(folder / "discriminator"))
    out = capsys.readouterr().out
    assert status == 0, out
    assert "DebertaV2Model loads with every weight, those of a head or decoder that" in out
    assert "have no place" not in out


def test_detect_gives_the_numbers_of_the_network(small_data: Path, v3: Path) -> None:
    """float32, of texts of different lengths in one batch."""
    manifest = Corpus(small_data, "train").manifest
    vocabulary = Vocabulary(manifest.vocab_size, manifest.special_ids)
    built = compose(load(v3 / "config.yaml"), vocabulary)
    tensors, _ = checkpoint.load(v3 / "checkpoint-8")
    built.objective.load_state_dict(tensors["model"], strict=False)
    folder = str(v3 / "discriminator")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    kept = built.discriminator
    kept.encoder.eval()
    every = []
    for text, found in zip(TEXTS, detect(folder, TEXTS), strict=True):
        ids = tokenizer(text)["input_ids"]
        tokens = from_sequences([ids], row_length=len(ids), pad=manifest.special_ids.pad)
        with torch.no_grad():
            logits = kept.head(kept.head.inputs(kept.encoder(tokens), tokens))
        said = torch.tensor([p.probability for p in found.tokens])
        assert torch.allclose(said.logit(), logits[1:-1], atol=1e-5)
        every += said.tolist()
    assert len(set(every)) > len(TEXTS)


@pytest.mark.parametrize(
    ("rtd_head", "says"),
    [
        ("v3", "every weight found and used"),
        ("linear", "has no weights of the head, which keeps its initial values"),
    ],
)
def test_a_run_starts_from_the_folder(rtd_head, says, small_data, v3, tmp_path, capsys):
    still = {"max_steps": 1, "eval_steps": 0, "learning_rate": 1e-12, "weight_decay": 0}
    still |= {"init_discriminator": v3 / "discriminator", "rtd_head": rtd_head}
    assert cli.main(words(small_data, tmp_path / "run", **still)) == 0
    assert says in capsys.readouterr().err
    before, after = (
        load_tensors(one / "discriminator" / "model.safetensors") for one in (v3, tmp_path / "run")
    )
    assert after.keys() >= (HEAD if rtd_head == "v3" else {"classifier.weight"})
    for name in after.keys() & before.keys():
        torch.testing.assert_close(after[name], before[name], atol=1e-6, rtol=0)
