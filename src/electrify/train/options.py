"""The options of `electrify pretrain`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..errors import UserError
from ..recipe import SECTION_OF, STARTS, Recipe, load
from ..values import Hidden, Options, Positional, Positive
from . import CONFIG, FACTS

DEFAULT_RECIPE = "electra-small"
AUTO = "auto"


@dataclass(frozen=True, kw_only=True)
class Pretrain(Options):
    """A corpus and a recipe become a run."""

    data: Positional[str]
    """Folder made by `electrify prepare`, or text, which is prepared first."""
    output_dir: str
    """Folder of the run. The same command resumes there."""
    recipe: str = DEFAULT_RECIPE
    """Shipped recipe (see `electrify recipes`), a .yaml file, or auto: the best measured one for
    --flops or --train-minutes. Flags override it, and the defaults below are its values. To resume,
    it may be left out."""
    resume: Literal["auto", "never", "must"] = "auto"
    """auto: resume if there is a checkpoint. never: refuse a folder with a run. must: fail if
    there is none."""
    train_minutes: Positive | None = None
    """Train for about this many minutes: sets --max-steps by measured speed."""
    flops: Positive | None = None
    """With --recipe auto: FLOPs of the run, 1e13 to 1e15. An idle core with bfloat16 makes about
    1e14 in ten minutes, one without takes longer."""
    base: Recipe
    """The recipe that the flags change."""
    changes: Hidden[dict[str, Any]] = field(default_factory=dict)
    """The fields of the recipe that the user gave."""

    @classmethod
    def defaults(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        flags = {field: value for field, value in given.items() if field in SECTION_OF}
        run, name = Path(given.get("output_dir") or ""), given.get("recipe")
        if name is None and (run / FACTS).is_file() and (run / CONFIG).is_file():
            return {"base": load(run / CONFIG, trusted=False), "changes": flags}
        base = load(DEFAULT_RECIPE if name in (None, AUTO) else name)
        return {"base": base, "changes": flags}

    def check(self) -> None:
        auto, timed = self.recipe == AUTO, self.train_minutes is not None
        if auto and timed == (self.flops is not None):
            raise UserError("recipe auto needs flops or train_minutes")
        if self.flops is not None and not auto:
            raise UserError("flops is for recipe auto")
        if (auto or timed) and "max_steps" in self.changes:
            raise UserError("max_steps is set by recipe auto and train_minutes: leave it out")

    @property
    def start(self) -> str | None:
        """The model that the run starts from, whose tokenizer a text is prepared with."""
        given = (self.changes.get(name, getattr(self.base, name)) for name in STARTS)
        return next(filter(None, given), None)
