"""The inputs of `electrify prepare` that hold text."""

from __future__ import annotations

from pathlib import Path

from ..config.prepare import PrepareConfig
from ..errors import UserError
from ..files.inside import must_not_be_in_a_checkpoint
from ..progress import say
from . import records
from .endings import IN_FOLDERS, is_json
from .source import Source
from .sources import resolve
from .streams import must_lead_somewhere
from .walk import LeftOut, sentence


def choose_sources(options: PrepareConfig) -> list[Source]:
    """The inputs that hold text. Reports what is left out of a folder. Raises UserError if nothing
    remains."""
    must_lead_somewhere(Path(options.output_dir))
    must_not_be_in_a_checkpoint(Path(options.output_dir))
    sources, left_out = resolve(
        options.inputs,
        output=Path(options.output_dir),
        further=IN_FOLDERS.get(options.document_boundary, frozenset()),
    )
    chosen = []
    for source in sources:
        # A table or a .json next to the texts of a folder usually holds metadata about them.
        kind = "tables" if source.format in ("csv", "tsv") else "JSON files"
        if (
            source.in_folder
            and (kind == "tables" or is_json(source.path))
            and not records.has_column(source, options)
        ):
            left_out.append(
                LeftOut(source.name, f"{kind} without a column {options.text_column!r}")
            )
        else:
            chosen.append(source)
    if left_out:
        say(sentence(left_out))
    if not chosen:
        raise UserError(
            f"no file of {', '.join(options.inputs)} has a column {options.text_column!r}"
        )
    return chosen


def shown(sources: list[Source]) -> str:
    """A few of the names, for a message."""
    names = [s.name for s in sources]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
