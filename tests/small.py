"""The smallest real thing: 100 kB of generated text, prepared by the real verb, recipes of one
layer, and `python -m electrify` as a process."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest

from electrify.train import METRICS, checkpoint, log, machine

machine.git_commit = cache(machine.git_commit)  # a process of git, for each run
machine.measure_peak = cache(machine.measure_peak)  # a quarter of a second, for each run

SMALL: dict[str, Any] = {
    "num_hidden_layers": 1,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "embedding_size": 32,
    "max_position_embeddings": 32,
    "max_seq_length": 16,
    "train_batch_size": 4,
    "warmup_steps": 5,
    "eval_rows": 16,
    "eval_steps": 0,
    "bf16": False,
    "device": "cpu",
    "report_to": "none",
}
# A run in which a validation, a save and a line of the log come at different updates.
SHORT: dict[str, Any] = {"max_steps": 12, "logging_steps": 4, "save_steps": 5, "eval_steps": 8}
DROPOUT = {"dropout": 0.1, "attention_dropout": 0.1}

_PAIRS = zip("bcdfghjklmnprstvwz", "aoiuaeoiauoeaiouae", strict=True)
_SYLLABLES = [*map("".join, _PAIRS), "chi", "sho", "tra", "ple"]


def write_text(path: Path, *, size: int = 100_000, seed: int = 0) -> Path:
    """Documents of a made-up language: each noun has its own few adjectives and verbs, so a word
    can be guessed from its neighbours."""
    rng = random.Random(seed)
    words = ["".join(rng.choices(_SYLLABLES, k=rng.randint(1, 3))) for _ in range(160)]
    nouns, adjectives, verbs = words[:60], words[60:110], words[110:]
    habits = {
        n: (rng.sample(adjectives, 3), rng.sample(verbs, 3), rng.sample(nouns, 4)) for n in nouns
    }

    def sentence() -> str:
        noun = nouns[int(60 * rng.random() ** 2)]
        own, does, likes = habits[noun]
        other = rng.choice(likes)
        like = rng.choice(own), rng.choice(does), rng.choice(habits[other][0])
        return f"the {like[0]} {noun} {like[1]}ed a {like[2]} {other}."

    documents, length = [], 0
    while length < size:
        documents.append(" ".join(sentence() for _ in range(rng.randint(2, 9))))
        length += len(documents[-1]) + 2
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


def prepare_small(folder: Path, *, seed: int = 0, vocab_size: int = 512) -> Path:
    """A prepared corpus of `write_text`, made by the real verb in this process."""
    from electrify.text.options import PrepareConfig
    from electrify.text.prepare import prepare

    source = write_text(folder.with_name(folder.name + ".txt"), seed=seed)
    prepare(
        PrepareConfig(
            inputs=(str(source),),
            output_dir=str(folder),
            vocab_size=vocab_size,
            valid_fraction=0.05,
            workers=1,
        )
    )
    return folder


def flags(**fields: Any) -> list[str]:
    """{"max_steps": 3} -> ["--max-steps", "3"]."""
    words = []
    for name, value in fields.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        words += ["--" + name.replace("_", "-"), text]
    return words


def pretrain_words(
    data: Path | str, run: Path, *, recipe: str = "electra-tiny", **fields: Any
) -> list[str]:
    """The words after `electrify` of a pre-training of the SMALL size."""
    own = flags(output_dir=run, recipe=recipe, **(SMALL | fields))
    return ["pretrain", str(data), *own]


@dataclass(frozen=True)
class Done:
    """How a process ended."""

    status: int
    out: str
    err: str


def environment(**variables: str) -> dict[str, str]:
    """One thread: threads decide the order of sums, and two of them on a busy machine wait for each
    other."""
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"} | variables


@dataclass
class Process:
    """`python -m electrify ...`, running. stderr goes to a file, so that no pipe can fill up."""

    words: Sequence[str]
    errors: Path
    prefix: Sequence[str] = ("-m", "electrify")
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        with self.errors.open("wb") as err:
            self.popen = subprocess.Popen(
                [sys.executable, *self.prefix, *self.words],
                stdout=subprocess.PIPE,
                stderr=err,
                env=environment(**self.variables),
                text=True,
            )

    def wait_for(self, happened: Callable[[], bool], *, seconds: float = 300) -> bool:
        """Whether `happened` came true before the process ended. Polls every millisecond."""
        while self.popen.poll() is None:
            if happened():
                return True
            if time.monotonic() - self.began > seconds:
                self.kill()
                raise AssertionError(f"nothing happened in {seconds} s: {self.errors.read_text()}")
            time.sleep(0.001)
        return False

    def signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def kill(self) -> None:
        """With the processes that it started (torchrun puts its own into groups of their own), if
        any are left."""
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.popen.wait()
        if self.popen.stdout is not None:
            self.popen.stdout.close()

    def family(self) -> list[psutil.Process]:
        """The process and all that it started; none where it has ended and was waited for."""
        try:
            this = psutil.Process(self.popen.pid)
            return [this, *this.children(recursive=True)] if self.popen.poll() is None else []
        except psutil.NoSuchProcess:
            return []

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def end(self, *, seconds: float = 300) -> Done:
        try:
            out, _ = self.popen.communicate(timeout=seconds)
        finally:
            self.kill()
        return Done(self.popen.returncode, out, self.errors.read_text(encoding="utf-8"))


def electrify(
    words: Sequence[str], folder: Path, *, expect: int = 0, seconds: float = 300, **variables: str
) -> Done:
    """Runs `python -m electrify WORDS` to its end and checks its exit status."""
    done = Process(words, folder / "stderr.txt", variables=variables).end(seconds=seconds)
    assert done.status == expect, f"status {done.status}, not {expect}: {done.err}"
    return done


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def torchrun(words: Sequence[str], folder: Path) -> Process:
    """`electrify WORDS` in two processes."""
    return Process(["-m", "electrify", *words], folder / "stderr.txt", prefix=TORCHRUN)


def signalled(patch: pytest.MonkeyPatch, *, step: int, number: signal.Signals) -> None:
    """Runs in this process get the signal in this update, between its gradients and its
    optimiser."""
    from electrify.train.loop import Run

    accumulate = Run.accumulate

    def hit(self: Run, parts: Any) -> Any:
        found = accumulate(self, parts)
        if self.step + 1 == step:
            os.kill(os.getpid(), number)
        return found

    patch.setattr(Run, "accumulate", hit)


def one_sentence(err: str) -> str:
    """The last line on stderr, which is the message of a user's mistake."""
    assert "Traceback" not in err, err
    last = err.rstrip("\n").rsplit("\n", 1)[-1]
    assert last.startswith("electrify"), err
    return last


