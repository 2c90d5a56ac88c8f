"""electrify: pre-train text encoders as discriminators, from raw text to a Hugging Face model.

The verbs of the command line as functions with typed results: `prepare`, `pretrain`, `export`, `finetune`, `detect`. Each imports its own
room when it is first asked for, so `import electrify` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0.dev0"

_HOMES = {
    "prepare": "text.prepare",
    "pretrain": "pretrain",
    "export": "export.hf",
    "finetune": "downstream.finetune",
    "detect": "scoring.detect",
    "UserError": "errors",
    "PrepareConfig": "config.prepare",
    "PretrainConfig": "config.pretrain",
    "FinetuneConfig": "config.finetune",
    "load_recipe": "config.pretrain",
    "override": "config.pretrain",
}
__all__ = [
    "FinetuneConfig",
    "PrepareConfig",
    "PretrainConfig",
    "UserError",
    "detect",
    "export",
    "finetune",
    "load_recipe",
    "override",
    "prepare",
    "pretrain",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'electrify' has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
