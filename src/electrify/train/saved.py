"""The content of a checkpoint's state.json, and its checks. A correct hash only shows that the file
is as it was written, not that a run can continue from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from torch import Tensor

from ..errors import UserError
from ..oldfiles.run_folder import checkpoint_folder
from ..oldfiles.schema import Count, Rule, SchemaError, check
from .guard import LOSSES

EARLIER = "remove that checkpoint, and the run goes on from an earlier one"
# Validation metrics may be NaN, too.
Real = Annotated[
    Any, Rule("a number", lambda x: isinstance(x, int | float) and not isinstance(x, bool))
]
Conditions = Annotated[
    dict[str, Any],
    Rule(
        "an object with data and tokenizer",
        lambda x: (
            isinstance(x, dict)
            and all(isinstance(x.get(key), str) for key in ("data", "tokenizer"))
        ),
    ),
]
Losses = Annotated[
    list[float],
    Rule(f"a list of {LOSSES} numbers at most", lambda x: isinstance(x, list) and len(x) <= LOSSES),
]


@dataclass(frozen=True)
class GuardState:
    """What the guard has counted."""

    refused: dict[str, Count]
    losses: Losses


@dataclass(frozen=True)
class State:
    """The fields that resuming reads. Others may be there."""

    step: Count
    tokens: Count
    seconds: float
    window: dict[str, tuple[float, float]]
    validation: dict[str, Real]
    monitor: list[str]
    fingerprint: Conditions
    guard: GuardState | None = None  # absent in checkpoints of the first versions
    left_out: Count = 0
    recipe: dict[str, Any] = field(
        default_factory=dict
    )  # checkpoints of earlier versions have none


def current_names(tensors: Mapping[str, Mapping[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
    """The tensors of a checkpoint under the names of this version. In the first version, a masked
    language model had its encoder and head inside one module, `lm`, and nothing else."""
    if any(name.startswith("encoder.") for name in tensors.get("model", {})):
        return {group: dict(named) for group, named in tensors.items()}
    return {
        group: {name.removeprefix("lm."): t for name, t in named.items()}
        for group, named in tensors.items()
    }


def must_go_on(
    path: Path, tensors: Mapping[str, Mapping[str, Tensor]], state: dict[str, Any]
) -> None:
    """Raises UserError if a run cannot continue from the content of the checkpoint folder
    `path`."""
    for group in ("model", "optimizer"):
        if group not in tensors:
            raise UserError(
                f"{path} holds no {group}.safetensors, which a run goes on from; {EARLIER}"
            )
    must_be_state(path, state)
    must_be_floats(path, tensors["model"])


def must_be_state(path: Path, state: dict[str, Any]) -> None:
    """Raises UserError if the state.json of a checkpoint folder does not say what a run would write
    at that step."""
    try:
        found = check(State, state, f"{path}/state.json", more=True)
    except SchemaError as e:
        raise UserError(f"{e}; {EARLIER}") from e
    if path != checkpoint_folder(path.parent, found.step):
        raise UserError(f"{path}/state.json is of step {found.step}; {EARLIER}")


def must_be_floats(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raises UserError if a parameter is stored as integers."""
    odd = next((name for name, t in tensors.items() if not t.is_floating_point()), None)
    if odd is not None:
        raise UserError(
            f"{path} holds {odd} as {tensors[odd].dtype}, which is not a type of weights; {EARLIER}"
        )


def must_be_moments(path: Path, moments: Mapping[str, Tensor], named: Mapping[str, Any]) -> None:
    """Raises UserError if the optimiser's tensors do not belong to the parameters `named`: each
    must be called `PARAMETER.SLOT` and have that parameter's shape or be a single number."""
    slots: dict[str, set[str]] = {}
    for key, t in moments.items():
        name, _, slot = key.rpartition(".")
        if name not in named or not (t.ndim == 0 or tuple(t.shape) == tuple(named[name].shape)):
            raise UserError(
                f"{path} holds the optimiser state {key[:80]!r} of shape {tuple(t.shape)}, which "
                f"belongs to no parameter of this run; {EARLIER}"
            )
        slots.setdefault(name, set()).add(slot)
    if len({frozenset(s) for s in slots.values()}) > 1:
        raise UserError(
            f"{path} does not hold the same optimiser states for all parameters; {EARLIER}"
        )
