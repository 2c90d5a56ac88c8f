"""How many tokens a model of the library reads at once."""

from __future__ import annotations

from typing import Any

UNLIMITED = 10**6


def positions_of(model: Any) -> int:
    """The most tokens of a sequence, special ones included; UNLIMITED where positions are relative.

    Models that follow RoBERTa count from the padding token's id + 1, so the first rows of their
    table are not positions; others begin later in their table of position ids.
    """
    modules = dict(model.named_modules())
    for name, module in modules.items():
        if name.endswith("position_embeddings") and hasattr(module, "weight"):
            padding = getattr(module, "padding_idx", None)
            rows = module.weight.shape[0] - (0 if padding is None else padding + 1)
            ids = getattr(modules[name.rpartition(".")[0]], "position_ids", None)
            return rows if ids is None else min(rows, ids.shape[-1])
    return _said(model) if getattr(model.config, "position_biased_input", True) else UNLIMITED


def made_for(model: Any) -> int:
    """The most tokens of a sequence that the model was made for. One with relative positions
    (DeBERTa) computes longer ones, too, with distances that no training showed it."""
    return min(positions_of(model), _said(model))


def _said(model: Any) -> int:
    said = getattr(model.config, "max_position_embeddings", None) or UNLIMITED
    return said if said > 0 else UNLIMITED  # XLNet's are relative: its config says -1
