"""Prints the oldest version of each library that pyproject.toml allows, as pins for pip. Those of
the tests and of the pages, and Ray, are left out."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
needed = [*project["dependencies"]]
for name in extras.keys() - {"all", "dev", "docs", "examples", "ray"}:
    needed += extras[name]
for requirement in sorted(needed):
    found = re.match(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", requirement)
    if found:
        print(f"{found[1]}=={found[2]}")
