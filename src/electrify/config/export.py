"""The options of `electrify export`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from .given import Checked
from .networks import KEPT, network_names, part_help
from .schema import OneOf


@dataclass(frozen=True, kw_only=True)
class ExportConfig(Checked):
    """Which network of a run, at which step, in which format, to where."""

    HEADINGS: ClassVar = {"output_dir": "where it goes", "part": "what is exported"}
    output_dir: str
    """the folder to write; new, empty, or an earlier export, which is then replaced"""
    part: Annotated[str, OneOf(network_names, part_help)] = KEPT
    """Which network."""
    format: Literal["hf"] = "hf"
    """hf = a Hugging Face folder: config.json, model.safetensors (float32), tokenizer files,
    README.md"""
    step: int | None = None
    """the checkpoint to export; default: the newest complete one"""
