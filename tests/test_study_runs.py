"""Every system of the study as a run of twelve updates: it trains, validates, exports what transformers loads, and two stages are one command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from electrify import cli
from small import pretrain_words, records

SHORT: dict[str, Any] = {"max_steps": 12, "logging_steps": 4, "save_steps": 5, "eval_steps": 8}
LOSSES = {
    "electra-15": {"generator", "rtd"},
    "replace-mlm": {"generator", "mlm"},
    "all-tokens-mlm": {"generator", "all_tokens"},
    "adversarial": {"rtd", "reinforce", "baseline", "reward", "generator_entropy"},
    "electric": {"generator", "nce", "energy_data", "energy_noise"},
    "unigram": {"rtd"},
    "uniform": {"rtd"},
}


def pretrain(data: Path, run: Path, recipe: str, **fields: Any) -> int:
    return cli.main([str(w) for w in pretrain_words(data, run, recipe=recipe, **SHORT | fields)])


@pytest.mark.parametrize("name", list(LOSSES))
def test_a_run_of_each(name: str, small_data: Path, tmp_path: Path) -> None:
    from transformers import AutoModel

    run = tmp_path / "run"
    assert pretrain(small_data, run, f"{name}-tiny") == 0
    for kind in ("train", "valid"):
        last = records(run, kind)[-1]
        assert LOSSES[name] <= last.keys(), kind
    flops = [r["flops"] for r in records(run, "train")]
    assert flops == sorted(flops)
    assert flops[0] > 0
    for half in ("discriminator", "generator"):
        if (run / half).exists():
            _, info = AutoModel.from_pretrained(run / half, output_loading_info=True)
            assert not info["missing_keys"]
    assert (run / "generator").exists() == (name not in ("electric", "unigram", "uniform"))


@pytest.mark.parametrize(
    "fields", [{"mask_unit": "word", "mask_choice": "rare"}, {"tie": "gdes"}, {"temperature": 2.0, "temperature_end": 1.0}], ids=str
)
def test_options_of_the_corruptor(fields: dict[str, Any], small_data: Path, tmp_path: Path) -> None:
    assert pretrain(small_data, tmp_path / "run", "electra-tiny", **fields) == 0


def test_a_sentence_level_head(small_data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert pretrain(small_data, run, "electra-tiny", clean_rate=0.2, term_weights="generator=1,rtd=50,sentence=1") == 0
    assert 0 < records(run, "valid")[-1]["sentence_accuracy"] <= 1


def tables(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return {n: t for n, t in load_file(folder / "model.safetensors").items() if n.startswith("electra.")}


@pytest.mark.parametrize("start", ["generator", "random"])
def test_two_stages_are_one_command(start: str, small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A generator of 6 updates, then it stays as it is for 12; the discriminator starts from it, or anew. The same command again trains nothing."""
    run = tmp_path / "run"
    fields: dict[str, Any] = {"generator_steps": 6, "discriminator_start": start, "learning_rate": 1e-9 if start == "generator" else 1e-3}
    assert pretrain(small_data, run, "two-stage-tiny", **fields) == 0
    first = tables(run / "generator-stage" / "discriminator")
    assert json.loads((run / "generator-stage" / "metrics.jsonl").read_text().splitlines()[-1])["step"] == 6
    generator, discriminator = tables(run / "generator"), tables(run / "discriminator")
    assert all(torch.equal(first[n], generator[n]) for n in first), "frozen"
    near = all(torch.allclose(first[n], discriminator[n], atol=1e-6) for n in first)
    assert near == (start == "generator")
    capsys.readouterr()
    assert pretrain(small_data, run, "two-stage-tiny", **fields) == 0
    assert "first stage" not in capsys.readouterr().err


def test_a_two_stage_run_killed_in_its_first_stage_goes_on(small_data: Path, tmp_path: Path) -> None:
    """max_minutes stops the first stage at once; without it the same command finishes both."""
    run = tmp_path / "run"
    fields: dict[str, Any] = {"generator_steps": 6, "learning_rate": 1e-3}
    assert pretrain(small_data, run, "two-stage-tiny", **fields, max_minutes=1e-9) == 75
    assert not (run / "config.yaml").exists()
    assert pretrain(small_data, run, "two-stage-tiny", **fields) == 0
    assert (run / "discriminator").exists()


def test_an_energy_comes_back_from_its_folder(small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The linear head is exported as two layers and read as one; a replaced-token head is not taken for an energy."""
    first, again, other = tmp_path / "first", tmp_path / "again", tmp_path / "other"
    assert pretrain(small_data, first, "electric-tiny") == 0
    assert (
        pretrain(small_data, again, "electric-tiny", init_discriminator=first / "discriminator", learning_rate=1e-12, max_position_embeddings=32) == 0
    )
    assert "every weight found and used" in capsys.readouterr().err
    from safetensors.torch import load_file

    one, two = (load_file(run / "discriminator" / "model.safetensors") for run in (first, again))
    assert all(torch.allclose(one[n], two[n], atol=1e-6) for n in one)
    assert bool(one["discriminator_predictions.dense.weight"][0].any())
    assert pretrain(small_data, other, "electra-tiny") == 0
    assert pretrain(small_data, tmp_path / "mixed", "electric-tiny", init_discriminator=other / "discriminator") == 0
    assert "has a head of another objective" in capsys.readouterr().err
