"""`prepare --engine ray`: what the map promises, and that a cluster changes no byte, whatever
happens to it."""

from __future__ import annotations

import hashlib
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electrify.errors import UserError
from electrify.text import cluster, prepare, workspace
from electrify.text.options import PrepareConfig
from electrify.text.workers import Cluster
from small import environment, one_sentence, write_text

HERE = Path(__file__).parent
with_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="the package ray is not installed (extra `ray`)"
)


def run(source: Path, output: Path, **changes: Any) -> None:
    prepare.prepare(
        PrepareConfig(
            inputs=(str(source),),
            output_dir=str(output),
            vocab_size=400,
            valid_fraction=0.1,
            **changes,
        )
    )


def contents(folder: Path) -> dict[str, str]:
    """Hashes of all files but the log, which holds seconds."""
    files = (p for p in folder.rglob("*") if p.is_file() and p.name != prepare.LOG)
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


# ------------------------------------------------------------------ without Ray


class Pretended:
    """The few calls of Ray that a Cluster makes; tasks end in any order, and `most` is how many
    were under way at once."""

    exceptions = SimpleNamespace(RayError=LookupError, RayTaskError=ArithmeticError)

    def __init__(self, seed: int, *, cpus: int) -> None:
        self._rng, self._cpus = random.Random(seed), cpus
        self.running: list[SimpleNamespace] = []
        self.most, self.cancelled = 0, 0

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(self._cpus)}

    def put(self, value: Any) -> Any:
        return value

    def remote(self, function: Any) -> Any:
        def start(first: Any, task: Any) -> SimpleNamespace:
            reference = SimpleNamespace(value=function(first, task))
            self.running.append(reference)
            self.most = max(self.most, len(self.running))
            return reference

        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=start))

    def wait(
        self, references: list[Any], *, num_returns: int, timeout: float | None = None
    ) -> tuple[list[Any], list[Any]]:
        ends = [r for r in references if r in self.running and self._rng.random() < 0.3]
        if timeout is None and not ends:
            ends = [self._rng.choice(references)]
        self.running = [r for r in self.running if r not in ends]
        return [r for r in references if r not in self.running], [
            r for r in references if r in self.running
        ]

    def get(self, reference: Any) -> Any:
        self.running = [r for r in self.running if r is not reference]
        return reference.value

    def cancel(self, reference: Any) -> None:
        self.cancelled += 1


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.integers(0, 1000),
    st.integers(0, 40),
    st.integers(1, 5),
    st.one_of(st.none(), st.integers(1, 5)),
)
def test_order_and_room(seed: int, tasks: int, cpus: int, count: int | None) -> None:
    """Results in the order of the tasks, however these end; never more of them under way than asked
    for, or than two a CPU; few drawn ahead."""
    ray = Pretended(seed, cpus=cpus)
    room, drawn = count or 2 * cpus, [0]

    def draw() -> Iterator[int]:
        for i in range(tasks):
            drawn[0] += 1
            yield i + 100

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "require", lambda: ray)
        with Cluster(count, module="pool_jobs", argument=10) as pool:
            assert pool.count == (count or cpus)
            for i, result in enumerate(pool.map(draw())):
                assert result == 10 * (i + 100)
                assert drawn[0] <= i + 2 + 4 * room
    assert ray.most <= room
    assert ray.cancelled == 0


def test_an_error_takes_back_what_was_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = Pretended(0, cpus=4)
    monkeypatch.setattr(cluster, "require", lambda: ray)
    with (
        pytest.raises(UserError, match="thirteen is bad"),
        Cluster(None, module="pool_jobs", argument=10) as pool,
    ):
        list(pool.map([13, *range(30, 60)]))
    assert ray.cancelled > 0


def test_hosts_with_other_versions_are_refused() -> None:
    same = cluster.versions()
    assert cluster._do((same, "pool_jobs", 10), 4) == ("value", 40)
    kind, sentence = cluster._do((same | {"tokenizers": "0.1"}, "pool_jobs", 10), 4)
    assert kind == "user"
    assert sentence.startswith(
        f"a host of the Ray cluster has tokenizers {same['tokenizers']}, this one 0.1; install the "
        "same"
    )
    assert cluster._do((same, "pool_jobs", 10), 14)[0] == "bug"


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = write_text(tmp_path / "a.txt", size=2000)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        UserError, match=r"--engine ray needs the package ray; pip install 'electrify\[ray\]'"
    ):
        run(source, tmp_path / "data", engine="ray")
    assert not (tmp_path / "data").exists()


