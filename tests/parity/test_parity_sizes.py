"""Parameter counts of the shipped recipes: exactly transformers' for the same configuration, and
within 4 % of the published sizes."""

from typing import Any

import pytest
import torch
import transformers
from torch import nn

from electrify.architectures import architecture_named
from electrify.architectures.architecture import ExportedModel
from electrify.build import discriminator_shape, generator_shape
from electrify.model.embeddings import Shape
from electrify.recipe import Recipe, load, names
from electrify.values import SpecialIds
from published import DEBERTA_V3

# 2003.10555, Table 1; embeddings included
PUBLISHED = {"small": 14e6, "base": 110e6, "large": 335e6}
VOCABULARY = 30_522


def on_meta(shape: Shape, *, is_lm: bool, name: str = "electra") -> ExportedModel:
    made = architecture_named(name)
    with torch.device("meta"):
        none = {"dropout": 0.0, "attention_dropout": 0.0}
        encoder = made.encoder(shape, made.embeddings(shape, dropout=0.0), **none)
        words = encoder.embeddings.words
        head = made.lm_head(shape, words) if is_lm else made.binary_head(shape)
        return ExportedModel(encoder, head, made)


def shapes(config: Recipe) -> dict[str, tuple[Shape, bool]]:
    rtd = config.objective.objective == "rtd"
    kept = {"discriminator": (discriminator_shape(config.model, VOCABULARY), not rtd)}
    return kept | ({"generator": (generator_shape(config.model, VOCABULARY), True)} if rtd else {})


NONE = {"special": SpecialIds(0, 1, 2, 3, 4), "dropout": 0.1, "attention_dropout": 0.1}
NETWORKS = {
    (read.model.architecture, *network)
    for read in map(load, names())
    for network in shapes(read).values()
}


def test_as_many_parameters_as_transformers() -> None:
    """Every network of a shipped recipe."""
    assert len(NETWORKS) > 20
    for name, shape, is_lm in NETWORKS:
        half = on_meta(shape, is_lm=is_lm, name=name)
        config = half.architecture.hf_config(shape, half.head.kind, **NONE)
        with torch.device("meta"):
            theirs: nn.Module = getattr(transformers, half.table().name)(config)
        count = sum(p.numel() for p in half.exported().values())
        assert count == sum(p.numel() for p in theirs.parameters()), (name, shape)


@pytest.mark.parametrize("size", PUBLISHED)
def test_the_published_sizes(size):
    for objective in ("electra", "bert"):
        shape, _ = shapes(load(f"{objective}-{size}"))["discriminator"]
        count = sum(p.numel() for p in on_meta(shape, is_lm=False).parameters().values())
        assert abs(count / PUBLISHED[size] - 1) < 0.04


# The special tokens are the vocabulary's, and the others do not say what is computed.
OTHERWISE = {
    *("pad_token_id", "cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id"),
    *("architectures", "dtype", "torch_dtype", "legacy", "global_rope_theta", "local_rope_theta"),
}


def exported(name: str, vocab_size: int) -> Any:
    """The configuration with which a recipe's encoder is exported."""
    config = load(name)
    dropouts = {name: getattr(config.model, name) for name in ("dropout", "attention_dropout")}
    shape = discriminator_shape(config.model, vocab_size)
    made = architecture_named(config.model.architecture)
    return made.hf_config(shape, "token", **NONE | dropouts)


def differing(ours: Any, published: Any) -> dict[str, Any]:
    """What an exported configuration says otherwise than the published one."""
    have, want = ours.to_dict(), published.to_dict()
    return {k: have[k] for k in have.keys() | want.keys() if have.get(k) != want.get(k)}


@pytest.mark.parametrize("objective", ["bert", "electra", "corrective"])
def test_modernbert_base_has_the_published_configuration(objective: str) -> None:
    """Window, period of global blocks, both bases, epsilon and all else: the long recipes at their
    end entirely; those of base as in the first phase, with the positions of their rows."""
    published = transformers.ModernBertConfig()
    assert (published.local_attention, published.norm_eps) == (128, 1e-5)
    every = {"global_attn_every_n_layers": 3}
    long = differing(exported(f"{objective}-modernbert-long", 50_368), published)
    assert {k: v for k, v in long.items() if k not in OTHERWISE} == every
    assert (long["global_rope_theta"], long["local_rope_theta"]) == (160_000.0, 10_000.0)
    base = differing(exported(f"{objective}-modernbert-base", 50_368), published)
    rope = {"rope_theta": 10_000.0, "rope_type": "default"}
    assert {k: v for k, v in base.items() if k not in OTHERWISE} == every | {
        "max_position_embeddings": 512,
        "rope_parameters": {"full_attention": rope, "sliding_attention": rope},
    }


@pytest.mark.parametrize("objective", ["bert", "electra", "corrective"])
@pytest.mark.parametrize("size", ["small", "base"])
def test_deberta_has_the_published_configuration(objective: str, size: str) -> None:
    """That of microsoft/deberta-v3-small and -base; no limit of distances but the positions."""
    numbers = DEBERTA_V3 | {"num_hidden_layers": {"small": 6, "base": 12}[size]}
    ours = exported(f"{objective}-deberta-{size}", 128_100)
    found = differing(ours, transformers.DebertaV2Config(**numbers))
    assert sorted(found.pop("pos_att_type")) == ["c2p", "p2c"], "in the other order"
    assert {k: v for k, v in found.items() if k not in OTHERWISE} == {}
    assert ours.position_buckets == 256
    assert ours.max_relative_positions < 1
