"""The libraries that score fine-tuning (extra `eval`), imported where they are needed."""

from __future__ import annotations

import importlib
from types import ModuleType

from ..errors import UserError


def need(module: str) -> ModuleType:
    """The module. Raises UserError if its library is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as e:
        raise UserError(
            f"fine-tuning is scored with scikit-learn and scipy, and {module.split('.')[0]} is not "
            "installed: pip install 'electrify[eval]'"
        ) from e