def test_a_client_address_is_refused_and_a_cluster_of_the_caller_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ray = SimpleNamespace(is_initialized=lambda: False)
    monkeypatch.setattr(cluster, "require", lambda: ray)
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with (
        pytest.raises(UserError, match="a Ray client's; run the command on a host of the cluster"),
        cluster.joined(1),
    ):
        pass
    ray.is_initialized = lambda: True
    with cluster.joined(1):  # neither init nor shutdown, which this Ray does not have
        pass


def test_the_engine_decides_no_byte() -> None:
    local = PrepareConfig(inputs=("a.txt",), output_dir="x")
    assert workspace.bytes_deciding(local) == workspace.bytes_deciding(
        PrepareConfig(inputs=("a.txt",), output_dir="x", engine="ray", workers=7)
    )


# ------------------------------------------------------------------ with Ray


def ray_environment() -> dict[str, str]:
    """Of a cluster that only this test can speak to."""
    inherited = {k: v for k, v in environment().items() if k != "RAY_ADDRESS"}
    paths = os.pathsep.join([str(HERE), inherited.get("PYTHONPATH", "")])
    return inherited | {
        "PYTHONPATH": paths,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
        "RAY_USAGE_STATS_ENABLED": "0",
    }


@contextmanager
def hosts(*, joining: int) -> Iterator[tuple[dict[str, str], subprocess.Popen[str]]]:
    """The environment of a command that shall use a cluster of 1 + `joining` hosts, and the process
    to which `lose` is written."""
    setting = ray_environment()
    command = [sys.executable, str(HERE / "hosts.py")]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=setting,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            assert address
            for _ in range(joining):
                tell(process, "join")
            yield setting | {"RAY_ADDRESS": address}, process
        finally:
            process.stdin.close()
            process.wait(60)


def tell(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    print(word, file=process.stdin, flush=True)
    assert process.stdout.readline().strip() == "done"


PROGRAM = """
import sys
from electrify import cli
from electrify.text import prepare
prepare.TASK_CHARACTERS = int(sys.argv[1])
options = ["--engine", "ray", "--vocab-size", "400", "--valid-fraction", "0.1"]
sys.exit(cli.main(["prepare", *sys.argv[2:], *options]))
"""


def start(
    size: int, source: Path, output: Path, setting: dict[str, str], *words: str
) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-c",
        PROGRAM,
        str(size),
        str(source),
        "--output-dir",
        str(output),
        *words,
    ]
    # A background job ignores SIGINT, and so would all below.
    heard = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=setting,
        start_new_session=True,
        preexec_fn=heard,
    )


def parts(output: Path) -> int:
    return len(list(output.glob(f"{workspace.UNFINISHED}/parts/*/*.part")))


def wait_for_parts(process: subprocess.Popen[str], output: Path, count: int) -> None:
    deadline = time.monotonic() + 250
    while process.poll() is None and parts(output) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()[1]


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, str]]:
    """A corpus of about 150 tasks, and what this host alone makes of it."""
    monkeypatch.setattr(prepare, "TASK_CHARACTERS", 20_000)
    source = write_text(tmp_path / "a.txt", size=3_000_000)
    run(source, tmp_path / "local", workers=1)
    return source, contents(tmp_path / "local")


