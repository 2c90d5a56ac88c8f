"""Which way imports point, and how long functions are. See docs/design.md."""

from __future__ import annotations

import ast
import re
from graphlib import TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

SRC = Path(__file__).parent.parent / "src" / "electrify"
FILES = sorted(p for p in SRC.rglob("*.py"))
MAX_FUNCTION_LINES = 80

# What stands between two signs does not import each other; everything else imports from what stands
# before it.
DESIGN = (SRC.parent.parent / "docs" / "design.md").read_text(encoding="utf-8")
(LINES,) = re.findall(r"\n\n(    errors <.*?)\n\n", DESIGN, re.DOTALL)
ORDER = [
    {name.strip().replace("/", ".") for name in group.split(",")} for group in LINES.split("<")
]
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}
# What objectives may take from beside them: their parts, and never one another.
SHARED = ((), ("objective",))


def parts(path: Path) -> tuple[str, ...]:
    """src/electrify/data/loader.py -> (data, loader); the package itself -> ()."""
    names = path.relative_to(SRC).with_suffix("").parts
    return names[:-1] if names[-1] == "__init__" else names


def room_of(module: tuple[str, ...]) -> str:
    """Some files of train/ stand above exporting/: a run begins and ends there."""
    return name if (name := ".".join(module[:2])) in RANK else module[0]


def imports(path: Path) -> set[tuple[str, ...]]:
    """Modules of electrify that a file imports, anywhere in it but for types alone: (data, loader),
    ..."""
    package = parts(path) if path.name == "__init__.py" else parts(path)[:-1]
    tree = ast.parse(path.read_text())
    tree.body = [
        n for n in tree.body if not (isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test))
    ]
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            relative = "." * node.level + (node.module or "")
            base = resolve_name(relative, ".".join(("electrify", *package)))
            names += [f"{base}.{a.name}" for a in node.names]
    ours = [tuple(name.split(".")[1:]) for name in names if name.split(".")[0] == "electrify"]
    # The last name may be that of a module, or of something in one.
    return {m if is_module(m) else m[:-1] for m in ours} - {()}


def is_module(names: tuple[str, ...]) -> bool:
    target = SRC.joinpath(*names)
    return target.is_dir() or target.with_suffix(".py").is_file()


def faults(path: Path) -> list[str]:
    """The imports of a file that break a rule of the design."""
    me = parts(path)
    if not me:  # electrify/__init__.py offers the verbs lazily; test_command_line.py watches it
        return []
    bad = []
    for module in sorted(imports(path)):
        mine, room = room_of(me), room_of(module)
        later = room != mine and RANK[room] >= RANK[mine]  # or beside it
        sibling = mine == room == "objectives" and module[1:] not in SHARED
        # They take numbers and modules, never the recipe.
        knows = me[0] in ("model", "corruption", "objectives") and room in ("recipe", "rules")
        if later or sibling or knows:
            bad.append(f"{'.'.join(me)} imports {'.'.join(module)}")
    return bad


def test_imports_point_one_way():
    assert not [fault for path in FILES for fault in faults(path)]


def test_files_import_in_no_circle():
    """Imports inside functions included."""
    files = {parts(path): path for path in FILES}
    TopologicalSorter({name: imports(path) - {name} for name, path in files.items()}).prepare()


def test_functions_are_short():
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for path in FILES:
        found = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, functions)]
        lines = {n.name: n.end_lineno - n.lineno + 1 for n in found if n.end_lineno}
        assert not [n for n, count in lines.items() if count > MAX_FUNCTION_LINES], path
