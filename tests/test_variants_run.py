"""Variants of the study's systems as runs of twelve updates: each trains, stops and goes on to the
same numbers, exports, counts and has a card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from electrify import cli
from electrify.recipe import load
from electrify.tables import asked_of
from small import electrify, parameters_sha256, pretrain_words, records, same_numbers, torchrun
from variants import VARIANTS

SHORT: dict[str, Any] = {
    "max_steps": 8,
    "logging_steps": 4,
    "save_steps": 1,
    "save_total_limit": 1,
    "eval_steps": 0,
}


def words(data: Path, run: Path, name: str, **fields: Any) -> list[str]:
    recipe, own = VARIANTS[name]
    weights = own.get("term_weights")
    own = own | (
        {"term_weights": ",".join(f"{k}={v}" for k, v in weights.items())} if weights else {}
    )
    return [str(w) for w in pretrain_words(data, run, recipe=recipe, **SHORT | own | fields)]


def pretrain(data: Path, run: Path, name: str, **fields: Any) -> int:
    return cli.main(words(data, run, name, **fields))


@pytest.mark.parametrize("name", VARIANTS)
def test_a_run_of_each_variant(name: str, small_data: Path, tmp_path: Path) -> None:
    from transformers import AutoModel

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert pretrain(small_data, whole, name) == 0
    assert pretrain(small_data, broken, name, max_minutes=1e-9) == 75, "stopped after an update"
    assert pretrain(small_data, broken, name) == 0
    assert parameters_sha256(whole, 8) == parameters_sha256(broken, 8)
    assert records(whole, "train")[-1]["flops"] > 0
    _, info = AutoModel.from_pretrained(whole / "discriminator", output_loading_info=True)
    assert not info["missing_keys"]
    asked = asked_of(load(whole / "config.yaml").objective)
    assert asked
    assert asked in (whole / "discriminator" / "README.md").read_text()


@pytest.mark.parametrize("correction", ["gate", "copy"])
def test_a_linear_head_comes_back(
    correction: str, small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both networks of a correction are exported and checked, and a run that starts from them goes
    on with the same weights."""
    from safetensors.torch import load_file
    from transformers import ElectraForMaskedLM, ElectraForPreTraining

    first, again = tmp_path / "first", tmp_path / "again"
    form = {"rtd_head": "linear", "correction": correction}
    assert pretrain(small_data, first, "linear head", **form) == 0
    for made, folder in (
        (ElectraForPreTraining, "discriminator"),
        (ElectraForMaskedLM, "corrector"),
        (ElectraForMaskedLM, "generator"),
    ):
        _, info = made.from_pretrained(first / folder, output_loading_info=True)
        assert not any(info.values())
    capsys.readouterr()
    starts = {f"init_{name}": first / name for name in ("discriminator", "generator")}
    assert pretrain(small_data, again, "linear head", **form, **starts, learning_rate=1e-12) == 0
    start = starts["init_discriminator"]
    assert f"discriminator: {start}: every weight found and used" in capsys.readouterr().err
    one, two = (load_file(run / "discriminator" / "model.safetensors") for run in (first, again))
    assert all(torch.allclose(one[n], two[n], atol=1e-6) for n in one)


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_two_processes(name: str, small_data: Path, tmp_path: Path) -> None:
    electrify(words(small_data, tmp_path / "one", name), tmp_path)
    done = torchrun(words(small_data, tmp_path / "two", name), tmp_path).end()
    assert done.status == 0, done.err
    same_numbers(tmp_path / "one", tmp_path / "two")
