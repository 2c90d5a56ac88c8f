"""What every test file shares: one profile for hypothesis, a small prepared corpus, and a run."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.thread import BrokenThreadPool
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from electrify.process import wait_briefly
from electrify.progress import show_progress
from electrify.text import workers

# The same examples on every machine: a red run can be repeated. A slow machine is not a failure.
settings.register_profile("electrify", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("electrify")

show_progress()  # as the command line does: many tests read what is printed

# Before torch is imported. Tests run side by side, and two threads of each on a busy machine wait
# for each other: three times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")
wait_briefly()

# Under nohup, processes of the tests would be told to ignore SIGHUP, too; a handler is not
# inherited, and keeps pytest alive as well.
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)

# Waiting for the disk is an eighth of the time of the tests that write, and what it is for, a power
# cut, is provoked in processes of their own alone, which wait as users' processes do.
os.fsync = lambda file: os.fstat(file if isinstance(file, int) else file.fileno()) and None


class OneThread(ThreadPoolExecutor):
    """A worker of `prepare` in this process, with what the workers of other processes have."""

    lost = BrokenThreadPool
    ahead = 2

    def __init__(self, start: workers.Start, *given: Any) -> None:
        super().__init__(1)
        self._work = start, *given

    def begin(self, task: Any) -> Any:
        return self.submit(workers.do, task, *self._work)


# To start a process takes longer than all that the single worker of a small corpus does. Two and
# more are processes, as users have them.
Processes = workers.Processes
workers.Processes = lambda count, start, *given: (  # type: ignore[assignment, misc]
    OneThread(start, *given) if count == 1 else Processes(count, start, *given)
)


@pytest.fixture
def without_exports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs write no Hugging Face folders: to write, load and compare them is a third of a short
    run."""
    from electrify.train import run

    monkeypatch.setattr(run, "export_run", lambda *given, **named: {})


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared corpus of 100 kB, made once by the real verb. Read only."""
    from small import prepare_small

    return prepare_small(tmp_path_factory.mktemp("small") / "data")


@pytest.fixture(scope="session")
def finished(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 12 updates with its exported halves, made once. Read only."""
    from small import SHORT, pretrain_words, run

    folder = tmp_path_factory.mktemp("finished") / "run"
    assert run(*pretrain_words(small_data, folder, **SHORT | {"report_to": "tensorboard"})) == 0
    return folder
