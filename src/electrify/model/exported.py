"""A network that can be exported: an encoder with the head that it was trained with."""

from __future__ import annotations

from dataclasses import dataclass

from .encoder import Encoder
from .heads import Head


@dataclass(frozen=True)
class ExportedModel:
    """What a run leaves as a Hugging Face folder."""

    encoder: Encoder
    head: Head
