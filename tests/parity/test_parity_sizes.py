"""Parameter counts of the shipped recipes: exactly transformers' for the same configuration, and
within 4 % of the published sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from torch import nn

import electrify
from electrify.architectures import architecture_named
from electrify.architectures.exported import ExportedModel
from electrify.build import generator_shape, kept_shape
from electrify.config.pretrain import PretrainConfig, parse
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


def on_meta(shape: Shape, *, is_lm: bool, name: str = "electra") -> ExportedModel:
    made = architecture_named(name)
    with torch.device("meta"):
        none = {"dropout": 0.0, "attention_dropout": 0.0}
        encoder = made.encoder(shape, made.embeddings(shape, dropout=0.0), **none)
        words = encoder.embeddings.words
        head = made.lm_head(shape, words) if is_lm else made.binary_head(shape)
        return ExportedModel(encoder, head, made)


def shapes(config: PretrainConfig) -> dict[str, tuple[Shape, bool]]:
    rtd = config.objective.objective == "rtd"
    kept = {"discriminator": (kept_shape(config.model, VOCABULARY), not rtd)}
    return kept | ({"generator": (generator_shape(config.model, VOCABULARY), True)} if rtd else {})


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_as_many_parameters_as_transformers(path):
    read = recipe(path)
    for shape, is_lm in shapes(read).values():
        half = on_meta(shape, is_lm=is_lm, name=read.model.architecture)
        config = half.architecture.hf_config(
            shape,
            half.head.kind,
            special=SpecialIds(0, 1, 2, 3, 4),
            dropout=0.1,
            attention_dropout=0.1,
        )
        with torch.device("meta"):
            theirs: nn.Module = getattr(transformers, half.table().name)(config)
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


def test_modernbert_base_is_the_published_shape():
    """2412.13663, section 2.1; the library's own defaults are that shape."""
    config = recipe(next(p for p in RECIPES if p.stem == "bert-modernbert-base"))
    shape = kept_shape(config.model, 50_368)
    half = on_meta(shape, is_lm=True, name="modernbert")
    with torch.device("meta"):
        published = transformers.ModernBertForMaskedLM(transformers.ModernBertConfig())
    want = {name: tuple(p.shape) for name, p in published.named_parameters()}
    rows = half.table().rows
    have = {row.theirs[0]: tuple(half.parameters()[row.ours].shape) for row in rows}
    assert have == want
    assert round(sum(p.numel() for p in half.parameters().values()) / 1e6) == 150


@pytest.mark.parametrize(("size", "millions"), [("small", 141.3), ("base", 183.8)])
def test_deberta_has_the_published_shapes(size: str, millions: float) -> None:
    """2111.09543: backbones of 44 and 86 million, and a table of 128,100 words of 768 numbers; our
    counts are those of the published encoders."""
    config = recipe(next(p for p in RECIPES if p.stem == f"bert-deberta-{size}"))
    shape = kept_shape(config.model, 128_100)
    half = on_meta(shape, is_lm=False, name="deberta")
    table = 128_100 * 768
    encoder = sum(p.numel() for n, p in half.parameters().items() if n.startswith("encoder."))
    assert round(encoder / 1e6, 1) == millions
    backbone = {"small": 44e6, "base": 86e6}[size]
    assert abs((encoder - table) / backbone - 1) < 0.04
