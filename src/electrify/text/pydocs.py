"""The embedded corpus `pydocs`: docstrings and documentation topics of the Python installation and
of its installed packages.

Source files are parsed, never imported: importing packages runs code, and some of them cannot be
imported at all. The order is that of sorted paths, so it is the same on every run. The text comes
from the installed packages, so it differs between installations.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import inspect
import json
import sysconfig
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from ..files import written
from ..progress import Progress
from .workers import Processes, ordered

STANDARD_LIBRARY = "python"
# Shorter docstrings ("Return self.", "See base class.") say nothing; tests and vendored copies are
# repetitive.
MIN_CHARACTERS = 80
_LEFT_OUT = {"test", "tests", "testing", "idle_test", "lib2to3", "_vendor", "__pycache__"}
_LEFT_OUT |= {"site-packages", "dist-packages", "electrify"}
_MAX_SOURCE = 1 << 22
_FILES_A_TASK = 64


def write(path: Path, *, key: str, workers: int | None = None) -> None:
    """Writes the corpus as JSONL, with the text under `key`, and `package`: the whole file or none
    of it."""
    title = "reading the documentation of the installed packages"
    bar = Progress(None, title=title, unit="documents")
    with written(path) as part, part.open("wb") as f, bar:
        for package, text in documents(workers=workers):
            f.write(json.dumps({key: text, "package": package}).encode() + b"\n")
            bar.advance()


def documents(*, workers: int | None = None) -> Iterator[tuple[str, str]]:
    """Pairs (package, text): first the topics of `help()`, then every docstring. The standard
    library's package is called "python".

    workers: number of processes that parse [default: the number of cores] (about 25 s of one core
    if torch, transformers and scipy are installed). The order does not depend on them.
    """
    with suppress(ImportError):  # missing in some distributions
        from pydoc_data.topics import topics

        yield from ((STANDARD_LIBRARY, topics[name].strip()) for name in sorted(topics))
    files = source_files()
    batches = [files[i : i + _FILES_A_TASK] for i in range(0, len(files), _FILES_A_TASK)]
    with Processes(workers, start) as pool:
        yield from chain.from_iterable(ordered(pool, batches))


def start() -> Callable[[list[tuple[str, Path]]], list[tuple[str, str]]]:
    """Returns the function that a worker process calls with a task, see workers.py."""
    # A syntax tree stays alive until it is dropped as a whole, so looking for garbage cycles in it
    # only costs time (a fifth).
    gc.disable()
    return parse


def parse(files: list[tuple[str, Path]]) -> list[tuple[str, str]]:
    """Pairs (package, text) for every docstring in some source files."""
    return [(package, text) for package, path in files for text in docstrings(path)]


def identity() -> str:
    """A hash of the names and sizes of all source files. It changes when packages are installed or
    removed."""
    rows = (f"{p}\0{path.name}\0{path.stat().st_size}\n" for p, path in source_files())
    return hashlib.sha256("".join(rows).encode("utf-8", "surrogateescape")).hexdigest()


def source_files() -> list[tuple[str, Path]]:
    """Pairs (package, file) for every Python source file of the standard library and of the
    installed packages, sorted."""
    library, installed = (
        {Path(sysconfig.get_path(name)).resolve() for name in names}
        for names in (("stdlib", "platstdlib"), ("purelib", "platlib"))
    )
    found: dict[Path, str] = {}
    for root in (*sorted(library), *sorted(installed - library)):
        for path in root.rglob("*.py"):
            inside = path.relative_to(root).parts
            if _LEFT_OUT.isdisjoint(inside) and path.is_file():
                own = inside[0].removesuffix(".py")
                found.setdefault(path, STANDARD_LIBRARY if root in library else own)
    return sorted((package, path) for path, package in found.items())


def docstrings(path: Path) -> list[str]:
    """The docstrings of a source file in their order, without indentation. A file that is not
    Python 3 has none."""
    try:
        if path.stat().st_size > _MAX_SOURCE:
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError, MemoryError):
        return []
    # A docstring may contain half a surrogate pair, which is not valid text.
    return [
        inspect.cleandoc(text).encode("utf-8", "replace").decode().replace("\0", "").strip()
        for text in _strings(tree)
        if len(text) >= MIN_CHARACTERS
    ]


def _strings(tree: ast.AST) -> Iterator[str]:
    """The docstrings as they are written. Definitions occur only in bodies, so expressions, which
    are most of a tree, are not visited. Not recursive: each `elif` is a level of its own."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node, clean=False) or ""
        for name in ("handlers", "finalbody", "orelse", "body"):
            waiting += reversed(getattr(node, name, ()))
