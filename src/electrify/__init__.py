"""electrify: pre-train text encoders as discriminators, from raw text to a Hugging Face model.

    corpus = electrify.prepare("corpus.txt", output_dir="data", vocab_size=8192)
    run = electrify.pretrain(corpus, output_dir="run", recipe="electra-tiny", max_steps=2000)
    tuned = electrify.finetune(run.discriminator, train_file="train.csv", seeds=3)

Each command is a function of api.py, which is imported when one of its names is first asked for,
so `import electrify` costs nothing.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import *  # noqa: F403

__version__ = "0.1.0.dev0"
# What it needs of the system: signals, locks of files, folders that are replaced in one step.
POSIX = "it runs on Linux (macOS is untested). On Windows, install it in WSL"

__all__ = [  # noqa: F405
    "Comparison",
    "Encoder",
    "FineTuned",
    "Prediction",
    "PreparedCorpus",
    "PretrainedRun",
    "Recipe",
    "Score",
    "UserError",
    "compare",
    "detect",
    "doctor",
    "embed",
    "evaluate",
    "export",
    "finetune",
    "flops",
    "load",
    "load_recipe",
    "override",
    "predict",
    "prepare",
    "pretrain",
    "push",
    "recipes",
    "rerank",
    "score",
    "show_progress",
    "similarity",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        from .names import nearest

        raise AttributeError(
            f"module 'electrify' has no attribute {name!r}{nearest(name, __all__)}"
        )
    if os.name != "posix":
        raise ImportError(f"electrify cannot be used here: {POSIX}")
    import_module(".process", __name__).wait_briefly()  # before a module loads torch
    return getattr(import_module(".api", __name__), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
