"""Load on `electrify serve`: many clients that mix endpoints, sizes and hostile bodies.

    python benchmarks/serve.py MODEL [--clients 200] [--seconds 60] [--quick] [--json FILE]
        [--server-flags "--max-waiting 64"]

Starts the server as a process and prints its answers by status, their latency, and its memory at
the start and the end. Ends with status 1 for any answer other than 200, 413, 422, 429 and 503, for
a connection that breaks, or if the server does not end with status 0 at SIGTERM. Half of the
clients share one address and the others have an address for every four: the limit counts them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from pairs import table, write_json

EXPECTED = {200, 413, 422, 429, 503}
WORDS = re.findall("[a-z]+", Path(__file__).read_text(encoding="utf-8"))
JSON = "application/json"


@dataclass
class Seen:
    """What the clients got."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: defaultdict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    broken: Counter[str] = field(default_factory=Counter)
    """Connections that ended without an answer, by the error."""
    odd: list[str] = field(default_factory=list)


def text(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.choice((3, 10, 40, 120))))


GOOD = json.dumps({"texts": ["the meal"]}).encode()
HOSTILE = [
    ("detect", GOOD[: len(GOOD) // 2]),
    ("embed", b"\xff\xfe" + GOOD),
    ("score", b"[" * 50_000),
    ("detect", b'{"text": "\\ud800"}'),
    ("embed", b'{"text": ' + b"1" * 5000 + b"}"),
    ("score", b'{"text": NaN}'),
    ("detect", b'{"texts": ["", " ", "\\u0000"]}'),
    ("embed", b'{"text": "a", "model": "../../etc/passwd"}'),
    ("detect", b'{"text": "<img src=x onerror=alert(1)>", "__proto__": {}}'),
    ("detect", json.dumps({"text": "a " * 30_000}).encode()),
    ("embed", json.dumps({"texts": ["a"] * 5000}).encode()),
    ("detect", b'{"text": "' + b"a" * 2_000_000 + b'"}'),
    ("score", json.dumps({"text": "word " * 3000}).encode()),
    ("alternatives", b'{"text": "a", "start": -1, "end": 99999999999999999999}'),
    ("predict", GOOD),
]


def request(rng: random.Random) -> tuple[str, bytes]:
    """A path and a body: two of three are good."""
    if rng.random() > 2 / 3:
        return rng.choice(HOSTILE)
    kind = rng.choice(("detect", "detect", "score", "embed", "alternatives"))
    body: Any = {"texts": [text(rng) for _ in range(rng.choice((1, 1, 2, 8)))]}
    if kind == "alternatives":
        body = {"text": "the " + text(rng), "start": 0, "end": 3}
    return kind, json.dumps(body).encode()


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: bytes
) -> tuple[int, bytes]:
    head = f"POST /{path} HTTP/1.1\r\nHost: a\r\nContent-Type: {JSON}\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
    found = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", found, re.IGNORECASE)
    answer = await reader.readexactly(int(length[1])) if length else b""
    return int(found.split()[1]), answer


async def client(number: int, port: int, until: float, seen: Seen) -> None:
    """Asks one question after the other. A third of the connections is new."""
    rng = random.Random(number)
    address = (f"127.0.0.{2 if number % 2 else 3 + number // 8}", 0)
    link: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    while time.monotonic() < until:
        try:
            link = link or await asyncio.open_connection("127.0.0.1", port, local_addr=address)
            path, body = request(rng)
            began = time.monotonic()
            status, answer = await ask(*link, path, body)
            seen.statuses[status] += 1
            seen.seconds[status].append(time.monotonic() - began)
            if status not in EXPECTED or b"Traceback (most recent" in answer:
                seen.odd.append(f"{status} {path} {body[:60]!r} {answer[:200]!r}")
            if status in (429, 503):
                await asyncio.sleep(rng.random())
        except (OSError, asyncio.IncompleteReadError) as e:
            seen.broken[type(e).__name__] += 1
            link = None
        if link and rng.random() < 1 / 3:
            link[1].close()
            link = None


async def load(port: int, clients: int, seconds: float, seen: Seen) -> None:
    until = time.monotonic() + seconds
    await asyncio.gather(*(client(k, port, until, seen) for k in range(clients)))


def started(words: list[str], log: Path) -> tuple[subprocess.Popen[bytes], int]:
    """The server and its port."""
    with log.open("wb") as file:
        command = [sys.executable, "-m", "electrify", "serve", *words, "--port", "0"]
        process = subprocess.Popen(command, stderr=file)
    while process.poll() is None:
        if found := re.search(r"serving on http://[\d.]+:(\d+)", log.read_text()):
            return process, int(found[1])
        time.sleep(0.1)
    raise SystemExit(log.read_text())


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("model")
    p.add_argument("--clients", type=int, default=200)
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--quick", action="store_true", help="20 clients, 3 seconds")
    p.add_argument("--server-flags", default="", help="further words for `electrify serve`")
    p.add_argument("--json", help="write the figures here too")
    a = p.parse_args()
    clients, seconds = (20, 3.0) if a.quick else (a.clients, a.seconds)
    with TemporaryDirectory() as folder:
        log = Path(folder) / "stderr.txt"
        process, port = started([a.model, *a.server_flags.split()], log)
        memory = psutil.Process(process.pid)
        asyncio.run(load(port, 2, 1, Seen()))  # the first requests of each kind allocate
        megabytes = [memory.memory_info().rss / 1e6]
        seen = Seen()
        for _ in range(2):
            asyncio.run(load(port, clients, seconds / 2, seen))
            megabytes.append(memory.memory_info().rss / 1e6)
        process.send_signal(signal.SIGTERM)
        status = process.wait(timeout=120)
        said = log.read_text()
    rows = []
    for code, times in sorted(seen.seconds.items()):
        cuts = statistics.quantiles(times, n=100) if len(times) > 1 else times * 99
        rows.append([str(code), f"{len(times):,}", f"{cuts[49]:.3f}", f"{cuts[98]:.3f}"])
    print(f"{platform.processor() or platform.machine()}, {psutil.cpu_count()} cores")
    print(f"{clients} clients, {seconds:g} s, load {psutil.getloadavg()[0]:.1f}")
    print(table(["status", "answers", "p50 s", "p99 s"], rows))
    print(f"answers per second: {seen.statuses.total() / seconds:.0f}")
    print("memory: {:.0f} MB before, {:.0f} at half, {:.0f} at the end".format(*megabytes))
    print(f"broken connections: {dict(seen.broken)}; status at SIGTERM: {status}")
    print(*seen.odd[:10], sep="\n")
    failed = bool(seen.odd or seen.broken or status or "Traceback" in said)
    write_json(a.json, {"statuses": seen.statuses, "memory_MB": megabytes})
    if failed:
        raise SystemExit(f"failed\n{said[-3000:]}")


if __name__ == "__main__":
    main()
