"""Whether the source of rows of one's own is what it was."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import warnings
from contextlib import suppress
from typing import Any

from .own_rows import CHOICES
from .pretrain import PretrainConfig
from .rows import is_ours


def own_source(config: PretrainConfig) -> list[str]:
    """Hashes of the modules, other than ours, in which the rows of a recipe have their classes,
    options and functions: of what they say without comments and docstrings, so that a change of
    these is none. What they import is not looked at."""
    modules: set[str] = set()
    for choice in CHOICES:
        row = choice.rows[getattr(getattr(config, choice.section), choice.name)]
        modules.add(row.cls.partition(":")[0])
        modules |= {str(part.__module__) for part in vars(row).values() if callable(part)}
    return [_source_hash(one) for one in sorted(modules) if one != "__main__" and not is_ours(one)]


def _source_hash(module: str) -> str:
    """A hash of its code, or of its text if that cannot be parsed; its name if there is no source
    (compiled, or made by a program)."""
    with suppress(ValueError, ImportError):
        spec = importlib.util.find_spec(module)
        source = getattr(spec and spec.loader, "get_source", lambda _: None)(module)
        if source is not None:
            with suppress(SyntaxError), warnings.catch_warnings(action="ignore"):
                source = json.dumps(_code(ast.parse(source)))
            return hashlib.sha256(source.encode("utf-8", "replace")).hexdigest()
    return module


def _code(part: Any) -> Any:
    """A syntax tree as plain lists, without docstrings and empty fields, which differ between
    versions of Python."""
    if isinstance(part, list):
        return [_code(one) for one in part if not _is_text(one)]
    if not isinstance(part, ast.AST):
        return repr(part)
    fields = ((name, value) for name, value in ast.iter_fields(part) if value not in (None, []))
    return [type(part).__name__, *([name, _code(value)] for name, value in fields)]


def _is_text(statement: Any) -> bool:
    """Whether it is a docstring, of a class, a function or a field."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
