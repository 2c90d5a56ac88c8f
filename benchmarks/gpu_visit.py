"""What a quarter of an hour on a bare machine with a GPU is used for: one visit, one command.

    python benchmarks/gpu_visit.py --prepare FOLDER [--sides eb6265d8,HEAD]
    python benchmarks/gpu_pack.py pack DATA FOLDER/data.tar
    PYTHONPATH=src python benchmarks/gpu_visit.py N --out OUT --carried FOLDER [--limit 570]

The first two commands run where there are git and a network; FOLDER then travels with the
repository. The last one makes visit N there:

    1  electra-small, 128 x 128: some tests, then the time of an update of each side
    2  electra-small trained for 8 minutes
    3  electra-base, 64 x 512: the time of an update
    4  as 1, the commits alone (for a second kind of GPU)
    5  electra-small trained for 4 minutes, and bert-small for as many FLOPs
    6  corrective-small and bert-modernbert-small trained for 4 minutes each

A side is a commit, or two models of transformers, compiled. Each side is a process of its own; all
compile at the same time, then they take turns. Every reading is appended at once to
OUT/visit-N.jsonl, so that a visit which is killed leaves what it had. A visit ends by itself after
--limit seconds. OUT has at most 8 files of 16 MiB: these lines, the exported models in parts
(`gpu_pack.py join OUT/RECIPE MODEL`; weights in float16 if there are two models), and the
compiler's cache, OUT/cache.00 and so on, which the next visit takes from its FOLDER.

--dry-run makes a small form of the visit on a CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import lzma
import math
import os
import select
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_pack import join, split, unpack
from pairs import in_turns, ratios

HERE = Path(__file__).parent
COMMITTED = ("src", "tests", "pyproject.toml", "benchmarks/*.py")
# The machine has all other dependencies but zstandard, which is loaded for .zst files alone.
LACKING = ("pydantic",)
PYTHON = "3.12"
PEER = "transformers compiled"
SHAPE = ("30522", "0.1")  # vocabulary, dropout
ROUNDS = 15
TESTS = (
    "test_an_update_never_waits[electra-tiny-electra_adam]",
    "test_the_numbers_are_those_of_the_cpu[electra-tiny-True]",
    "test_a_graph_has_the_numbers_of_the_loop[electra-tiny-electra_adam]",
    "test_bfloat16_on_a_gpu_is_that_of_the_cpu[electra-tiny]",
    "test_the_kernel_for_packed_sequences_has_our_windows",
    "test_dropout_of_that_kernel_on_single_weights",
    "test_dropout_of_that_kernel_in_packed_rows",
)
FILES, BYTES = 8, 63 << 20
CACHE = Path("/tmp/gpu-visit-cache")  # always the same: Triton writes absolute paths into it
SAVE_S = 15.0  # for the compiler's cache, after the limit
PROFILE_S = 45.0
COMPILE_S = 30.0  # `--train-minutes` counts the first of two compilations
EXPORT_S = 30.0


@dataclass(frozen=True)
class Steps:
    """The time of an update. updates: between two looks at the clock."""

    size: str
    rows: int
    length: int
    updates: int
    peer: bool = True
    tests: bool = False


@dataclass(frozen=True)
class Training:
    """`electrify pretrain` with a recipe and changes. equal: for the FLOPs of the run before."""

    recipe: str
    minutes: float
    fields: dict[str, Any] = field(default_factory=dict)
    equal: bool = False


VISITS: dict[int, Steps | list[Training]] = {
    1: Steps("small", 128, 128, updates=50, tests=True),
    2: [Training("electra-small", 8)],
    3: Steps("base", 64, 512, updates=10),
    4: Steps("small", 128, 128, updates=50, peer=False),
    5: [Training("electra-small", 4), Training("bert-small", 4, equal=True)],
    6: [
        Training("corrective-small", 4, {"mlm_share": 0.4}),
        Training("bert-modernbert-small", 4),
    ],
}
# At 10 ms an update, a validation each 30 s and a line each 5 s.
FIELDS = {"eval_steps": 3000, "logging_steps": 500, "report_to": "none"}
DRY_FIELDS = {"eval_steps": 20, "logging_steps": 10, "report_to": "none", "eval_rows": 16}
DRY_BATCH = {"train_batch_size": 4, "max_seq_length": 32}


class SideError(Exception):
    """A process ended with an error, which is the text of this one."""


@dataclass
class Visit:
    """Where a visit reads and writes. names: of the commits. until: by time.monotonic()."""

    number: int
    out: Path
    work: Path
    carried: Path
    names: list[str]
    until: float
    dry: bool
    cache: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def note(self, kind: str, **figures: Any) -> None:
        """Appends a line to what comes back."""
        line = json.dumps({"visit": self.number, "dry_run": self.dry, "kind": kind} | figures)
        with (self.out / f"visit-{self.number}.jsonl").open("a", encoding="utf-8") as lines:
            lines.write(line + "\n")
            lines.flush()
            os.fsync(lines.fileno())
        print(line[:400], flush=True)

    def left(self) -> float:
        """Seconds. Raises TimeoutError if there are none."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def folder(self, name: str) -> Path:
        """The tree of a commit."""
        folder = self.work / name
        if not folder.exists():
            with tarfile.open(self.carried / f"{name}.tar.xz") as tar:
                tar.extractall(folder, filter="data")
                self.note("commit", side=name, commit=tar.pax_headers.get("comment"))
        return folder

    def start(self, words: list[str], *, commit: str = "", **how: Any) -> subprocess.Popen[str]:
        """Starts Python with the source of a commit, by default the last one."""
        source = self.folder(commit or self.names[-1]) / "src"
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, (source, self.work / "site"))),
            "TORCHINDUCTOR_CACHE_DIR": str(self.cache),
        }
        process = subprocess.Popen([sys.executable, *words], env=environment, text=True, **how)
        self.processes.append(process)
        return process

    def call(self, words: list[str], **how: Any) -> str:
        """Returns the last line of what such a process printed. Raises SideError."""
        process = self.start(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **how)
        try:
            said, _ = process.communicate(timeout=self.left())
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        if process.returncode:
            raise SideError(last_line(said))
        return last_line(said)

    def save_cache(self) -> None:
        """Writes the compiler's cache, if there is room beside what else comes back."""
        for path in self.out.glob("cache.[0-9][0-9]"):
            path.unlink()
        if self.cache.exists():
            parts = split(self.cache, self.out / "cache", packed=True)
            sizes = [path.stat().st_size for path in self.out.iterdir()]
            saved = len(sizes) <= FILES and sum(sizes) <= BYTES
            self.note("cache", mib=sum(p.stat().st_size for p in parts) / 2**20, saved=saved)
            for path in () if saved else parts:
                path.unlink()

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it printed nothing"])[-1][:500]


