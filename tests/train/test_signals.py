"""Signals against real processes: one asks, two end."""

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

from electrify.train import signals
from electrify.train.signals import SAVED_EXIT, SIGNALS

SCRIPT = """
    import sys, time
    from electrify.train.signals import SAVED_EXIT, Stop
    with Stop() as stop:
        print("ready", flush=True)
        while not stop.requested:
            time.sleep(0.01)
        print("asked by", stop.name, flush=True)
        if sys.argv[1] == "slow":  # a save that takes long
            time.sleep(60)
    sys.exit(SAVED_EXIT)
"""


@pytest.fixture
def process(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), request.param]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("process", ["fast"], indirect=True)
def test_one_signal_asks_and_the_process_ends_in_its_own_time(process, number):
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (SAVED_EXIT, f"asked by {number.name}\n", "")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGINT, signal.SIGINT),
        (signal.SIGUSR1, signal.SIGTERM),
    ],
)
@pytest.mark.parametrize("process", ["slow"], indirect=True)
def test_a_second_signal_ends_at_once(process, first, second):
    process.send_signal(first)
    assert process.stdout.readline() == f"asked by {first.name}\n"
    process.send_signal(second)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (-second, "")


def test_the_status_of_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a torchrun that starts again whatever fails, a time that is over is not a failure."""
    name = "TORCHELASTIC_MAX_RESTARTS"
    monkeypatch.delenv(name, raising=False)
    assert {signals.status_of_stop(signalled=s) for s in (True, False)} == {75}
    monkeypatch.setenv(name, "0")
    assert {signals.status_of_stop(signalled=s) for s in (True, False)} == {75}
    monkeypatch.setenv(name, "3")
    assert signals.status_of_stop(signalled=False) == 0
    assert signals.status_of_stop(signalled=True) == 75
