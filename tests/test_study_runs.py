"""Runs that differ from those of the others: two stages in one command, and encoders that select or
give energies."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from electrify import cli
from electrify.errors import UserError
from small import SHORT, one_sentence, pretrain_words, records


def pretrain(data: Path, run: Path, recipe: str, **fields: Any) -> int:
    return cli.main([str(w) for w in pretrain_words(data, run, recipe=recipe, **SHORT | fields)])


def tables(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return {
        n: t for n, t in load_file(folder / "model.safetensors").items() if n.startswith("electra.")
    }


@pytest.mark.parametrize("start", ["generator", "random"])
def test_two_stages_are_one_command(start, small_data, tmp_path, capsys):
    """A generator of 6 updates, then it stays as it is for 12; the discriminator starts from it, or
    anew. The same command again trains nothing, and the second stage needs its first no more: its
    checkpoint holds the generator."""
    run = tmp_path / "run"
    fields: dict[str, Any] = {
        "generator_steps": 6,
        "discriminator_start": start,
        "learning_rate": 1e-9 if start == "generator" else 1e-3,
    }
    assert pretrain(small_data, run, "two-stage-tiny", **fields) == 0
    first = tables(run / "generator-stage" / "discriminator")
    assert records(run / "generator-stage")[-1]["step"] == 6
    generator, discriminator = tables(run / "generator"), tables(run / "discriminator")
    assert all(torch.equal(first[n], generator[n]) for n in first), "frozen"
    near = all(torch.allclose(first[n], discriminator[n], atol=1e-6) for n in first)
    assert near == (start == "generator")
    for gone in ((), ("generator-stage", "checkpoint-12")):
        for name in gone:
            shutil.rmtree(run / name)
        capsys.readouterr()
        assert pretrain(small_data, run, "two-stage-tiny", **fields) == 0
        assert "first stage" not in capsys.readouterr().err
    assert not (run / "generator-stage").exists()


def sentence(capsys: pytest.CaptureFixture[str]) -> str:
    return one_sentence(capsys.readouterr().err)


def test_what_selects_is_an_encoder_and_no_language_model(small_data, tmp_path, capsys):
    """The card says how to ask it, the doctor finds nothing wrong, another run starts from it, and
    no score of sentences is made of it."""
    from electrify.scoring.pll import load_scorer

    run, size = tmp_path / "run", {"num_hidden_layers": 2}
    assert pretrain(small_data, run, "teams-tiny", max_steps=2, **size) == 0
    folder = run / "selector"
    assert "which of the ids 5 and 6" in (folder / "README.md").read_text()
    assert cli.main(["doctor", str(folder)]) == 0
    fresh = {"init_discriminator": folder, "max_steps": 1, "max_position_embeddings": 32}
    assert pretrain(small_data, tmp_path / "fresh", "bert-tiny", **size | fresh) == 0
    assert "every weight found and used" in capsys.readouterr().err
    with pytest.raises(UserError, match="compares a few candidates and gives no probability"):
        load_scorer(str(folder))
    assert load_scorer(str(run / "discriminator")).kind == "rtd"
    copy = tmp_path / "copy"
    assert cli.main(["export", str(run), "--part", "selector", "--output-dir", str(copy)]) == 0
    weights = [(f / "model.safetensors").read_bytes() for f in (folder, copy)]
    assert weights[0] == weights[1]


def test_an_energy_comes_back_from_its_folder(small_data, tmp_path, capsys):
    """The linear head is exported as two layers and read as one; a replaced-token head is not taken
    for an energy."""
    first, again, other = tmp_path / "first", tmp_path / "again", tmp_path / "other"
    assert pretrain(small_data, first, "electric-tiny") == 0
    start = {"init_discriminator": first / "discriminator", "max_position_embeddings": 32}
    assert pretrain(small_data, again, "electric-tiny", learning_rate=1e-12, **start) == 0
    assert "every weight found and used" in capsys.readouterr().err
    from safetensors.torch import load_file

    one, two = (load_file(run / "discriminator" / "model.safetensors") for run in (first, again))
    assert all(torch.allclose(one[n], two[n], atol=1e-6) for n in one)
    assert bool(one["discriminator_predictions.dense.weight"][0].any())
    assert cli.main(["detect", str(first / "discriminator"), "the dog"]) == 2
    assert "its logits are energies" in sentence(capsys)
    assert pretrain(small_data, other, "electra-tiny") == 0
    start = {"init_discriminator": other / "discriminator"}
    assert pretrain(small_data, tmp_path / "mixed", "electric-tiny", **start) == 0
    assert "a head of another objective" in capsys.readouterr().err
