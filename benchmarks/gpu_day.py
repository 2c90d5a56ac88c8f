"""What an hour on a GPU is used for, in parts of at most nine minutes, in order of value.

    python benchmarks/gpu_day.py --output-dir OUT [--data DATA] [--tasks TASKS] [--minutes 9]
        [--only PART,...] [--list] [--dry-run]

Each call goes on where the last one stopped: a part that ends with status 0 is done and its output
is OUT/PART.txt; the studies are stopped when the minutes are over, save, and go on with the next
call; saving may take two and a half minutes more. A part that fails is told and the next one
begins; it is tried again by the next call.

DATA is a prepared corpus; 25 M tokens are 50 MB, and 2e16 FLOPs of electra-small see them twelve
times. TASKS is a folder with glue/, tagging/ and blimp/.
Without them the parts that need them are left out. --dry-run does the parts in their shortest form
on any machine, in a folder of its own, OUT/dry-run.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
STOPPED = 75
GRACE_S = 150
"""How long a part that was told to stop may take: a study waits up to two minutes for its runs to
save."""
TASKS = "stsb,stsb:cosine,cola,conll2000:frozen,blimp"
BUDGETS = ("2e16", "2e16,4.5e16", "2e16,4.5e16,8.9e16")  # 1e16 ends within the warm-up


@dataclass(frozen=True)
class Part:
    """A command, and what it is good for."""

    name: str
    why: str
    words: list[str]
    """After the Python interpreter."""
    short: list[str]
    """The same in its shortest form."""
    needs: tuple[str, ...] = ()


def step(name: str, why: str, size: str, batch: str) -> Part:
    script = str(HERE / "step.py")
    words = [script, "--sizes", size, "--batches", batch, "--device", "cuda", "--dropout", "0.1"]
    words += ["--updates", "10", "--minutes", "5"]  # half of that until all sides are compiled
    return Part(name, why, [*words, "--json", f"{name}.json"], [script, "--quick"])


def profile(name: str, why: str, size: str, batch: str) -> Part:
    script = str(HERE / "step_profile.py")
    words = [script, "--size", size, "--batch", batch, "--device", "cuda", "--compile"]
    return Part(name, why, [*words, "--json", f"{name}.json"], [script, "--quick"])


def study(budgets: str, *, data: str, tasks: str) -> Part:
    """electra-small and bert-small. All budgets go into one folder: a larger one begins anew, and
    what is finished stays."""
    words = ["-m", "electrify", "compare", data, "--data-dir", tasks, "--recipes"]
    words += ["bert-small,electra-small", "--output-dir", "study", "--lr-scheduler-type", "recipe"]
    words += ["--seeds", "1", "--task-seeds", "3", "--tasks", TASKS, "--max-train-samples", "5000"]
    name = f"study-{budgets.rpartition(',')[2]}"
    why = f"electra-small against bert-small, {budgets} FLOPs"
    plan = ["-m", "electrify", "compare", "--help"]
    return Part(name, why, [*words, "--budgets", budgets], plan, ("data", "tasks"))


def parts(data: str, tasks: str) -> list[Part]:
    """In order of value: what breaks first, then what is claimed, then what is learned."""
    tests = ["-m", "pytest", "-q", "-m", "gpu", str(HERE.parent / "tests")]
    return [
        Part("tests", "the tests that need a GPU", tests, [*tests, "--collect-only"]),
        step("step-small", "an update of electra-small beside compositions", "small", "128x128"),
        step("step-base", "an update of electra-base beside compositions", "base", "64x512"),
        profile("profile-small", "where the time of that update goes", "small", "128x128"),
        profile("profile-base", "where the time of that update goes", "base", "64x512"),
        *(study(budgets, data=data, tasks=tasks) for budgets in BUDGETS),
    ]


def run(part: Part, out: Path, *, seconds: float, short: bool) -> int:
    """Does a part for at most so many seconds. Returns its status; that of a part that was stopped
    and goes on is STOPPED."""
    words = [sys.executable, *(part.short if short else part.words)]
    with (out / f"{part.name}.txt").open("w") as said:
        said.write(f"$ {shlex.join(words[1:])}\n")
        said.flush()
        process = subprocess.Popen(words, stdout=said, stderr=subprocess.STDOUT, cwd=out)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return STOPPED


def main() -> int:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--output-dir", required=True)
    p.add_argument("--data", help="a prepared corpus")
    p.add_argument("--tasks", help="a folder with glue, tagging and blimp")
    p.add_argument("--minutes", type=float, default=9)
    p.add_argument("--only", help="parts by name, separated by commas")
    p.add_argument("--list", action="store_true", help="name the parts, and what is done")
    p.add_argument("--dry-run", action="store_true", help="the shortest form of each part")
    a = p.parse_args()
    out = Path(a.output_dir).absolute()
    if a.dry_run:  # what it does must not pass for the real thing
        out /= "dry-run"
    out.mkdir(parents=True, exist_ok=True)
    given = {k: str(Path(v).absolute()) for k, v in (("data", a.data), ("tasks", a.tasks)) if v}
    marks = out / "done.json"
    done = json.loads(marks.read_text()) if marks.exists() else []
    until = time.monotonic() + 60 * a.minutes
    failed = 0
    for part in parts(given.get("data", "DATA"), given.get("tasks", "TASKS")):
        lacking = [] if a.dry_run else [f"--{name}" for name in part.needs if name not in given]
        state = "done" if part.name in done else f"needs {', '.join(lacking)}" if lacking else ""
        if a.list or state or (a.only and part.name not in a.only.split(",")):
            print(f"{part.name:15} {state:6} {part.why}", flush=True)
            continue
        left = until - time.monotonic() - 5
        if left <= 0:
            print(f"{part.name:15} waits for the next call", flush=True)
            continue
        status = run(part, out, seconds=left, short=a.dry_run)
        told = {0: "done", STOPPED: "goes on with the next call"}.get(status, f"status {status}")
        failed += status not in (0, STOPPED)
        print(f"{part.name:15} {told}: {out / part.name}.txt", flush=True)
        if status == 0:
            done.append(part.name)
            marks.write_text(json.dumps(done))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
