"""The options of a preset under those given, as `electrify prepare --preset` makes them."""

from __future__ import annotations

from typing import Any

from electrify.text.options import PrepareConfig, defaults_of


def from_preset(name: str, **given: Any) -> PrepareConfig:
    return PrepareConfig(**defaults_of(name, given), **given)
