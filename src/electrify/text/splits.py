"""The two splits of a corpus. They have their own module so that worker processes need not load
torch, as shards.py does."""

from __future__ import annotations

from typing import Literal, get_args

Split = Literal["train", "valid"]
SPLITS: tuple[Split, ...] = get_args(Split)
