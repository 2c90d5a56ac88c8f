"""A pre-training recipe: five sections of plain numbers, read from YAML, overridden by flags,
checked before anything runs."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import Any

import yaml

from ..errors import UserError, nearest
from ..oldfiles.folders import own_object
from ..oldfiles.run_folder import CONFIG, FACTS
from . import own, own_rows
from .flags import flag_of
from .given import Checked, checked, must_be
from .recipe_files import plain_values, read_recipe, shipped_values
from .recipe_files import recipe_names as recipe_names
from .row_checks import rows_must_fit
from .schema import MAX_TYPO, MissingError, brief, field_types
from .sections import CorruptionConfig as CorruptionConfig
from .sections import DataConfig as DataConfig
from .sections import ModelConfig as ModelConfig
from .sections import ObjectiveConfig as ObjectiveConfig
from .training import TrainConfig as TrainConfig


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(Checked):
    """A whole recipe."""

    model: ModelConfig
    corruption: CorruptionConfig
    objective: ObjectiveConfig
    data: DataConfig
    train: TrainConfig


SECTIONS: dict[str, type] = dict(field_types(PretrainConfig))


def section_of() -> dict[str, str]:
    """Every field of a recipe with its section, own options included."""
    return {name: section for section, cls in SECTIONS.items() for name in own.fields_of(cls)}


def load_recipe(name: str) -> PretrainConfig:
    """A shipped recipe by name. Raises UserError with the nearest name."""
    name = checked(name, str, "a recipe's name")
    if name not in recipe_names():
        if os.path.isfile(name):
            raise UserError(
                f"{brief(name)} is a file, not the name of a shipped recipe; `electrify pretrain` "
                f"takes it as --config {quote(name)}"
            )
        raise UserError(
            f"there is no recipe {brief(name)}{nearest(name[:MAX_TYPO], recipe_names())}"
        )
    return _of_values(shipped_values(name), f"recipe {name}")


# The first line of a run's config.yaml. Paths in such a file are relative to its own folder, those
# in a user's recipe to the working directory.
RUN_MARK = "# electrify run: the resolved recipe; paths are relative to this folder\n"


def load_file(path: Path, *, within: Path | None = None) -> PretrainConfig:
    """A recipe file of the user, or that of a run folder (within). Raises UserError naming file and
    field."""
    text = read_recipe(path, within=within)
    of_a_run = within is not None or (path.name == CONFIG and text.startswith(RUN_MARK))
    config = parse(text, str(path), rows=_rows_of(path.parent) if of_a_run else {})
    starts = (
        {
            name: getattr(config.train, name) or ""
            for name in ("init_discriminator", "init_generator")
        }
        if text.startswith(RUN_MARK)
        else {}
    )
    return override(
        config,
        {
            name: str(path.parent / start)
            for name, start in starts.items()
            if start.startswith(("./", "../"))
        },
    )


def _rows_of(run: Path) -> dict[str, str]:
    """The modules that a run needs for rows of its own, by the choices that need them, as its
    run.json says; nothing where that is missing or damaged, which its own reader reports."""
    with suppress(UserError):
        return own_rows.recorded((own_object(run / FACTS) or {}).get("own_rows"))
    return {}


def parse(
    text: str, where: str, *, rows: Mapping[str, str] = MappingProxyType({})
) -> PretrainConfig:
    """rows: the modules that the run which wrote it needed for rows of its own."""
    return _of_values(
        plain_values(text, where), where, rows=rows, resolved_before=text.startswith(RUN_MARK)
    )


def _of_values(
    raw: Any,
    where: str,
    *,
    rows: Mapping[str, str] = MappingProxyType({}),
    resolved_before: bool = False,
) -> PretrainConfig:
    """resolved_before: whether a run wrote it, with every field."""
    rows_must_fit(SECTIONS)
    if not isinstance(raw, dict):
        raise UserError(f"{where} must have the sections {', '.join(SECTIONS)}")
    raw = resolved(raw, where)
    for key in raw:
        if key not in SECTIONS:
            home = section_of().get(str(key))
            instead = (
                f"; {key} belongs to the section {home}"
                if home
                else "; `like: RECIPE` takes what a shipped recipe has"
                if key == "recipe"
                else nearest(str(key)[:MAX_TYPO], SECTIONS)
            )
            raise UserError(f"{where} has no section {brief(key)}{instead}")
    own_rows.must_be_known(
        own_rows.chosen(raw), lambda c: f"{where}, section {c.section}: {c.name}", rows
    )
    try:
        sections = {
            s: own.read(cls, {} if raw.get(s) is None else raw[s], f"{where}, section {s}")
            for s, cls in SECTIONS.items()
        }
    except MissingError as e:
        if resolved_before:
            raise
        raise UserError(f"{e}", "`like: RECIPE` takes them from a shipped recipe") from e
    return with_weights(PretrainConfig(**sections))


def resolved(raw: dict[Any, Any], where: str) -> dict[Any, Any]:
    """The sections merged over those of the recipe that `like` names, so that a variant states only
    what differs. Raises UserError if there is no such recipe."""
    like = raw.pop("like", None)
    if like is None:
        return raw
    if like not in recipe_names():
        raise UserError(
            f"{where} is like {brief(like)}, and there is no such "
            f"recipe{nearest(str(like)[:MAX_TYPO], recipe_names())}"
        )
    below = resolved(shipped_values(like), f"recipe {like}")
    return below | {s: _over(SECTIONS.get(s), below.get(s) or {}, raw[s]) for s in raw}


def _over(cls: type | None, below: dict[str, Any], fields: Any) -> Any:
    """The fields of a section over those of the recipe that it is like, without what a change of
    the choice resets, as in `override`. A value that is not a mapping is kept, and the reader of
    the sections reports it."""
    fields = {} if fields is None else fields
    if not isinstance(fields, dict):
        return fields
    choice = getattr(cls, "CHOICE", "")
    if cls and choice in fields and fields[choice] != below.get(choice, getattr(cls, choice, None)):
        reset = {"term_weights", *own.option_types(cls)}
        below = {name: value for name, value in below.items() if name not in reset}
    return below | fields


def dump(config: PretrainConfig) -> str:
    """YAML that `parse` reads back to an equal recipe."""
    plain = {s: own.plain(getattr(config, s)) for s in SECTIONS}
    return yaml.safe_dump(plain, sort_keys=False, width=150)


def values_of(config: PretrainConfig) -> dict[str, Any]:
    """Every field with its value, own options included."""
    return {name: value for s in SECTIONS for name, value in own.plain(getattr(config, s)).items()}


def override(config: PretrainConfig, fields: dict[str, Any]) -> PretrainConfig:
    """The recipe with fields replaced: override(c, {"max_steps": 10}). A change of objective resets
    its options and weights to the defaults. Raises UserError for an unknown field."""
    rows_must_fit(SECTIONS)
    by_section: dict[str, dict[str, Any]] = {}
    known = section_of()
    must_be(config, PretrainConfig, "config")
    own_rows.must_be_known(must_be(fields, dict, "the fields"), lambda c: flag_of(c.name))
    for name, value in fields.items():
        if name not in known:
            raise UserError(f"there is no field {name!r}{nearest(str(name)[:MAX_TYPO], known)}")
        by_section.setdefault(known[name], {})[name] = value
    asked = by_section.get("objective", {})
    if asked.get("objective", config.objective.objective) != config.objective.objective:
        asked.setdefault("term_weights", {})
    sections = {
        s: own.replaced(getattr(config, s), values, naming=flag_of)
        for s, values in by_section.items()
    }
    return with_weights(dataclasses.replace(config, **sections))


def with_weights(config: PretrainConfig) -> PretrainConfig:
    """The recipe with the objective's default weights if it gives none."""
    o = config.objective
    if o.term_weights:
        return config
    weights = (
        {"generator": 1.0} if learns_by_likelihood(config.corruption, o) else {}
    ) | o.row.losses
    return dataclasses.replace(config, objective=dataclasses.replace(o, term_weights=weights))


