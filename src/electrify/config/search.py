"""The grid of a hyper-parameter search: `name=value,value;name=...`."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from ..errors import UserError, nearest
from .finetune_settings import FinetuneSettings
from .schema import convert, field_types

AUTO_GRID = "learning_rate=1e-4,3e-4,1e-3,3e-3;num_train_epochs=3,10"


def search_grid(text: str, settings: FinetuneSettings) -> list[tuple[str, FinetuneSettings]]:
    """Every combination of `name=value,value;name=...` in the order written, with a name each.
    Raises UserError."""
    axes: list[tuple[str, list[Any]]] = []
    for part in (AUTO_GRID if text.strip() == "auto" else text).split(";"):
        name, equals, values = part.strip().partition("=")
        name = name.strip().replace("-", "_")
        kinds = field_types(FinetuneSettings)
        if not equals or not values.strip():
            raise UserError(f"--hyperparameter-search is NAME=VALUE,VALUE;NAME=..., not {text!r}")
        if name not in kinds or name in ("device", "eval_steps"):
            raise UserError(
                f"--hyperparameter-search: no hyper-parameter {name!r}{nearest(name, kinds)}"
            )
        if name in (known for known, _ in axes):
            raise UserError(f"--hyperparameter-search names {name} twice")
        if getattr(settings, name) != getattr(FinetuneSettings(), name):
            raise UserError(
                f"--{name.replace('_', '-')} is given and searched; leave one of the two out"
            )
        axes.append(
            (
                name,
                list(
                    dict.fromkeys(convert(v.strip(), kinds[name], name) for v in values.split(","))
                ),
            )
        )
    points = [
        dict(zip((name for name, _ in axes), values, strict=True))
        for values in itertools.product(*(values for _, values in axes))
    ]
    return [
        (",".join(f"{k}={v}" for k, v in point.items()), replace(settings, **point))
        for point in points
    ]
