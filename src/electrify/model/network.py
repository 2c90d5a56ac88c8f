"""An encoder with the head that it is trained with."""

from __future__ import annotations

from dataclasses import dataclass

from .encoder import Encoder
from .heads import Head


@dataclass(frozen=True)
class Network:
    encoder: Encoder
    head: Head
