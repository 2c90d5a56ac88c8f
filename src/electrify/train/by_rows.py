"""What differs between the encoders of the phases of a run: numbers that belong to the length of
its rows, such as the base of rotary positions."""

from __future__ import annotations

from dataclasses import fields

from ..data.phases import Phase
from ..model.encoder import Encoder, encoders_of, for_rows
from ..objectives.objective import Objective
from ..progress import say


class ByRows:
    """The encoders of an objective, and the phase that they are in."""

    def __init__(self, objective: Objective, *, told: bool) -> None:
        """told: whether a change is reported."""
        self.kept = objective.encoder
        self.encoders = encoders_of(objective)
        self.told = told
        self.row_length: int | None = None

    def enter(self, phase: Phase) -> None:
        """Makes the encoders those of an update of this phase."""
        if phase.row_length == self.row_length:
            return
        self.row_length = phase.row_length
        for_rows(self.encoders, phase.row_length)
        numbers = phase_numbers(self.kept)
        if numbers and self.told:
            text = ", ".join(f"{name} {value:,g}" for name, value in numbers.items())
            say(f"rows of {phase.row_length:,} tokens: {text}")


def phase_numbers(encoder: Encoder) -> dict[str, float]:
    """The numbers of an encoder's shape that differ between phases, with their values in this one;
    none in a run whose encoder stays as it is."""
    last, others = encoder.last_shape, encoder.shapes_by_rows.values()
    names = [f.name for f in fields(last)]
    return {
        name: getattr(encoder.shape, name)
        for name in names
        if any(getattr(shape, name) != getattr(last, name) for shape in others)
    }