def with_batch(config: PretrainConfig, *, processes: int = 1) -> PretrainConfig:
    """The recipe with the batch that it trains: its train_batch_size, or, if both numbers that say
    how a batch is split are given, their product with the number of processes."""
    t = config.train
    if not (t.per_device_train_batch_size and t.gradient_accumulation_steps):
        return config
    rows = t.per_device_train_batch_size * t.gradient_accumulation_steps * processes
    return override(config, {"train_batch_size": rows})


def learns_by_likelihood(c: CorruptionConfig, o: ObjectiveConfig) -> bool:
    """Whether a generator is trained with the likelihood of the original tokens (the loss
    `generator`)."""
    return c.row.learned and c.generator_training != "frozen" and not o.row.rewarded


def first_asked(config: PretrainConfig) -> int:
    """The update, counted from 0, in which the head of the kept network is first asked."""
    o = config.objective
    return first_update(o.row.silent_share(o.options), config.train.max_steps)


def first_update(share: float, max_steps: int) -> int:
    """The first update, counted from 0, of a part of the run that begins when this share of it is
    done."""
    return math.ceil(share * max_steps - 1e-6)


def starts_of(schedule: dict[int, float], last: int, max_steps: int) -> dict[int, int]:
    """For each update at which a row length or batch size changes, the value that holds from then
    on. A schedule gives values with their shares of all updates, in its order; `last` is what
    follows."""
    found = dict[int, int]()
    share = 0.0
    for value, of_all in schedule.items():
        found[round(share * max_steps)] = value
        share += of_all
    return found | {round(share * max_steps): last}
