"""The options of `electrify detect`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..cores import thread_count
from ..errors import UserError
from .given import Checked


@dataclass(frozen=True, kw_only=True)
class DetectConfig(Checked):
    """Which tokens of a text look replaced."""

    HEADINGS: ClassVar = {
        "model": "the text",
        "threshold": "what is shown",
        "max_seq_length": "computing",
    }
    model: str
    """A discriminator: folder or Hub id with a replaced-token head (`RUN/discriminator`)."""
    text: str | None = None
    """The text; without it and without --file, standard input is read."""
    file: str | None = None
    """Read the text from this file (UTF-8)."""
    threshold: float = 0.5
    """Mark tokens or words with at least this probability of being replaced."""
    unit: Literal["token", "word"] = "token"
    """Show word pieces, or whole words (a word's probability is that of its most suspicious piece);
    --json writes both."""
    json: bool = False
    """Write JSON."""
    max_seq_length: int | None = None
    """Tokens of a window, special ones included; longer texts take several windows. None takes the
    model's maximum."""
    batch_size: int | None = None
    """Windows per forward pass. None takes up to 16, and fewer where they are longer than 512."""
    threads: str = "auto"
    """Threads that compute: a number, or auto: OMP_NUM_THREADS if it is set, or, for long texts,
    the number that was fastest in a measurement of one second."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.text is not None and self.file is not None:
            raise UserError("TEXT and --file exclude each other")
        thread_count(self.threads)
        if not 0 <= self.threshold <= 1:
            raise UserError(f"threshold is a probability, not {self.threshold}")
        if self.batch_size is not None and self.batch_size < 1:
            raise UserError(f"batch_size must be at least 1, not {self.batch_size}")
