"""The program as a user has it: how `electrify` is called, and where it leaves what.

This is the only file of the contract that knows flags and names of files. Nothing of electrify is
imported by the tests; `python program.py JOBS.json` runs several command lines in one process,
because each start costs seconds.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
# Fields of metrics.jsonl that tell how fast the machine was.
OF_THE_MACHINE = {"seconds", "tokens_per_s", "flops_per_s", "mfu", "peak_memory_bytes", "joules"}

COUNTS = ("documents", "duplicates", "characters", "words", "tokens", "unk_tokens")

# In place of a verb: all shipped recipes as JSON, for which there is no command.
RECIPES = "all recipes"


def words(verb: str, *what: Any, **flags: Any) -> list[str]:
    """words("pretrain", "data", max_steps=3) -> ["pretrain", "data", "--max-steps", "3"]. None
    leaves a flag out."""
    line = [verb, *map(str, what)]
    for name, value in flags.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        line += ["--" + name.replace("_", "-"), text] if value is not None else []
    return line


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str

    def ok(self) -> Done:
        assert self.status == 0, self.err
        return self

    def sentence(self) -> str:
        """What a user is told of a mistake: the last line, nothing on standard output."""
        assert (self.status, self.out) == (2, ""), f"status {self.status}: {self.err}"
        assert "Traceback" not in self.err, self.err
        return self.err.rstrip("\n").rsplit("\n", 1)[-1]


@dataclass
class Running:
    """A command in a process of its own, and in a process group of its own."""

    popen: subprocess.Popen[str]

    def send(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def wait_for(self, happened: Callable[[], bool]) -> None:
        while not happened():
            assert self.popen.poll() is None, self.end().err
            time.sleep(0.01)

    def end(self) -> Done:
        out, err = self.popen.communicate(timeout=1800)
        return Done(self.popen.returncode, out, err)

    def kill(self) -> Done:
        """SIGKILL to the process and to those that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        return self.end()

    def workers(self) -> dict[str, int]:
        """The process of each rank that torchrun started."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parent = (folder / "stat").read_text().rsplit(")", 1)[1].split()[1]
                lines = (folder / "environ").read_text().split("\0")
                ranks = [line[5:] for line in lines if line.startswith("RANK=")]
                if parent == str(self.popen.pid) and ranks:
                    found[ranks[0]] = int(folder.name)
        return found


@dataclass(frozen=True)
class Program:
    """A checkout of electrify and the Python that runs it."""

    checkout: Path
    python: Path

    @property
    def substitution(self) -> str:
        """The task of word substitution, which was called planted."""
        known = (self.checkout / "src" / "electrify" / "studies" / "score.yaml").read_text()
        return "planted" if "planted" in known else "substitution"

    def environment(self) -> dict[str, str]:
        """One thread on the CPU, without a network: the same sums in the same order."""
        return os.environ | {
            "PYTHONPATH": str(self.checkout / "src"),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "HF_HUB_OFFLINE": "1",
        }

    def start(self, line: Sequence[str], *, processes: int = 1, restarts: int = 0) -> Running:
        """`electrify LINE`, under torchrun where there are several processes."""
        return Running(self._popen(["-m", "electrify", *line], processes, restarts))

    def run(
        self,
        line: Sequence[str],
        *,
        stdin: str | None = None,
        processes: int = 1,
        longest_file: int | None = None,
    ) -> Done:
        """longest_file: the kernel refuses longer ones (bytes), as a full disk would."""
        running = self.start(line, processes=processes)
        if longest_file is not None:
            limits = (longest_file, longest_file)
            resource.prlimit(running.popen.pid, resource.RLIMIT_FSIZE, limits)
        out, err = running.popen.communicate(stdin, timeout=900)
        return Done(running.popen.returncode, out, err)

    def batch(self, lines: Sequence[Sequence[str]]) -> list[Done]:
        """Command lines, one after the other in the same process."""
        with tempfile.TemporaryDirectory() as folder:
            jobs = Path(folder, "jobs.json")
            jobs.write_text(json.dumps([list(line) for line in lines]), encoding="utf-8")
            Running(self._popen([str(HERE), str(jobs)])).end().ok()
            return [Done(**one) for one in json.loads(jobs.read_text(encoding="utf-8"))]

    def one(self, *what: Any, **flags: Any) -> Done:
        return self.run(words(*what, **flags)).ok()

    def _popen(
        self, command: list[str], processes: int = 1, restarts: int = 0
    ) -> subprocess.Popen[str]:
        torchrun = ["-m", "torch.distributed.run", "--standalone"]
        torchrun += ["--nproc-per-node", str(processes), "--max-restarts", str(restarts)]
        return subprocess.Popen(
            [str(self.python), *(torchrun if processes > 1 else []), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment(),
            text=True,
            start_new_session=True,
        )


# ------------------------------------------------------------------ what is left in folders


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def corpus(data: Path) -> dict[str, Any]:
    """Hashes of the tokens and of the bounds of the documents of each split and of the tokenizer,
    and what was counted."""
    manifest = json.loads((data / "manifest.json").read_text(encoding="utf-8"))
    counts = {name: manifest["counts"][name] for name in COUNTS}
    found: dict[str, Any] = {"counts": counts, "special": manifest["special_ids"]}
    for split, shards in manifest["splits"].items():
        for part in ("tokens", "documents"):
            files = [(data / shard[f"{part}_file"]).read_bytes() for shard in shards]
            found[f"{split} {part}"] = [sha256(content) for content in files]
    tokenizer = json.loads((data / "tokenizer" / "tokenizer.json").read_text(encoding="utf-8"))
    found["tokenizer"] = sha256(json.dumps(tokenizer, sort_keys=True).encode())
    return found


def metrics(run: Path) -> list[dict[str, Any]]:
    """The records of training and validation, without the machine's speed. A line that a kill cut
    is left out."""
    found = []
    if (run / "metrics.jsonl").is_file():
        for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                record = json.loads(line)
                if record["kind"] != "event":
                    found.append({k: v for k, v in record.items() if k not in OF_THE_MACHINE})
    return found


def events(run: Path) -> list[dict[str, Any]]:
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [r for r in map(json.loads, lines) if r["kind"] == "event"]


def logged_step(run: Path) -> int:
    return max((record["step"] for record in metrics(run)), default=0)


def checkpoints(run: Path) -> list[Path]:
    """Oldest first."""
    return sorted(run.glob("checkpoint-*"), key=lambda folder: int(folder.name.split("-")[1]))


def exports(run: Path) -> dict[str, Path]:
    """The Hugging Face folders that a run leaves, by their part."""
    return {path.parent.name: path.parent for path in sorted(run.glob("[dcgs]*or/config.json"))}


def tensors(file: Path) -> dict[str, Any]:
    from safetensors.numpy import load_file

    return load_file(file)


def bits(file: Path) -> str:
    """One hash of the names, shapes and bytes of all tensors."""
    parts = [(n, a.shape, sha256(a.tobytes())) for n, a in sorted(tensors(file).items())]
    return sha256(repr(parts).encode())


def ending(run: Path) -> dict[str, Any]:
    """What must be the same, to the bit, of a run that was interrupted and of one that was not."""
    newest = checkpoints(run)[-1]
    files = [
        *newest.glob("*.safetensors"),
        *(f / "model.safetensors" for f in exports(run).values()),
    ]
    names = {str(file.relative_to(run)): bits(file) for file in files}
    return {"log": metrics(run), "step": newest.name, **names}


def recipe_of(run: Path) -> dict[str, Any]:
    """All fields of the recipe of a run, without their sections."""
    import yaml

    sections = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    return {name: value for section in sections.values() for name, value in section.items()}


def scores(out: Path) -> dict[str, dict[str, float]]:
    """What `finetune` found, by task, seed, and whether the weights were random; and each
    baseline's scores."""
    lines = (out / "scores.jsonl").read_text(encoding="utf-8").splitlines()
    found = {}
    for r in map(json.loads, lines):
        kind = str(r["model"]).partition(":")[0]
        name = r["model"] if kind == "baseline" else kind == "random"
        found[f"{r['task']} {r['seed']} {name}"] = r["scores"]
    return found


# ------------------------------------------------------------------ in the process of a batch


def recipes() -> dict[str, dict[str, Any]]:
    """The fields of every shipped recipe, as a run would have them."""
    from electrify.recipe import load, names, values_of

    return {name: values_of(load(name)) for name in names()}


def ended(line: list[str]) -> dict[str, Any]:
    from electrify.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            if line == [RECIPES]:
                print(json.dumps(recipes()))
                status = 0
            else:
                status = main(line)
        except SystemExit as e:
            status = int(e.code or 0)
        except Exception:  # noqa: BLE001 - the other lines go on
            traceback.print_exc()
            status = 1
    return {"status": status, "out": out.getvalue(), "err": err.getvalue()}


if __name__ == "__main__":
    JOBS = Path(sys.argv[1])
    LINES = json.loads(JOBS.read_text(encoding="utf-8"))
    JOBS.write_text(json.dumps([ended(line) for line in LINES]), encoding="utf-8")
