"""The two parts of a corpus. By itself, so that worker processes need not load torch, which
shards.py does."""

from __future__ import annotations

from typing import Literal, get_args

Split = Literal["train", "valid"]
SPLITS: tuple[Split, ...] = get_args(Split)