class Side:
    """A process of gpu_side.py, which answers questions."""

    def __init__(self, visit: Visit, name: str, words: list[str]) -> None:
        self.visit, self.errors = visit, visit.work / f"{name}.err"
        commit, side = (visit.names[-1], PEER) if name == PEER else (name, "electrify compiled")
        words = [str(HERE / "gpu_side.py"), str(visit.folder(commit)), side, *words]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with self.errors.open("w") as errors:
            self.process = visit.start(words, commit=commit, stderr=errors, **pipes)

    def answer(self) -> dict[str, Any]:
        """Raises SideError if the side has failed, and TimeoutError at the end of the visit."""
        assert self.process.stdout
        if not select.select([self.process.stdout], [], [], self.visit.left())[0]:
            raise TimeoutError
        line = self.process.stdout.readline()
        if not line:
            raise SideError(last_line(self.errors.read_text()))
        return json.loads(line)

    def ask(self, question: str) -> dict[str, Any]:
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):  # then there is no answer either
            print(question, file=self.process.stdin, flush=True)
        return self.answer()


# ------------------------------------------------------------------ the time of an update


def ceilings(v: Visit) -> float:
    """Returns the FLOP/s of plain products."""
    words = ["cpu", "8", "256"] if v.dry else ["cuda", "2048", "8192"]
    side = [str(HERE / "gpu_side.py"), str(v.folder(v.names[-1])), "ceilings"]
    found = json.loads(v.call([*side, *words]))
    v.note("ceilings", **found)
    return 1e12 * found["product_tflop_s"]


