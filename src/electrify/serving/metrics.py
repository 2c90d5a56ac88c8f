"""Counts and times of requests, in the text format of Prometheus."""

from __future__ import annotations

import math
from collections import Counter

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, math.inf)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, math.inf)
KINDS = {
    "electrify_requests_total": "counter",
    "electrify_request_seconds": "histogram",
    "electrify_batch_texts": "histogram",
    "electrify_queue_length": "gauge",
}


class Metrics:
    """What a server has done since its start."""

    def __init__(self) -> None:
        self.values: Counter[str] = Counter()
        """By name and labels."""

    def add(self, name: str, amount: float = 1, **labels: object) -> None:
        said = ",".join(f'{label}="{value}"' for label, value in labels.items())
        self.values[f"{name}{{{said}}}"] += amount  # type: ignore[assignment]

    def observe(self, name: str, value: float, bounds: tuple[float, ...], **labels: str) -> None:
        """Adds a value to a histogram, whose buckets count all values up to their bound."""
        for bound in bounds:
            le = "+Inf" if bound == math.inf else f"{bound:g}"
            self.add(f"{name}_bucket", amount=value <= bound, **{**labels, "le": le})
        self.add(f"{name}_sum", amount=value, **labels)
        self.add(f"{name}_count", amount=1, **labels)

    def text(self, *, queue: int) -> str:
        """queue: requests that wait."""
        samples = [f"{name} {value:.9g}" for name, value in [*self.values.items()]]
        samples.append(f"electrify_queue_length {queue}")
        lines = []
        for name, kind in KINDS.items():
            lines += [f"# TYPE {name} {kind}", *(s for s in samples if s.startswith(name))]
        return "\n".join(lines) + "\n"
