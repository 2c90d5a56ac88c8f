"""What every request passes: limits on how many wait, a deadline, security headers, errors without
tracebacks, and counts and times in the text format of Prometheus."""

from __future__ import annotations

import asyncio
import logging
import math
import time
import traceback
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..console import harmless
from . import ServeConfig

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, math.inf)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, math.inf)
TYPES = {
    "electrify_requests_total": "counter",
    "electrify_request_seconds": "histogram",
    "electrify_batch_texts": "histogram",
    "electrify_queue_length": "gauge",
}
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    b"img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]
_log = logging.getLogger(__name__)


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
            self.add(f"{name}_bucket", value <= bound, **labels, le=le)
        self.add(f"{name}_sum", value, **labels)
        self.add(f"{name}_count", 1, **labels)

    def text(self, *, queue: int) -> str:
        """queue: requests that wait."""
        samples = [f"{name} {value:.9g}" for name, value in self.values.items()]
        samples.append(f"electrify_queue_length {queue}")
        lines = []
        for name, kind in TYPES.items():
            lines += [f"# TYPE {name} {kind}", *(s for s in samples if s.startswith(name))]
        return "\n".join(lines) + "\n"


def failure(status: int, sentence: str, **further: str) -> JSONResponse:
    """The answer to a request that is refused or has failed."""
    headers = {"Retry-After": "1"} if status in (429, 503) else None
    return JSONResponse({"detail": sentence, **further}, status, headers=headers)


@dataclass
class Gate:
    """The outermost middleware."""

    app: ASGIApp
    options: ServeConfig
    metrics: Metrics
    paths: Collection[str]
    """Those that are counted apart."""
    unanswered: Counter[str] = field(default_factory=Counter)
    """Accepted requests by client address."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, status = time.monotonic(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        try:
            await self._pass(scope, receive, sending)
        except Exception as e:
            if status:
                raise
            refused = failure(503, f"no answer within {self.options.timeout:g} s. Try again")
            if not isinstance(e, TimeoutError):
                trace = "".join(traceback.format_exception(e))
                _log.error("%s: %s", scope["path"], harmless(trace, keep="\n"))
                refused = failure(500, "internal error")
            await refused(scope, receive, sending)
        path = scope["path"] if scope["path"] in self.paths else "other"
        self.metrics.add("electrify_requests_total", path=path, status=status)
        seconds = time.monotonic() - began
        self.metrics.observe("electrify_request_seconds", seconds, SECONDS, path=path)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        client, app = (scope.get("client") or ("",))[0], self.app
        most, share = self.options.max_waiting, max(1, self.options.max_waiting // 2)
        if scope["method"] == "POST" and self.unanswered[client] >= share:
            app = failure(429, f"your address has {share} requests without an answer. Try again")
        elif scope["method"] == "POST" and self.unanswered.total() >= most:
            app = failure(503, f"the server has {most} requests without an answer. Try again")

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":  # an answer is not cut off by its deadline
                deadline.reschedule(asyncio.get_running_loop().time() + self.options.timeout)
            await send(message)

        self.unanswered[client] += 1
        try:
            async with asyncio.timeout(self.options.timeout) as deadline:
                await app(scope, receive, sending)
        finally:
            self.unanswered[client] -= 1
            self.unanswered += Counter()  # without those that have none
