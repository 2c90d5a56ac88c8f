"""An encoder together with the head with which it is trained."""

from __future__ import annotations

from dataclasses import dataclass

from .encoder import Encoder
from .heads import Head


@dataclass(frozen=True)
class Network:
    encoder: Encoder
    head: Head
