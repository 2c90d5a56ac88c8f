"""Two threads that watch each other over a store, one of which falls silent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch.distributed as td

from electrify.train import watch
from electrify.train.signals import SAVED_EXIT
from electrify.train.watch import Watch


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said; and seconds become hundredths."""
    lines: list[str] = []
    monkeypatch.setattr(watch, "say", lines.append)
    for name in ("BEAT_S", "LOOK_S", "SILENT_S", "SURE_S", "SAY_S"):
        monkeypatch.setattr(watch, name, getattr(watch, name) / 20)
    return lines


@pytest.fixture
def pair(said: list[str]) -> Iterator[tuple[Watch, Watch]]:
    store = td.HashStore()
    both = [Watch(store, rank=rank, size=2, keeper=None) for rank in range(2)]
    yield both[0], both[1]
    for one in reversed(both):
        one.close()


def comes(happened: Callable[[], object], *, seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(happened())


def test_who_is_silent_is_named(pair: tuple[Watch, Watch], said: list[str]) -> None:
    one, other = pair
    other.close()
    with one.exchange():
        assert comes(lambda: said)
    assert "waiting for 1 of 2 processes" in said[0]
    assert f"rank 1 (process {os.getpid()} on " in said[0]
    assert said[0].endswith("gives no sign of life")
    assert one.named().startswith("rank 1 (process")


def test_who_is_at_work_is_named(pair: tuple[Watch, Watch], said: list[str]) -> None:
    """It has not begun the exchange that the first waits in."""
    with pair[0].exchange():
        assert comes(lambda: said)
    assert said[0].endswith("is still at work")
    assert pair[0].named() == ""


def test_lines_become_rarer(pair: tuple[Watch, Watch], said: list[str]) -> None:
    with pair[0].exchange():
        assert comes(lambda: len(said) >= 2)
    before = [float(line.split(" processes, ")[1].split(" s:")[0]) for line in said[:2]]
    assert before[1] > before[0]


def test_who_works_alone_waits_for_nobody(pair: tuple[Watch, Watch], said: list[str]) -> None:
    """A long update is not a wait, and all are heard."""
    time.sleep(3 * watch.SAY_S / 2)
    assert said == []


class Lost:
    """A store that takes one sign of life, and whose process then dies, or hangs."""

    def __init__(self, *, hangs: bool) -> None:
        self.signs, self.hangs, self.over = 0, hangs, threading.Event()

    def set(self, key: str, value: str) -> None:
        self.signs += 1
        if self.signs > 1 and not self.hangs:
            raise RuntimeError

    def check(self, keys: list[str]) -> bool:
        return not self.over.wait(60)


@pytest.mark.parametrize("hangs", [False, True])
def test_the_keeper_of_the_store_is_lost(said: list[str], hangs: bool) -> None:
    store = Lost(hangs=hangs)
    one = Watch(store, rank=1, size=3, keeper=0)  # type: ignore[arg-type]
    with one.exchange():
        assert comes(lambda: said)
    store.over.set()
    one.close()
    assert "rank 0 gives no sign of life" in said[0]


DEAF = """
    import sys
    import torch.distributed as td
    from electrify.train import watch
    from electrify.train.signals import Interruptible
    watch.SILENT_S, watch.LOOK_S, watch.BEAT_S = 1.0, 0.2, 0.2
    store = td.HashStore()
    one = watch.Watch(store, rank=0, size=2, keeper=None)
    with Interruptible(), one.forming() if sys.argv[1] == "forming" else one.exchange():
        print("ready", flush=True)
        td.HashStore().wait(["what nobody sets"])  # inside torch no handler of Python runs
"""


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("state", "number"),
    [
        ("forming", signal.SIGTERM),
        ("exchange", signal.SIGINT),
        pytest.param("forming", signal.SIGINT, marks=SLOW),
        pytest.param("forming", signal.SIGHUP, marks=SLOW),
        pytest.param("exchange", signal.SIGTERM, marks=SLOW),
        pytest.param("exchange", signal.SIGHUP, marks=SLOW),
    ],
)
def test_a_signal_that_the_main_thread_cannot_hear(state: str, number: signal.Signals) -> None:
    code = textwrap.dedent(DEAF)
    with subprocess.Popen(
        [sys.executable, "-c", code, state],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(2)  # until it is inside torch
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == SAVED_EXIT
    assert err.startswith(f"electrify pretrain: stopped by {number.name} while waiting for ")
    assert err.endswith("; run the same command again to continue\n")
    assert state == "forming" or "rank 1" in err