@pytest.mark.slow
@with_ray
def test_a_cluster_of_its_own_changes_no_byte_says_nothing_and_is_gone(
    local: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """Several sizes of task and numbers of workers; started on this host for the command, and gone
    with it."""
    source, want = local
    for size, workers in ((20_000, "2"), (333_333, "1")):
        output = tmp_path / f"ray{workers}"
        process = start(size, source, output, ray_environment(), "--workers", workers)
        out, err = process.communicate(timeout=280)
        assert process.returncode == 0, err
        assert "documents" in out
        assert [
            line
            for line in err.splitlines()
            if not line.startswith(
                ("training a", "the vocabulary has", "tokenising", "joining", "reading")
            )
        ] == []
        assert contents(output) == want
        assert not left_of(process)


def left_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Processes of the command's session, or of a Ray session that it began, after 20 seconds of
    patience."""
    deadline = time.monotonic() + 20
    while (
        left := [p for p in psutil.process_iter() if f"_{process.pid}/" in line_of(p)]
    ) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def line_of(process: psutil.Process) -> str:
    """Its command line; Ray names a session's folder after the process that began it."""
    try:
        return " ".join(process.cmdline()) if process.status() != psutil.STATUS_ZOMBIE else ""
    except psutil.Error:
        return ""


@pytest.mark.slow
@with_ray
def test_a_host_that_is_lost_changes_no_byte(
    local: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """Two hosts and the head; one dies with its tasks and its results. Continued on this host
    alone, it was the same command."""
    source, want = local
    with hosts(joining=2) as (setting, process):
        command = start(20_000, source, tmp_path / "ray", setting)
        wait_for_parts(command, tmp_path / "ray", 10)
        tell(process, "lose")
        made = parts(tmp_path / "ray")
        _, err = command.communicate(timeout=280)
        assert command.returncode == 0, err
    assert made < 150  # it was lost in the middle
    assert contents(tmp_path / "ray") == want


@pytest.mark.slow
@with_ray
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_stopped_on_a_cluster_continued_on_this_host(
    local: tuple[Path, dict[str, str]], tmp_path: Path, sign: int
) -> None:
    source, want = local
    process = start(20_000, source, tmp_path / "ray", ray_environment(), "--workers", "1")
    wait_for_parts(process, tmp_path / "ray", 3)
    os.killpg(process.pid, sign)  # as a terminal does it: to all at once
    process.communicate(timeout=60)
    assert process.returncode == (75 if sign == signal.SIGINT else -sign)
    assert not left_of(process)
    made = parts(tmp_path / "ray")
    run(source, tmp_path / "ray", workers=1)
    assert f'"parts_reused": {made}' in (tmp_path / "ray" / prepare.LOG).read_text()
    assert contents(tmp_path / "ray") == want


MAPPED = """
import sys
from electrify.text.workers import Cluster, joined
with joined(None), Cluster(None, module="pool_jobs", argument=10) as pool:
    results = list(pool.map(eval(sys.argv[1])))
print(results)
"""


@pytest.mark.slow
@with_ray
def test_only_what_dies_is_tried_again(tmp_path: Path) -> None:
    """A process killed once, and once told to end, costs nothing; a task that always kills its
    process, a mistake and a bug end the map."""
    with hosts(joining=0) as (setting, _):

        def mapped(tasks: list[Any]) -> tuple[str, str]:
            command = [sys.executable, "-c", MAPPED, repr(tasks)]
            done = subprocess.run(
                command, capture_output=True, text=True, env=setting, timeout=250, check=False
            )
            return done.stdout.strip(), (done.stderr.strip().splitlines() or [""])[-1]

        killed, told = (
            ("once", int(sign), str(tmp_path / sign.name))
            for sign in (signal.SIGKILL, signal.SIGTERM)
        )
        assert (
            mapped([1, killed, 2, told, 3])[0] == "[10, 'again', 20, 'again', 30]"
        )  # and nothing else: what Ray says of it goes to stderr
        assert "thirteen is bad" in mapped([1, 13, 2])[1]
        assert mapped([1, 14, 2])[1].endswith("ZeroDivisionError: our fault")
        assert "lost a task 4 times (WorkerCrashedError)" in mapped([1, 15, 2])[1]


@pytest.mark.slow
@with_ray
def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    source = write_text(tmp_path / "a.txt", size=20_000)
    process = start(
        20_000, source, tmp_path / "data", ray_environment() | {"RAY_ADDRESS": "127.0.0.1:9"}
    )
    _, err = process.communicate(timeout=250)
    assert process.returncode == 2
    assert "no Ray cluster could be joined at RAY_ADDRESS 127.0.0.1:9" in one_sentence(
        err.strip().splitlines()[-1] + "\n"
    )
    assert not (tmp_path / "data").exists()
