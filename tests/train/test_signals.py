"""A second signal, and the status of a stop. (One signal: faults/test_stops.py.)"""

import signal
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from electrify.process import status_of_stop

SCRIPT = """
    import time
    from electrify.process import Stop
    with Stop() as stop:
        print("ready", flush=True)
        while not stop.requested:
            time.sleep(0.01)
        print("asked by", stop.name, flush=True)
        time.sleep(60)  # a save that takes long
"""


@pytest.mark.parametrize(
    ("first", "second"), [(signal.SIGINT, signal.SIGINT), (signal.SIGUSR1, signal.SIGTERM)]
)
def test_a_second_signal_ends_at_once(first: signal.Signals, second: signal.Signals) -> None:
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(first)
            assert process.stdout.readline() == f"asked by {first.name}\n"
            process.send_signal(second)
            _, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (process.returncode, err) == (-second, "")


def test_the_status_of_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a torchrun that starts again whatever fails, a time that is over is not a failure."""
    name = "TORCHELASTIC_MAX_RESTARTS"
    monkeypatch.delenv(name, raising=False)
    assert {status_of_stop(signalled=s) for s in (True, False)} == {75}
    monkeypatch.setenv(name, "3")
    assert status_of_stop(signalled=False) == 0
    assert status_of_stop(signalled=True) == 75
