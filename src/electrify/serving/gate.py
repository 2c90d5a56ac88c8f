"""What every request passes: limits before the body is read, a deadline, security headers, errors
without tracebacks, and counts and times in the text format of Prometheus."""

from __future__ import annotations

import asyncio
import logging
import math
import time
import traceback
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..progress import harmless
from . import ServeConfig

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, math.inf)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, math.inf)
TYPES = {
    "electrify_requests_total": "counter",
    "electrify_request_seconds": "histogram",
    "electrify_batch_texts": "histogram",
    "electrify_queue_length": "gauge",
}
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
# Of JSON. A character beyond the basic plane may be written as two escapes of six bytes.
BYTES_PER_CHARACTER, BYTES_BESIDE_TEXT = 12, 4096
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
            self.add(f"{name}_bucket", amount=value <= bound, **{**labels, "le": le})
        self.add(f"{name}_sum", amount=value, **labels)
        self.add(f"{name}_count", amount=1, **labels)

    def text(self, *, queue: int) -> str:
        """queue: requests that wait."""
        samples = [f"{name} {value:.9g}" for name, value in [*self.values.items()]]
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
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *added]
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
        options, client = self.options, (scope.get("client") or ("",))[0]
        most, share = options.max_waiting, max(1, options.max_waiting // 2)
        most_bytes = BYTES_PER_CHARACTER * options.max_characters + BYTES_BESIDE_TEXT
        app: ASGIApp = RequestBodyLimitMiddleware(self.app, most_bytes)
        if scope["method"] != "POST":
            app = self.app
        elif self.unanswered[client] >= share:
            app = failure(429, f"your address has {share} requests without an answer. Try again")
        elif self.unanswered.total() >= most:
            app = failure(503, f"the server has {most} requests without an answer. Try again")
        elif int(dict(scope["headers"]).get(b"content-length", 0)) > most_bytes:
            app = failure(413, f"the body has more than {most_bytes:,} bytes")
        now = asyncio.get_running_loop().time

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":  # an answer is not cut off by its deadline
                deadline.reschedule(now() + options.timeout)
            await send(message)

        self.unanswered[client] += 1
        try:
            async with asyncio.timeout(options.timeout) as deadline:
                await app(scope, receive, sending)
        finally:
            self.unanswered[client] -= 1
            self.unanswered += Counter()  # without those that have none