def steps(v: Visit, plan: Steps, peak: float) -> None:
    rows, length, updates = (4, 32, 2) if v.dry else (plan.rows, plan.length, plan.updates)
    case = ["quick", "4", "32", "1000", "0.1", "cpu"]
    if not v.dry:
        case = [plan.size, str(rows), str(length), *SHAPE, "cuda"]
    sides = {name: Side(v, name, case) for name in [*v.names, *([PEER] if plan.peer else [])]}
    if plan.tests:
        tests(v)
    found: dict[str, dict[str, Any]] = {}
    hosts: dict[str, list[float]] = {name: [] for name in sides}

    def asked(name: str, kind: str, question: str) -> dict[str, Any]:
        """The answer, which becomes a line; without figures if the side has failed."""
        try:
            answer = sides[name].ask(question) if question else sides[name].answer()
        except SideError as e:
            v.note("failed", side=name, reason=str(e))
            found.pop(name, None)
            return {}
        v.note(kind, side=name, **answer)
        found[name] = found.get(name, {}) | answer
        return answer

    def read(name: str) -> float:
        answer = asked(name, "reading", f"time {updates}") if name in found else {}
        hosts[name].append(answer.get("host_ms", math.nan))
        return answer.get("wall_ms", math.nan)

    for name in sides:
        asked(name, "compiled", "")
    v.save_cache()
    turns = {name: lambda name=name: read(name) for name in found}
    until = v.until - (0 if v.dry else PROFILE_S)
    walls = in_turns(turns, rounds=2 if v.dry else ROUNDS, title="visit", until=until)
    for name in list(found):
        asked(name, "profile", f"profile {min(5, updates)}")
    for name, figures in found.items():
        ms = statistics.median(walls[name])
        compared = ratios(walls[name], walls[next(iter(found))])
        v.note(
            "summary",
            side=name,
            rounds=len(walls[name]),
            wall_ms=ms,
            wall_ms_range=[min(walls[name]), max(walls[name])],
            ratio=statistics.median(compared),
            ratio_to=next(iter(found)),
            host_ms=statistics.median(hosts[name]),
            kernel_ms=figures["kernel_ms"],
            tokens_per_s=1e3 * rows * length / ms,
            mfu=1e3 * figures["flops"] / ms / peak,
            cudagraph_skips=figures["cudagraph_skips"],
        )


