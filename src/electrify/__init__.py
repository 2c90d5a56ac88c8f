"""electrify: pre-train text encoders as discriminators, from raw text to a Hugging Face model.

The verbs of the command line as functions with typed results: `prepare`, `pretrain`, `export_run`,
`finetune`, `predict`, `embed`, `detect`, `doctor`. Each imports its own room
when it is first asked for, so `import electrify` costs nothing.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checkup import doctor
    from .config.embed import EmbedConfig
    from .config.finetune import FinetuneConfig
    from .config.predict import PredictConfig
    from .config.prepare import PrepareConfig
    from .config.presets import from_preset
    from .config.pretrain import PretrainConfig, load_recipe, override
    from .downstream.finetune import finetune
    from .errors import UserError
    from .export.hf import export as export_run
    from .inference.embed import embed, embed_files
    from .inference.predict import predict, predict_files
    from .scoring.detect import detect
    from .text.prepare import prepare
    from .train.run import pretrain

__version__ = "0.1.0.dev0"
# What it needs of the system: signals, locks of files, folders that are replaced in one step.
POSIX = "it runs on Linux and macOS; on Windows, install it in WSL"

_HOMES = {
    "prepare": "text.prepare",
    "pretrain": "train.run",
    "finetune": "downstream.finetune",
    "predict": "inference.predict",
    "predict_files": "inference.predict",
    "embed": "inference.embed",
    "embed_files": "inference.embed",
    "detect": "scoring.detect",
    "doctor": "checkup",
    "UserError": "errors",
    "EmbedConfig": "config.embed",
    "PredictConfig": "config.predict",
    "PrepareConfig": "config.prepare",
    "from_preset": "config.presets",
    "PretrainConfig": "config.pretrain",
    "FinetuneConfig": "config.finetune",
    "load_recipe": "config.pretrain",
    "override": "config.pretrain",
}
__all__ = [
    "EmbedConfig",
    "FinetuneConfig",
    "PredictConfig",
    "PrepareConfig",
    "PretrainConfig",
    "UserError",
    "detect",
    "doctor",
    "embed",
    "embed_files",
    "export_run",
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
    if name == "export_run":  # `electrify.export` is the room itself
        return import_module(".export.hf", __name__).export
    if name not in _HOMES:
        raise AttributeError(f"module 'electrify' has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
