"""electrify: pre-train text encoders as discriminators, from raw text to a Hugging Face model.

The verbs of the command line as functions with typed results: `prepare`, `pretrain`, `export_run`,
`finetune`, `detect`, `diagnose` (the verb `doctor`). Each imports its own room when it is first
asked for, so `import electrify` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config.doctor import DoctorConfig
    from .config.finetune import FinetuneConfig
    from .config.prepare import PrepareConfig
    from .config.pretrain import PretrainConfig, load_recipe, override
    from .doctor.report import diagnose
    from .downstream.finetune import finetune
    from .errors import UserError
    from .export.hf import export as export_run
    from .pretraining import pretrain
    from .scoring.detect import detect
    from .text.prepare import prepare

__version__ = "0.1.0.dev0"

_HOMES = {
    "prepare": "text.prepare",
    "pretrain": "pretraining",
    "finetune": "downstream.finetune",
    "detect": "scoring.detect",
    "diagnose": "doctor.report",
    "UserError": "errors",
    "DoctorConfig": "config.doctor",
    "PrepareConfig": "config.prepare",
    "PretrainConfig": "config.pretrain",
    "FinetuneConfig": "config.finetune",
    "load_recipe": "config.pretrain",
    "override": "config.pretrain",
}
__all__ = [
    "DoctorConfig",
    "FinetuneConfig",
    "PrepareConfig",
    "PretrainConfig",
    "UserError",
    "detect",
    "diagnose",
    "export_run",
    "finetune",
    "load_recipe",
    "override",
    "prepare",
    "pretrain",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        import_module(".cores", __name__).wait_briefly()  # before the room loads torch
    if name == "export_run":  # `electrify.export` is the room itself
        return import_module(".export.hf", __name__).export
    if name not in _HOMES:
        raise AttributeError(f"module 'electrify' has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