def run(*words: str) -> int:
    """The status of `electrify WORDS`, in this process."""
    from electrify import cli

    try:
        return cli.main(list(words))
    except SystemExit as e:
        return int(e.code or 0)


def mistake(capsys: pytest.CaptureFixture[str], *words: str | Path, longest: int = 400) -> str:
    """The sentence about a mistake: status 2, nothing on standard output."""
    capsys.readouterr()
    status = run(*map(str, words))
    out, err = capsys.readouterr()
    assert (status, out) == (2, ""), err
    sentence = one_sentence(err)
    assert len(sentence) < longest
    return sentence


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The kernel refuses longer files, as a full disk or a quota would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def steps_of(run: Path) -> list[int]:
    """Steps of the checkpoint folders, whatever is in them."""
    return checkpoint.steps(run)


def parameters_sha256(run: Path, step: int, *, part: str = "model") -> str:
    file = run / f"checkpoint-{step}" / f"{part}.safetensors"
    return hashlib.sha256(file.read_bytes()).hexdigest()


TIMING_FIELDS = {"seconds", "tokens_per_s", "flops_per_s", "mfu", "peak_memory_bytes"}


def without_time(fields: dict[str, Any]) -> dict[str, Any]:
    """A record or state without what the machine's speed decides."""
    return {k: v for k, v in fields.items() if k not in TIMING_FIELDS}


def records(run: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """metrics.jsonl without events and what the machine's speed decides."""
    every = [without_time(r) for r in log.read(run / METRICS) if r["kind"] != "event"]
    return [r for r in every if kind in (None, r["kind"])]


def logged_step(run: Path) -> int:
    """The last step in metrics.jsonl, 0 where there is none."""
    path = run / METRICS
    return max((r["step"] for r in log.read(path)), default=0) if path.is_file() else 0


def same_ending(a: Path, b: Path, *, step: int) -> None:
    """Fails where two runs do not end with the same bytes of parameters and optimiser and the same
    log."""
    assert records(a) == records(b)
    for part in ("model", "optimizer"):
        assert parameters_sha256(a, step, part=part) == parameters_sha256(b, step, part=part)
    one, other = (checkpoint.load(run / f"checkpoint-{step}")[1] for run in (a, b))
    assert without_time(one) == without_time(other)


CLOSE = 1e-6


def same_numbers(a: Path, b: Path, **less_close: float) -> None:
    """Fails where two logs do not hold the same records: whole numbers equal, others to CLOSE, or
    to what `less_close` has for the field (relative where large, as norms and losses are)."""
    ours, theirs = records(a), records(b)
    assert [(r["kind"], r["step"], r.keys()) for r in ours] == [
        (r["kind"], r["step"], r.keys()) for r in theirs
    ]
    for x, y in zip(ours, theirs, strict=True):
        for name, value in x.items():
            if isinstance(value, float):
                close = less_close.get(name, CLOSE)
                value = pytest.approx(value, rel=close, abs=close)
            assert y[name] == value, (x["kind"], x["step"], name)


def listing(folder: Path) -> dict[str, str]:
    """Every file below a folder with the hash of its content."""
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def model_files(folder: Path) -> dict[str, str]:
    """Like `listing`, of an exported model: without its card, which says how long the training
    took."""
    return {name: h for name, h in listing(folder).items() if name != "README.md"}
