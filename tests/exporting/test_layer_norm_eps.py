"""The epsilon of the LayerNorms: given by a flag, or taken over from the folder that a run starts
from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
import yaml
from torch import nn

from batches import built
from electrify import cli
from electrify.exporting.loading import quiet
from electrify.text.corpus import Corpus
from small import pretrain_words

EPS = 1e-3  # far from every default, so that a wrong one is seen in the numbers
SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 64, "max_position_embeddings": 32}
OWN: dict[str, dict[str, Any]] = {
    "electra": {"embedding_size": 32, "layer_norm_eps": EPS},
    "deberta-v2": {
        "layer_norm_eps": EPS,
        "relative_attention": True,
        "position_buckets": 8,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "type_vocab_size": 0,
        "legacy": False,
    },
    "modernbert": {"norm_eps": EPS, "pad_token_id": 0, "global_attn_every_n_layers": 1},
}
RECIPES = {
    "electra": "electra-tiny",
    "deberta-v2": "electra-deberta-tiny",
    "modernbert": "electra-modernbert-tiny",
}
SHORT: dict[str, Any] = {"max_steps": 2}


def folder_of(path: Path, data: Path, kind: str) -> Path:
    """A random language model of the library."""
    words = Corpus(data, "train").manifest.vocab_size
    config = transformers.AutoConfig.for_model(kind, vocab_size=words, **SIZES | OWN[kind])
    with quiet():
        transformers.AutoModelForMaskedLM.from_config(config).save_pretrained(path)
    return path


def exported_eps(folder: Path) -> float:
    config = json.loads((folder / "config.json").read_text())
    return config["norm_eps" if config["model_type"] == "modernbert" else "layer_norm_eps"]


@pytest.mark.parametrize("kind", RECIPES)
def test_the_folder_decides(kind: str, small_data: Path, tmp_path: Path) -> None:
    """Against a flag, too, as of every shape; it is written down, and a run goes on with it when
    the folder is gone. The exports were compared with the library, which reads it there."""
    start = folder_of(tmp_path / "start", small_data, kind)
    fields = SHORT | {"init_discriminator": start, "layer_norm_eps": 1e-4}
    words = pretrain_words(small_data, tmp_path / "run", recipe=RECIPES[kind], **fields)
    line = [str(w) for w in words]
    assert cli.main([*line, "--max-minutes", "1e-9"]) == 75
    start.rename(tmp_path / "gone")
    assert cli.main(line) == 0
    recipe = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert recipe["model"]["layer_norm_eps"] == EPS
    for part in ("discriminator", "generator"):
        assert exported_eps(tmp_path / "run" / part) == EPS


@pytest.mark.parametrize(
    ("recipe", "default"),
    [("electra-tiny", 1e-12), ("electra-modernbert-tiny", 1e-5), ("electra-deberta-tiny", 1e-7)],
)
def test_without_a_folder(recipe: str, default: float) -> None:
    """The flag, of both networks; by default that of the architecture."""
    for given, wanted in ((None, default), (EPS, EPS)):
        networks = built(recipe, init="published", layer_norm_eps=given).exports.values()
        norms = [
            part
            for network in networks
            for module in (network.encoder, network.head)
            for part in module.modules()
            if isinstance(part, nn.LayerNorm)
        ]
        assert len(norms) > 4
        assert {norm.eps for norm in norms} == {wanted}
