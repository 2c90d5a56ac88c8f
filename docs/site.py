"""Gathers the pages of the site in build/docs: README.md as the home page, docs/, research/, and
the reference of commands, recipes and functions, which is generated.

Links between pages are made to fit. What a link names outside of the site stays as text.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import electrify
from electrify import api, cli, recipes

ROOT = Path(__file__).parent.parent
SITE = ROOT / "build" / "docs"
LINK = re.compile(r"(?<!!)\[((?:[^\]`]|`[^`]*`)+)\]\(([^)#\s]+)((?:#[^)\s]*)?)\)")
IMAGE = re.compile(r"(!\[[^\]]*\])\(([^)\s]+)\)")


def places() -> dict[Path, Path]:
    """Each file of the site, and its place in it."""
    found = {ROOT / "README.md": Path("index.md"), ROOT / "SECURITY.md": Path("security.md")}
    found[ROOT / "CHANGELOG.md"] = Path("changes.md")
    found[ROOT / "CONTRIBUTING.md"] = Path("contributing.md")
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.suffix in (".md", ".png"):
            found[path] = path.relative_to(ROOT / "docs")
    for path in sorted((ROOT / "research").rglob("*")):
        if path.suffix in (".md", ".png", ".jsonl", ".csv"):
            found[path] = path.relative_to(ROOT)
    return found


def fitted(text: str, page: Path, files: dict[Path, Path]) -> str:
    """The text of a page with links as they are in the site."""

    def target(name: str) -> str | None:
        to = files.get(Path(os.path.normpath(page.parent / name)))
        return to and os.path.relpath(to, files[page].parent)

    def link(found: re.Match[str]) -> str:
        said, name, anchor = found.groups()
        if "://" in name or name.startswith("mailto:"):
            return found[0]
        to = target(name)
        return f"[{said}]({to}{anchor})" if to else said

    def image(found: re.Match[str]) -> str:
        return f"{found[1]}({target(found[2]) or found[2]})"

    return IMAGE.sub(image, LINK.sub(link, text))


def commands() -> str:
    """The help of every command."""
    os.environ["COLUMNS"] = "100"
    pages = ["# Command line", "`electrify COMMAND --help-all` prints what stands here."]
    for name in cli.COMMANDS:
        pages += [f"## {name}", f"```text\n{cli.help_of(name, ['--help-all'])}\n```"]
    return "\n\n".join(pages) + "\n"


def listing() -> str:
    """All shipped recipes as a table."""
    rows = [{"recipe": name, **row} for name, row in recipes().items()]
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    lines += ["| " + " | ".join(map(str, row.values())) + " |" for row in rows]
    return "# Recipes\n\n`electrify recipes` prints this table.\n\n" + "\n".join(lines) + "\n"


def functions() -> str:
    """The public names, from their docstrings: functions and then classes, in the order of api.py,
    which is that of use. What other modules define comes last."""
    homes = {name: getattr(electrify, name).__module__ for name in electrify.__all__}
    order = [name for name in vars(api) if homes.get(name) == api.__name__]
    order += sorted(homes.keys() - set(order))
    asked = (
        f"::: {homes[name]}.{getattr(electrify, name).__name__}\n"
        f"    options: {{heading: {name}, toc_label: {name}}}"
        for name in sorted(order, key=lambda name: name[0].isupper())
    )
    return "# Python\n\n" + "\n\n".join(asked) + "\n"


def main() -> None:
    shutil.rmtree(SITE, ignore_errors=True)
    files = places()
    for path, place in files.items():
        (SITE / place).parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            (SITE / place).write_text(fitted(path.read_text("utf-8"), path, files), "utf-8")
        else:
            shutil.copy(path, SITE / place)
    for name, page in (("cli", commands), ("recipes", listing), ("python", functions)):
        (SITE / f"{name}.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
