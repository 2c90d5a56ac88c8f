"""Reads a recipe file: YAML -> plain values, without the traps of YAML.

Only plain values are made, whatever tags say. Values that YAML 1.1 reads differently from what
people mean (1:30 as 90, 010 as 8, no as false) stay text, so the reader of the field refuses them
or takes them as written. An alias (`*name`) is refused, because a few of them can stand for
billions of values. A duplicate key is refused, because its first value would be lost silently.
"""

from __future__ import annotations

import copy
import re
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from ..errors import UserError
from ..oldfiles.reading import must_be_regular, opened, unreadable
from .schema import brief

MAX_BYTES = 1 << 20
"""The largest recipe, in bytes; the longest one that we ship has two thousand."""


# Impossible dates, endless numbers and thousands of brackets raise errors other than the library's.
_BAD_YAML = (
    yaml.YAMLError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,
)


class _Loader(yaml.SafeLoader):
    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        # The library raises these for a tag on a value of another kind.
        except (LookupError, TypeError, AttributeError) as e:
            what = brief(node.value) if isinstance(node, yaml.ScalarNode) else "a list or a mapping"
            raise yaml.MarkedYAMLError(
                None,
                None,
                f"{what} is not of the kind !!{node.tag.rpartition(':')[2][:40]}",
                node.start_mark,
            ) from e

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.MarkedYAMLError(
                None,
                None,
                "aliases (*) are not allowed in recipes, write the value out",
                event.start_mark,
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode):
                if key.tag == "tag:yaml.org,2002:merge":
                    raise yaml.MarkedYAMLError(
                        None,
                        None,
                        "merge keys (<<) are not allowed in recipes, write the values out",
                        key.start_mark,
                    )
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        None, None, f"the key {brief(key.value)} occurs twice", key.start_mark
                    )
                seen.add(key.value)
        mapping = super().construct_mapping(node, deep=deep)
        if len(mapping) < len(node.value):
            raise yaml.MarkedYAMLError(
                None,
                None,
                "a key occurs twice, written in two ways (1 and 1.0 are one key)",
                node.start_mark,
            )
        return mapping


def _as_written(node: yaml.ScalarNode) -> bool:
    """Whether a value is to stay text: a number in base 60, one with a leading zero (base 8), or a
    Boolean that is not spelt true or false."""
    text = str(node.value).lower()
    if node.tag.endswith(":bool"):
        return text not in ("true", "false")
    return ":" in text or re.match(r"[-+]?0[0-7_]", text) is not None


def _scalar(loader: _Loader, node: yaml.ScalarNode) -> Any:
    loader.construct_scalar(node)  # raises for a list or a mapping
    if _as_written(node):
        return node.value
    return getattr(yaml.SafeLoader, f"construct_yaml_{node.tag.rpartition(':')[2]}")(loader, node)


for _kind in ("int", "float", "bool"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _scalar)


def read_recipe(path: Path, *, within: Path | None = None) -> str:
    """The text of a recipe file. within: the folder in which it must be. Raises UserError if it is
    not a recipe file."""
    try:
        if within is not None:
            must_be_regular(path, within=within)
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise UserError(
                f"the recipe {path} cannot be read: it is a pipe or a device, not a file"
            )
        with opened(path) as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as e:
        fact = f"the recipe {path} cannot be read: {e.strerror}"
        raise UserError(fact, unreadable(path, e).advice) from e
    if len(raw) > MAX_BYTES:
        raise UserError(
            f"the recipe {path} is larger than {MAX_BYTES >> 20} MB, so it is not a recipe"
        )
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as e:
        raise UserError(f"the recipe {path} is not UTF-8 text (byte {e.start})") from e


ROWS = {"objectives", "sizes", "published", "costs"}
"""Files of recipe.py, which takes the place of this package."""


def recipe_names() -> list[str]:
    return sorted(
        file.name.removesuffix(".yaml")
        for file in _shipped_folder().iterdir()
        if file.name.endswith(".yaml") and file.name.removesuffix(".yaml") not in ROWS
    )


def shipped_values(name: str) -> dict[str, Any]:
    """The values that the shipped recipe of this name states, in a copy that may be changed."""
    return copy.deepcopy(_shipped(name))


@cache
def _shipped(name: str) -> dict[str, Any]:
    text = (_shipped_folder() / f"{name}.yaml").read_text(encoding="utf-8")
    return plain_values(text, f"recipe {name}")


def _shipped_folder() -> Traversable:
    return resources.files("electrify") / "recipes"


def plain_values(text: str, where: str) -> Any:
    """The YAML text as values of plain types. Raises UserError naming `where` it comes from."""
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as e:
        line = f" (line {e.problem_mark.line + 1})" if e.problem_mark else ""
        raise UserError(
            f"{where} is not valid YAML: {' '.join(str(e.problem or e).split())[:200]}{line}"
        ) from e
    except _BAD_YAML as e:
        raise UserError(f"{where} is not valid YAML: {' '.join(str(e).split())[:200]}") from e
