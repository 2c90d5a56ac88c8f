"""Workers: order, errors, that none outlives its parent, and that a Ray cluster changes nothing."""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pool_jobs
import psutil
import pytest

from electrify.errors import UserError
from electrify.text.workers import Processes, cluster, ordered
from small import environment, listing, write_text

HERE = Path(__file__).parent
with_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="the package ray is not installed (extra `ray`)"
)


def test_results_come_in_the_order_of_the_tasks_and_tasks_are_drawn_late() -> None:
    drawn = [0]

    def tasks() -> Iterator[int]:
        for i in range(40):
            drawn[0] += 1
            yield i if i not in (12, 13, 14, 15) else 0

    with Processes(2, pool_jobs.start, 10) as pool:
        results = ordered(pool, tasks())
        assert next(results) == 0
        assert drawn[0] <= 6
        assert list(results) == [10 * i if i not in (12, 13, 14, 15) else 0 for i in range(1, 40)]


@pytest.mark.parametrize(
    ("task", "kind", "message"),
    [
        (13, UserError, "^thirteen is bad$"),
        (14, ZeroDivisionError, "our fault"),
        (15, UserError, "a worker process ended by itself .* fewer --workers"),
    ],
)
@pytest.mark.timeout(120)
def test_an_error_ends_the_tasks_and_the_processes(task, kind, message):
    """Also one that is in the middle of a long task."""
    with pytest.raises(kind, match=message), Processes(2, pool_jobs.start, 10) as pool:
        list(ordered(pool, [1, task, 12, 3]))
    left = [p for p in psutil.Process().children() if "spawn_main" in " ".join(p.cmdline())]
    assert left == []


SCRIPT = """
import sys
sys.path[:0] = {path!r}
from electrify.text.workers import Processes, ordered
import pool_jobs
print("script", flush=True)
with Processes(2, pool_jobs.start, 1) as pool:
    assert list(ordered(pool, [1, 2, 3, 4])) == [1, 2, 3, 4]
    print(*pool._processes, flush=True)
    list(ordered(pool, [12, 12]))
"""


@pytest.mark.timeout(120)
def test_workers_die_with_their_parent_and_do_not_run_its_script(tmp_path: Path) -> None:
    """A script need not guard its main part, and one that is killed leaves no process behind."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(path=[str(HERE), *sys.path]))
    with (tmp_path / "err").open("wb") as err:
        parent = subprocess.Popen(
            [sys.executable, script], stdout=subprocess.PIPE, stderr=err, text=True
        )
        assert parent.stdout is not None
        assert parent.stdout.readline() == "script\n"
        numbers = [int(n) for n in parent.stdout.readline().split()]
        assert 1 <= len(numbers) <= 2
        parent.kill()
        parent.communicate()
    late = time.monotonic() + 20
    while any(map(psutil.pid_exists, numbers)) and time.monotonic() < late:
        time.sleep(0.02)
    assert not any(map(psutil.pid_exists, numbers))
    assert "Traceback" not in (tmp_path / "err").read_text()


def test_workers_load_neither_torch_nor_transformers() -> None:
    """A second of start and 200 MB for each."""
    code = (
        "import sys, electrify.text.encode, electrify.text.workers; "
        "print({'torch', 'transformers', 'pydantic', 'rich'} & {*sys.modules})"
    )
    words = [sys.executable, "-c", code]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "set()\n"


class Pretended:
    """The few calls of Ray that are made. Tasks end as they are asked for."""

    exceptions = SimpleNamespace(RayError=LookupError)
    flying = most = 0

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def put(self, value: Any) -> Any:
        return value

    def remote(self, function: Any) -> Any:
        def run(first: Any, task: Any) -> Any:
            self.flying += 1
            self.most = max(self.most, self.flying)

            def result() -> Any:
                self.flying -= 1
                return function(first, task)

            future = SimpleNamespace(done=lambda: False, result=result)
            return SimpleNamespace(future=lambda: future)

        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=run))


@pytest.mark.parametrize(("count", "most"), [(None, 5), (3, 4)])
def test_tasks_of_a_cluster(monkeypatch: pytest.MonkeyPatch, count: int | None, most: int) -> None:
    ray = Pretended()
    monkeypatch.setitem(sys.modules, "ray", ray)
    with cluster(count, pool_jobs.start, 10) as pool:
        assert list(ordered(pool, range(20, 60))) == [10 * n for n in range(20, 60)]
        assert ray.most == most
        with pytest.raises(UserError, match=r"^thirteen is bad$"):
            list(ordered(pool, [1, 13, 2]))


@pytest.mark.slow
@with_ray
def test_a_cluster_changes_no_byte(tmp_path: Path) -> None:
    source = write_text(tmp_path / "a.txt", size=300_000)
    setting = environment() | {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
        "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path]),
    }

    def run(engine: str) -> subprocess.CompletedProcess[str]:
        words = ["prepare", str(source), "--output-dir", str(tmp_path / engine), "--workers", "2"]
        words += ["--engine", engine, "--vocab-size", "400"]
        return subprocess.run(
            [sys.executable, "-m", "electrify", *words],
            capture_output=True,
            text=True,
            env=setting,
            timeout=280,
            check=False,
        )

    done = [run("local"), run("ray")]
    assert [d.returncode for d in done] == [0, 0], done[1].stderr
    found = [listing(tmp_path / engine) for engine in ("local", "ray")]
    for files in found:
        files.pop("prepare.log.json")
    assert found[0] == found[1]
