"""run.json: what a run records about itself, for this package and other programs to read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..architectures import architecture_named
from ..config.architectures import ARCHITECTURES
from ..config.own_rows import recorded, to_load, was_a_row_of
from ..console import brief
from ..errors import UserError
from ..oldfiles.reading import FileError, MissingError, read_object
from ..oldfiles.run_folder import FACTS
from ..oldfiles.schema import FileName, Positive, SchemaError, Sha256, check
from ..oldfiles.seals import unsealed
from ..tokens import SpecialIds

RESTORE = "without it the vocabulary is unknown: restore it from a copy"


@dataclass(frozen=True)
class CorpusFacts:
    """What the manifest of the corpus says."""

    counts: dict[str, float] = field(default_factory=dict)
    sources: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Facts:
    """The fields of run.json that this package reads. Others may be there."""

    vocab_size: Positive
    special_ids: SpecialIds
    machine: dict[str, Any] = field(default_factory=dict)
    architecture: str = "electra"
    """Its name. The first versions knew only one architecture."""
    shapes: dict[str, Any] = field(default_factory=dict)
    """The shape of each network."""
    corpus: CorpusFacts = field(default_factory=CorpusFacts)
    data: str | None = None
    tokenizer_sha256: str | None = None
    tokenizer_files: dict[FileName, Sha256] | None = None
    """Hash of every file in RUN/tokenizer; None in runs that were begun before these were written
    down."""
    recipe: dict[str, Any] = field(default_factory=dict)
    """See decisive.py; empty in runs that were begun before it was written down."""
    parameters: int | None = None
    unigram_entropy: float | None = None
    own_rows: dict[str, str] = field(default_factory=dict)
    """The modules outside this package whose rows its recipe names, by the choices that do."""


def read_facts(run: Path) -> tuple[Facts, dict[str, Any]]:
    """run.json, as checked fields and as the raw JSON object. Raises UserError if it is missing,
    damaged or changed, or says something that no run writes."""
    path = run / FACTS
    facts, raw = _checked(path, within=run)
    _must_have_a_vocabulary(facts, path)
    facts = replace(facts, shapes=_shapes(facts, path))
    if facts.tokenizer_files is not None and "tokenizer.json" not in facts.tokenizer_files:
        raise _damaged(path, "its tokenizer_files do not name tokenizer.json")
    return facts, raw


def _damaged(path: Path, what: str) -> UserError:
    return UserError(f"{path} is damaged: {what}", RESTORE)


def _checked(path: Path, *, within: Path) -> tuple[Facts, dict[str, Any]]:
    """The file, after its seal and the types of its fields have been checked."""
    try:
        raw = read_object(path, within=within)
        raw = unsealed(raw, path, must="tokenizer_files" in raw, advice=RESTORE)
        return check(Facts, raw, str(path), more=True), raw
    except MissingError:
        raise
    except FileError as e:
        raise e if e.advice else _damaged(path, f"it {e.why}") from e
    except SchemaError as e:
        raise _damaged(path, e.what) from e


def _must_have_a_vocabulary(facts: Facts, path: Path) -> None:
    """Raises UserError if the special tokens are not those of a tokenizer."""
    special = facts.special_ids
    roles = tuple(getattr(special, role) for role in ("pad", "cls", "sep", "mask"))
    size = facts.vocab_size
    if not all(0 <= i < size for i in (*roles, *special.others)) or not -1 <= special.unk < size:
        raise _damaged(path, f"its special_ids are not of a vocabulary of {size:,}")
    if special.leave_nothing_of(size) or len(set(roles)) < len(roles):
        raise _damaged(path, "its special_ids are those of no tokenizer")


def _shapes(facts: Facts, path: Path) -> dict[str, Any]:
    """The shapes of the networks, as objects of their architecture."""
    if facts.architecture not in ARCHITECTURES:
        module = recorded(facts.own_rows).get("architecture")
        said = f", which {was_a_row_of(module)}" if module else ""
        raise UserError(
            f"{path} names an architecture that this version does not know: "
            f"{brief(facts.architecture)}{said}",
            to_load(module),
        )
    kind = architecture_named(facts.architecture).shape_type
    try:
        shapes = check(dict[str, kind], facts.shapes, str(path))  # type: ignore[valid-type]
    except SchemaError as e:
        raise _damaged(path, f"shapes.{e.what}") from e
    for name, shape in shapes.items():
        if shape.hidden_size % shape.num_attention_heads:
            raise _damaged(path, f"the width of the {name}'s shape is not a multiple of its heads")
    return shapes
