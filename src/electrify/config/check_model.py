"""Whether the networks of a recipe can be built: layers, widths, heads, and the generator's own."""

from __future__ import annotations

import math
from dataclasses import replace

from ..errors import need
from .pretrain import CorruptionConfig, ModelConfig

POSITIVE = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "embedding_size",
    "max_position_embeddings",
)


def check_model(m: ModelConfig, c: CorruptionConfig) -> None:
    for name in POSITIVE:
        need(getattr(m, name) > 0, f"{name} must be positive, not {getattr(m, name)}")
    eps = m.layer_norm_eps
    need(eps is None or 0 < eps < 1, f"layer_norm_eps must lie between 0 and 1, not {eps}")
    need(
        m.init in m.row.inits,
        f"init {m.init} is not known for architecture {m.architecture}: {' or '.join(m.row.inits)}",
    )
    wrong = m.row.check(m, m.options)
    need(wrong is None, str(wrong))
    need(
        m.hidden_size % m.num_attention_heads == 0,
        f"hidden_size {m.hidden_size} is not a multiple of num_attention_heads "
        f"{m.num_attention_heads}",
    )
    need(0 < m.generator_size <= 1, f"generator_size must lie in (0, 1], not {m.generator_size}")
    if c.row.learned:
        check_generator(m)
    else:
        given = [name for name in GENERATOR_ONLY if getattr(m, name) is not None]
        need(not given, f"{', '.join(given)}: corruptor {c.corruptor} has no generator")
    need(
        0 <= m.dropout < 1 and 0 <= m.attention_dropout < 1,
        "dropout and attention_dropout must lie in [0, 1)",
    )
    check_local(m, c)


def check_local(m: ModelConfig, c: CorruptionConfig) -> None:
    """Whether heads and embeddings are wide enough for init local."""
    need(
        0 < m.local_amplitude < math.inf,
        f"local_amplitude must be positive, not {m.local_amplitude}",
    )
    shapes = [{"hidden_size": m.hidden_size, "num_attention_heads": m.num_attention_heads}]
    shapes += [m.generator_numbers()] if c.row.learned else []
    narrow = min(m.embedding_size, *(s["hidden_size"] // s["num_attention_heads"] for s in shapes))
    need(
        m.init != "local" or narrow >= 4,
        f"init local needs heads and embeddings at least 4 wide, not {narrow}",
        f"take init {m.row.inits[0]}",
    )


def check_generator(m: ModelConfig) -> None:
    own = m.generator_numbers()
    for name, number in own.items():
        need(number > 0, f"generator_{name} must be positive, not {number}")
    need(
        m.row.narrow_embeddings or m.tie == "none" or own["hidden_size"] == m.hidden_size,
        f"architecture {m.architecture} has embeddings as wide as its blocks, so tie {m.tie} needs "
        f"a generator as wide as the encoder, not {own['hidden_size']} for {m.hidden_size}: take "
        "generator_size 1 and fewer generator_num_hidden_layers, or tie none",
    )
    wrong = m.row.check(replace(m, **own), m.options)
    need(wrong is None, f"the generator: {wrong}")
    heads = own["num_attention_heads"]
    width = own["hidden_size"]
    need(
        width % heads == 0,
        f"the generator gets {heads} attention heads over {width}",
        "choose a generator_size, or generator_* numbers, that divide",
    )
    odd = [
        f"{name} {own[name]} for {getattr(m, name)}"
        for name in own
        if own[name] != getattr(m, name)
    ]
    need(
        m.tie != "all" or not odd,
        (
            "tie all shares every encoder weight and needs generator_size 1: the generator has "
            f"{', '.join(odd)}"
        ),
    )

    check_sharing(m, odd)


def check_sharing(m: ModelConfig, odd: list[str]) -> None:
    """Whether what generator and encoder share fits both. odd: the generator's sizes that differ,
    as text."""
    dropout = m.generator_dropout
    need(
        dropout is None or 0 <= dropout < 1,
        f"generator_dropout must lie in [0, 1), not {dropout}",
    )
    need(
        dropout is None or m.tie in ("none", "tokens", "gdes"),
        f"generator_dropout: with tie {m.tie} both networks read the same embedding layer, and its "
        "dropout",
        "take tie tokens, none or gdes",
    )
    need(
        (m.tie == "lower") == (m.tie_layers is not None),
        "tie lower and tie_layers go together: say how many of the lowest blocks are shared",
    )
    if m.tie_layers is None:
        return
    deeper = [one for one in odd if not one.startswith("num_hidden_layers")]
    need(not deeper, f"tie lower needs equal widths: the generator has {', '.join(deeper)}")
    most = min(m.num_hidden_layers, m.generator_numbers()["num_hidden_layers"])
    need(
        0 < m.tie_layers <= most,
        f"tie_layers must lie between 1 and {most}, the blocks that both have, not {m.tie_layers}",
    )


GENERATOR_ONLY = (
    "generator_num_hidden_layers",
    "generator_hidden_size",
    "generator_num_attention_heads",
    "generator_intermediate_size",
    "generator_dropout",
    "tie_layers",
)
