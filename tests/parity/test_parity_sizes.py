"""Parameter counts of the shipped recipes: exactly transformers' for the same configuration, and
within 4 % of the published sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import ElectraForMaskedLM, ElectraForPreTraining

import electrify
from batches import encoder_of
from electrify.architectures import architecture_named
from electrify.architectures.exported import ExportedModel
from electrify.build import generator_shape, kept_shape
from electrify.config.pretrain import PretrainConfig, parse
from electrify.model.heads import BinaryHead, LMHead
from electrify.model.shape import Shape
from electrify.special import SpecialIds

RECIPES = sorted((Path(electrify.__file__).parent / "recipes").glob("*.yaml"))
PUBLISHED = {
    "small": 14e6,
    "base": 110e6,
    "large": 335e6,
}  # 2003.10555, Table 1; embeddings included
VOCABULARY = 30_522


def recipe(path: Path) -> PretrainConfig:
    return parse(path.read_text(encoding="utf-8"), path.name)


def on_meta(shape: Shape, *, is_lm: bool) -> ExportedModel:
    with torch.device("meta"):
        encoder = encoder_of(shape, dropout=0.0, attention_dropout=0.0)
        return ExportedModel(
            encoder,
            LMHead(shape, encoder.embeddings.words) if is_lm else BinaryHead(shape),
            architecture_named("electra"),
        )


def shapes(config: PretrainConfig) -> dict[str, tuple[Shape, bool]]:
    rtd = config.objective.objective == "rtd"
    kept = {"discriminator": (kept_shape(config.model, VOCABULARY), not rtd)}
    return kept | ({"generator": (generator_shape(config.model, VOCABULARY), True)} if rtd else {})


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_as_many_parameters_as_transformers(path):
    for shape, is_lm in shapes(recipe(path)).values():
        half = on_meta(shape, is_lm=is_lm)
        config = architecture_named("electra").hf_config(
            shape,
            half.head.kind,
            special=SpecialIds(0, 1, 2, 3, 4),
            dropout=0.1,
            attention_dropout=0.1,
        )
        with torch.device("meta"):
            theirs: nn.Module = (
                ElectraForMaskedLM(config) if is_lm else ElectraForPreTraining(config)
            )
        assert sum(p.numel() for p in half.parameters().values()) == sum(
            p.numel() for p in theirs.parameters()
        )


@pytest.mark.parametrize("size", PUBLISHED)
def test_the_published_sizes(size):
    for objective in ("electra", "bert"):
        path = next(p for p in RECIPES if p.stem == f"{objective}-{size}")
        shape, _ = shapes(recipe(path))["discriminator"]
        count = sum(p.numel() for p in on_meta(shape, is_lm=False).parameters().values())
        assert abs(count / PUBLISHED[size] - 1) < 0.04