def tests(v: Visit) -> None:
    """Runs some tests while the sides compile."""
    began = time.monotonic()
    chosen = [f"tests/train/test_gpu.py::{name}" for name in TESTS]
    words = ["-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "--timeout", "120"]
    try:
        said = v.call([*words, *chosen], cwd=v.folder(v.names[-1]))
    except SideError as e:
        said = str(e)
    v.note("tests", said=said, seconds=time.monotonic() - began)


# ------------------------------------------------------------------ training


def trainings(v: Visit, plan: list[Training], packed: Path) -> None:
    began = time.monotonic()
    data = v.work / "data"
    v.note("data", tokens=unpack(packed, data), seconds=time.monotonic() - began)
    flops = 0.0
    for k, one in enumerate(plan):
        runs = len(plan) - k
        seconds = v.left() / runs - EXPORT_S
        try:
            flops = train(v, one, data, seconds=seconds, flops=flops)
            run, model = v.work / one.recipe, v.work / f"{one.recipe}-model"
            v.call(["-m", "electrify", "export", str(run), "--output-dir", str(model)])
        except SideError as e:
            v.note("failed", run=one.recipe, reason=str(e))
            continue
        parts = split(model, v.out / one.recipe, half=len(plan) > 1)
        v.note("model", run=one.recipe, files=[path.name for path in parts])
    v.save_cache()


def train(v: Visit, one: Training, data: Path, *, seconds: float, flops: float) -> float:
    """Trains for at most so many seconds. Every line of the run's log becomes one of the visit's.

    Args:
        flops: those of the run before.

    Returns: the FLOPs of this run.
    """
    recipe = one.recipe.replace("small", "tiny") if v.dry else one.recipe
    fields = (DRY_FIELDS | DRY_BATCH if v.dry else FIELDS) | one.fields
    if one.equal:
        updates = flops / flops_of_an_update(v, recipe, data)
        fields |= {"max_steps": round(updates), "warmup_steps": round(updates / 10)}
    else:
        fields["train_minutes"] = min(0.2 if v.dry else one.minutes, (seconds - COMPILE_S) / 60)
    flags = [w for k, x in fields.items() for w in ("--" + k.replace("_", "-"), str(x))]
    run, log = v.work / one.recipe, v.work / f"{one.recipe}.err"
    words = ["-m", "electrify", "pretrain", str(data), "--recipe", recipe, *flags]
    v.note("command", run=one.recipe, words=words[4:])
    began, read, status = time.monotonic(), 0, None
    stop_at = began + seconds
    with log.open("w") as errors:
        process = v.start([*words, "--output-dir", str(run)], stdout=errors, stderr=errors)
    while status is None:
        time.sleep(min(0.2, v.left()))
        if time.monotonic() > stop_at:
            process.send_signal(signal.SIGTERM)  # it saves and ends; a second one would kill it
            stop_at = math.inf
        status = process.poll()
        metrics = run / "metrics.jsonl"
        lines = metrics.read_text().splitlines(keepends=True) if metrics.exists() else []
        for line in lines[read:]:
            if line.endswith("\n"):
                record = json.loads(line)
                v.note(record.pop("kind"), run=one.recipe, **record)
                flops = record.get("flops", flops)
                read += 1
    v.note("trained", run=one.recipe, status=status, seconds=time.monotonic() - began)
    if status not in (0, 75):
        raise SideError(last_line(log.read_text()))
    return flops


def flops_of_an_update(v: Visit, recipe: str, data: Path) -> float:
    changes = ",".join(f"{k}={x}" for k, x in DRY_BATCH.items())
    vocab = json.loads((data / "manifest.json").read_text(encoding="utf-8"))["vocab_size"]
    words = ["-m", "electrify", "flops", f"{recipe}:{changes}" if v.dry else recipe, "--json"]
    found = v.call([*words, "--convention", "hardware", "--vocab-size", str(vocab)])
    (figures,) = json.loads(found)["recipes"].values()
    return figures["step"]


# ------------------------------------------------------------------ what travels


def prepare(folder: Path, names: list[str]) -> None:
    """Writes the trees of commits, and the packages that the last one needs and the machine
    lacks."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        words = ["git", "archive", name, "--", *COMMITTED]
        tree = subprocess.run(words, cwd=HERE.parent, check=True, capture_output=True).stdout
        (folder / f"{name}.tar.xz").write_bytes(lzma.compress(tree))
    with tarfile.open(folder / f"{names[-1]}.tar.xz") as tar:
        project = tomllib.load(tar.extractfile("pyproject.toml"))["project"]  # type: ignore[arg-type]
    needs = [need for need in project["dependencies"] if need.startswith(LACKING)]
    if needs:
        prepare_site(folder, needs)
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size / 2**20:8.2f} MiB  {path.name}")


def prepare_site(folder: Path, needs: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        wheels, site = Path(name) / "wheels", Path(name) / "site"
        words = ["pip", "download", "-q", "--only-binary=:all:", "-d", str(wheels)]
        words += ["--python-version", PYTHON, "--implementation", "cp"]
        words += ["--platform", "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64"]
        subprocess.run([sys.executable, "-m", *words, *needs], check=True)
        for wheel in wheels.iterdir():
            zipfile.ZipFile(wheel).extractall(site)
        split(site, folder / "site", packed=True)


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("visit", nargs="?", type=int, choices=VISITS)
    p.add_argument("--prepare", type=Path, metavar="FOLDER", help="write what travels")
    p.add_argument("--sides", default="eb6265d8,HEAD", help="commits; the last one trains")
    p.add_argument("--out", type=Path, help="what comes back")
    p.add_argument("--carried", type=Path, metavar="FOLDER", help="what --prepare wrote")
    p.add_argument("--data", type=Path, help="of gpu_pack.py [default: FOLDER/data.tar]")
    p.add_argument("--limit", type=float, default=570, help="seconds [default: 570]")
    p.add_argument("--dry-run", action="store_true", help="a small form, on a CPU")
    a = p.parse_args()
    names = a.sides.split(",")
    if a.prepare:
        return prepare(a.prepare, names)
    if not (a.visit and a.out and a.carried):
        p.error("give a visit, --out and --carried; or --prepare")
    plan, data = VISITS[a.visit], a.data or a.carried / "data.tar"
    if not (isinstance(plan, Steps) or data.exists()):
        p.error(f"visit {a.visit} trains, and there is no {data}: make it with gpu_pack.py")
    began = time.monotonic()
    a.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="visit-", ignore_cleanup_errors=True) as work:
        until = began + a.limit - SAVE_S
        cache = Path(work) / "cache" if a.dry_run else CACHE
        v = Visit(a.visit, a.out, Path(work), a.carried, names, until, a.dry_run, cache)
        try:
            for name, folder in (("site", v.work / "site"), ("cache", v.cache)):
                if (a.carried / f"{name}.00").exists():
                    join(a.carried / name, folder)
            peak = ceilings(v)
            if isinstance(plan, Steps):
                steps(v, plan, peak)
            else:
                trainings(v, plan, data)
        except TimeoutError:
            v.note("limit", seconds=a.limit)
            v.save_cache()
        finally:
            v.end()
        v.note("end", seconds=time.monotonic() - began)
    return None


if __name__ == "__main__":
    main()
