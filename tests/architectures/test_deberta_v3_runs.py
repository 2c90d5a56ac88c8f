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
from short_runs import TEXTS, deberta_words, finetuned_folder

from electrify import cli
from electrify.build import Vocabulary, compose
from electrify.exporting.loading import quiet
from electrify.recipe import load
from electrify.scoring.detect import detect
from electrify.scoring.pll import load_scorer
from electrify.text.corpus import Corpus
from electrify.tokens import from_sequences
from electrify.train import checkpoint
from small import (
    DROPOUT,
    electrify,
    parameters_sha256,
    records,
    run,
    same_numbers,
    torchrun,
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


def test_a_run_that_goes_on_to_the_bit(small_data: Path, v3: Path, tmp_path: Path) -> None:
    line = words(small_data, tmp_path / "run", **DROPOUT, learning_rate=0.01)
    assert cli.main([*line, "--max-minutes", "1e-9"]) == 75, "stopped after an update"
    assert cli.main(line) == 0
    assert parameters_sha256(tmp_path / "run", 8) == parameters_sha256(v3, 8)
    assert records(tmp_path / "run") == records(v3)


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


def test_the_head_was_trained(v3: Path) -> None:
    weights = load_tensors(v3 / "discriminator" / "model.safetensors")
    assert float((weights["mask_predictions.LayerNorm.weight"] - 1).abs().max()) > 1e-3
    assert float(weights["mask_predictions.classifier.bias"].abs()) > 1e-3


@pytest.mark.parametrize("name", ["corrective-deberta", "teams", "adversarial", "two-stage"])
def test_a_run_of_each(
    name: str, small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    kept = built.kept
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


def test_evaluate_scores_sentences(v3: Path) -> None:
    scorer = load_scorer(str(v3 / "discriminator"))
    assert scorer.kind == "rtd"
    for text, score in zip(TEXTS, scorer.scores(TEXTS), strict=True):
        (found,) = detect(str(v3 / "discriminator"), [text])
        wanted = sum(torch.log1p(torch.tensor(-p.probability)) for p in found.tokens)
        assert score == pytest.approx(float(wanted), abs=1e-4)


@pytest.mark.parametrize(
    ("rtd_head", "says"),
    [
        ("v3", "every weight found and used"),
        ("linear", "has no weights of the head, which keeps its initial values"),
    ],
)
def test_a_run_starts_from_the_folder(
    rtd_head: str,
    says: str,
    small_data: Path,
    v3: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
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


def test_a_linear_head_does_not_fill_it(
    small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default, which is exported as the library's class."""
    linear = tmp_path / "linear"
    short = {"max_steps": 1, "eval_steps": 0}
    assert cli.main(words(small_data, linear, rtd_head="dense", **short)) == 0
    config = json.loads((linear / "discriminator" / "config.json").read_text())
    assert config["architectures"] == ["DebertaV2ForTokenClassification"]
    capsys.readouterr()
    fields = short | {"init_discriminator": linear / "discriminator"}
    assert cli.main(words(small_data, tmp_path / "run", **fields)) == 0
    said = capsys.readouterr().err
    assert "has no weights of the head, which keeps its initial values" in said
    assert "ignored 2 weights without a place here (classifier.bias, classifier.weight)" in said


def test_finetune_takes_the_folder(v3: Path, tmp_path: Path) -> None:
    finetuned_folder(v3 / "discriminator", tmp_path, "DebertaV2")


@pytest.mark.slow
@pytest.mark.parametrize("fsdp", ["no_shard", "full_shard"])
def test_two_processes(fsdp: str, small_data: Path, tmp_path: Path) -> None:
    electrify(words(small_data, tmp_path / "one"), tmp_path)
    done = torchrun(words(small_data, tmp_path / "two", fsdp=fsdp), tmp_path).end()
    assert done.status == 0, done.err
    same_numbers(tmp_path / "one", tmp_path / "two")
    tensors = load_tensors(tmp_path / "two" / "discriminator" / "model.safetensors")
    assert tensors.keys() >= HEAD
