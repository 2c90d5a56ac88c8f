"""Whether the rows of objectives, corruptors and architectures go together: the names of their own
options are flags without a prefix, beside the fields of every section. A row may be one's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ..errors import UserError
from . import own
from .schema import field_types


def rows_must_fit(sections: Mapping[str, type], *, beside: Collection[str] = ()) -> None:
    """Raises UserError if an option of a row has no default, or a name that means something else.
    beside: further names that are taken on the command line."""
    fixed = {
        name: f"a field of the section {section}"
        for section, cls in sections.items()
        for name in field_types(cls)
    }
    fixed |= dict.fromkeys(beside, "a flag or argument of `electrify pretrain`")
    seen: dict[str, tuple[type, str, Any]] = {}
    for cls, owner, options in _rows(sections):
        for name, kind in field_types(options).items():
            first = seen.setdefault(name, (cls, owner, kind))
            taken = fixed.get(name) or (None if first[0] is cls else f"an option of {first[1]}")
            if taken:
                raise UserError(
                    f"{owner}: its option {name} has the name of {taken}; give it another name"
                )
            if kind != first[2]:
                raise UserError(
                    f"{owner}: its option {name} is of another type than that of {first[1]}; give "
                    "it the same type or another name"
                )


def _rows(sections: Mapping[str, type]) -> Iterator[tuple[type, str, type]]:
    """The section, the name and the options of each row."""
    choosing: list[Any] = [cls for cls in sections.values() if own.has_rows(cls)]
    for cls in choosing:
        for name, row in cls.ROWS().items():
            owner = f"{cls.CHOICE} {name}"
            _must_be_options(row.options, owner)
            for f in dataclasses.fields(row.options):
                if f.default is f.default_factory is dataclasses.MISSING:
                    raise UserError(f"{owner}: its option {f.name} has no default; give it one")
            yield cls, owner, row.options


def _must_be_options(options: Any, owner: str) -> None:
    """Raises UserError unless they are a frozen dataclass, which a recipe can hash and change."""
    settings = getattr(options, "__dataclass_params__", None)
    if not (isinstance(options, type) and settings is not None and settings.frozen):
        raise UserError(
            f"{owner}: the options of its row are not a frozen dataclass; give it a class with "
            "@dataclass(frozen=True, kw_only=True), of electrify.config.given.Checked"
        )
