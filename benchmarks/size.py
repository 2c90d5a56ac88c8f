"""Prints the size of the project:  python benchmarks/size.py

Of the source, by package: code lines, which are lines with a token that is neither comment nor
docstring (those of fields included), and files. Of the tests, by folder: all lines.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(text: str) -> int:
    docstrings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(lines - docstrings)


def table(title: str, folder: Path, *, of_code: bool) -> None:
    """One row for each folder right below `folder`, and the total."""
    lines, files = Counter(), Counter()
    for path in sorted(folder.rglob("*.py")):
        inside = path.relative_to(folder).parts
        name = f"{inside[0]}/" if len(inside) > 1 else "(top)"
        text = path.read_text(encoding="utf-8")
        lines[name] += code_lines(text) if of_code else len(text.splitlines())
        files[name] += 1
    lines["total"], files["total"] = lines.total(), files.total()
    print(f"{title:24}{'lines':>8}{'files':>8}")
    for name in lines:
        print(f"{name:24}{lines[name]:8,}{files[name]:8,}")


if __name__ == "__main__":
    table("tests (all lines)", ROOT / "tests", of_code=False)
    print()
    table("source (code lines)", ROOT / "src" / "electrify", of_code=True)
