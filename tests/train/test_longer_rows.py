"""A run that goes on from a folder, with longer rows and another rotary base than it says."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import running
import torch
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM

from electrify.recipe import Recipe
from electrify.train.run import pretrain

SHORT, LONG = 16, 48
THETA = 900.0
BOTH = ("discriminator", "generator")
OWN: dict[str, Any] = {
    "num_hidden_layers": 2,
    "global_attn_every_n_layers": 2,
    "local_attention": 4,
    "global_rope_theta": 50.0,
    "max_position_embeddings": SHORT,
    "max_steps": 4,
}
MORE: dict[str, Any] = {
    "max_seq_length": LONG,
    "extend_positions": LONG,
    "extend_rope_theta": THETA,
    # What a rate of nothing leaves of the weights is what the folder holds.
    "learning_rate": 1e-12,
    "weight_decay": 0.0,
}


def recipe(**fields: Any) -> Recipe:
    return running.recipe("electra-modernbert-tiny", **OWN | fields)


@pytest.fixture(scope="module")
def begun(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with short rows."""
    folder = tmp_path_factory.mktemp("begun") / "run"
    pretrain(small_data, output_dir=folder, recipe=recipe())
    return folder


def starts(run: Path) -> dict[str, str]:
    return {f"init_{name}": str(run / name) for name in BOTH}


def test_goes_on_with_the_same_weights(small_data, begun, tmp_path, exports):
    """Both networks: every weight is the folder's, the exported numbers are the new ones, and the
    base changes what a row gives. The export has compared rows of 33 tokens, more than the folder
    could read, with transformers."""
    run = tmp_path / "run"
    pretrain(small_data, output_dir=run, recipe=recipe(**MORE, **starts(begun)))
    for name in BOTH:
        old, new = (load_file(r / name / "model.safetensors") for r in (begun, run))
        assert old.keys() == new.keys()
        for key, value in old.items():
            torch.testing.assert_close(new[key], value, rtol=0, atol=1e-6)
        had, has = (json.loads((r / name / "config.json").read_text()) for r in (begun, run))
        assert (had["max_position_embeddings"], has["max_position_embeddings"]) == (SHORT, LONG)
        said = json.loads((run / name / "tokenizer_config.json").read_text())
        assert said["model_max_length"] == LONG
        ropes = [c["rope_parameters"] for c in (had, has)]
        assert [r["full_attention"]["rope_theta"] for r in ropes] == [50.0, THETA]
        assert ropes[0]["sliding_attention"] == ropes[1]["sliding_attention"]
    ids_BL = torch.arange(LONG).remainder(90)[None] + 5
    old, new = (AutoModelForMaskedLM.from_pretrained(r / "generator") for r in (begun, run))
    with torch.no_grad():
        assert not torch.allclose(old(ids_BL).logits, new(ids_BL).logits, atol=1e-4), "the base"


def test_goes_on_when_the_folders_are_gone(small_data: Path, begun: Path, tmp_path: Path) -> None:
    """The extended shape is that of the run from then on."""
    copy = tmp_path / "copy"
    shutil.copytree(begun, copy)
    run = tmp_path / "run"
    given = MORE | starts(copy)
    pretrain(small_data, output_dir=run, recipe=recipe(**given, save_steps=2))
    shutil.rmtree(copy)
    shutil.rmtree(run / "checkpoint-4")
    pretrain(small_data, output_dir=run, recipe=recipe(**given, save_steps=2), resume="must")
    for shape in json.loads((run / "run.json").read_text())["shapes"].values():
        assert (shape["max_position_embeddings"], shape["global_rope_theta"]) == (LONG, THETA)
