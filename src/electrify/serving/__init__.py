"""`electrify serve`: models over HTTP, with a page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le

from ..errors import need
from ..process import thread_count
from ..values import Count, Options, Positional, Positive


@dataclass(frozen=True, kw_only=True)
class ServeConfig(Options):
    """Which models are served, where, and within which limits."""

    models: Positional[tuple[str, ...]]
    """Runs, folders or Hub ids."""
    host: str = "127.0.0.1"
    """Address to listen on. The default is reached from this machine only."""
    port: Annotated[int, Ge(0), Le(65535)] = 8000
    """Port to listen on. 0 takes a free one, which is printed."""
    max_characters: Count = 20_000
    """Maximum number of characters per request, and per batch."""
    max_batch: Count = 64
    """Maximum number of texts per request, and per batch."""
    max_waiting: Count = 128
    """Requests that are accepted and not yet answered. One client address has at most half."""
    timeout: Positive = 30.0
    """Seconds until an answer begins. Sending it may take as long again."""
    threads: str = "auto"
    """CPU threads: a number, or auto (OMP_NUM_THREADS if set, else all cores)."""

    def check(self) -> None:
        need(bool(self.models), "models are missing: name a folder or a Hub id")
        need(len({*self.models}) == len(self.models), "models holds a name twice")
        thread_count(self.threads)
