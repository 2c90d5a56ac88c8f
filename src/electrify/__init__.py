"""electrify: pre-train text encoders as discriminators, from raw text to a Hugging Face model.

The verbs of the command line as functions with typed results: `prepare`, `pretrain`, `export`,
`finetune`, `predict`, `embed`, `detect`, `doctor`. Each imports its own room
when it is first asked for, so `import electrify` costs nothing.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checkup import doctor
    from .errors import UserError
    from .exporting.folder import export
    from .finetuning.embed import embed, embed_files
    from .finetuning.options import EmbedConfig, FinetuneConfig, FinetuneSettings, PredictConfig
    from .finetuning.predict import predict, predict_files
    from .finetuning.run import finetune
    from .recipe import Recipe, override
    from .recipe import load as load_recipe
    from .scoring.detect import detect
    from .text.options import PrepareConfig, from_preset
    from .text.prepare import prepare
    from .train.run import pretrain

__version__ = "0.1.0.dev0"
# What it needs of the system: signals, locks of files, folders that are replaced in one step.
POSIX = "it runs on Linux and macOS; on Windows, install it in WSL"

_HOMES = {
    "EmbedConfig": "finetuning.options",
    "FinetuneConfig": "finetuning.options",
    "FinetuneSettings": "finetuning.options",
    "PredictConfig": "finetuning.options",
    "PrepareConfig": "text.options",
    "Recipe": "recipe",
    "UserError": "errors",
    "detect": "scoring.detect",
    "doctor": "checkup",
    "embed": "finetuning.embed",
    "embed_files": "finetuning.embed",
    "export": "exporting.folder",
    "finetune": "finetuning.run",
    "from_preset": "text.options",
    "override": "recipe",
    "predict": "finetuning.predict",
    "predict_files": "finetuning.predict",
    "prepare": "text.prepare",
    "pretrain": "train.run",
}
__all__ = [
    "EmbedConfig",
    "FinetuneConfig",
    "FinetuneSettings",
    "PredictConfig",
    "PrepareConfig",
    "Recipe",
    "UserError",
    "detect",
    "doctor",
    "embed",
    "embed_files",
    "export",
    "finetune",
    "from_preset",
    "load_recipe",
    "override",
    "predict",
    "predict_files",
    "prepare",
    "pretrain",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        if os.name != "posix":
            raise ImportError(f"electrify cannot be used here: {POSIX}")
        import_module(".cores", __name__).wait_briefly()  # before the room loads torch
    if name == "load_recipe":
        return import_module(".recipe", __name__).load
    if name not in _HOMES:
        raise AttributeError(f"module 'electrify' has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
