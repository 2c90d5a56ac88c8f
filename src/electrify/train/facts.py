"""run.json: what a run says of itself, as its own code and others read it again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..architectures import architecture_named
from ..config.architectures import ARCHITECTURES
from ..console import brief
from ..errors import UserError
from ..files.reading import FileError, MissingError, read_object
from ..files.schema import FileName, Positive, SchemaError, Sha256, check
from ..files.seals import unsealed
from ..text.manifest import SourceRow
from ..tokens import SpecialIds

FACTS = "run.json"
RESTORE = "without it the vocabulary is unknown: restore it from a copy"


@dataclass(frozen=True)
class CorpusFacts:
    """What the manifest of the corpus said."""

    counts: dict[str, float] = field(default_factory=dict)
    sources: list[SourceRow] = field(default_factory=list)


@dataclass(frozen=True)
class Facts:
    """The fields of run.json that are read again. Further ones may be there."""

    vocab_size: Positive
    special_ids: SpecialIds
    machine: dict[str, Any] = field(default_factory=dict)
    architecture: str = "electra"
    """Its name; the first versions knew one."""
    shapes: dict[str, Any] = field(default_factory=dict)
    """The Shape of each network."""
    corpus: CorpusFacts = field(default_factory=CorpusFacts)
    data: str | None = None
    tokenizer_sha256: str | None = None
    tokenizer_files: dict[FileName, Sha256] | None = None
    """Hash of every file in RUN/tokenizer; None in runs that were begun before these were written
    down."""
    parameters: int | None = None
    unigram_entropy: float | None = None


def read_facts(run: Path) -> tuple[Facts, dict[str, Any]]:
    """run.json, checked, and as it stands there. Raises UserError where it is missing, damaged or
    changed, or says what no run writes."""
    path = run / FACTS
    try:
        raw = read_object(path, within=run)
        raw = unsealed(raw, path, must="tokenizer_files" in raw, advice=RESTORE)
        facts = check(Facts, raw, str(path), more=True)
    except MissingError:
        raise
    except FileError as e:
        raise e if e.advice else UserError(f"{path} is damaged: it {e.why}; {RESTORE}") from e
    except SchemaError as e:
        raise UserError(f"{path} is damaged: {e.what}; {RESTORE}") from e
    ids = (
        *(getattr(facts.special_ids, role) for role in ("pad", "cls", "sep", "mask")),
        *facts.special_ids.others,
    )
    if (
        not all(0 <= i < facts.vocab_size for i in ids)
        or not -1 <= facts.special_ids.unk < facts.vocab_size
    ):
        raise UserError(
            f"{path} is damaged: its special_ids are not of a vocabulary of {facts.vocab_size:,}; "
            f"{RESTORE}"
        )
    if facts.architecture not in ARCHITECTURES:
        raise UserError(
            f"{path} names an architecture that this version does not know: "
            f"{brief(facts.architecture)}"
        )
    kind = architecture_named(facts.architecture).shape_type
    try:
        facts = replace(
            facts,
            shapes={name: check(kind, shape, str(path)) for name, shape in facts.shapes.items()},
        )
    except SchemaError as e:
        raise UserError(f"{path} is damaged: {e.what}; {RESTORE}") from e
    if facts.special_ids.leave_nothing_of(facts.vocab_size) or len(set(ids[:4])) < 4:
        raise UserError(f"{path} is damaged: its special_ids are those of no tokenizer; {RESTORE}")
    if facts.tokenizer_files is not None and "tokenizer.json" not in facts.tokenizer_files:
        raise UserError(
            f"{path} is damaged: its tokenizer_files do not name tokenizer.json; {RESTORE}"
        )
    for name, shape in facts.shapes.items():
        if shape.hidden_size % shape.num_attention_heads:
            raise UserError(
                f"{path} is damaged: the width of the {name}'s shape is not a multiple of its "
                f"heads; {RESTORE}"
            )
    return facts, raw
