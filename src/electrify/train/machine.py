"""The machine: which device computes and in which precision, how many threads, what memory there
is. Nothing here names the host or one of its folders."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import torch

from ..console import size
from ..cores import cores, thread_count
from ..errors import UserError
from ..model.shape import Shape
from ..progress import say
from ..recipe import Recipe, override
from .dist import World, any_across

# ---------------------------------------------------------------------------- device and precision


def pick_device(name: str) -> torch.device:
    """The device for `auto`, `cpu`, `cuda` or `cuda:N`. Raises UserError if there is none."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name != "cpu" and not re.fullmatch(r"cuda(:(0|[1-9][0-9]?))?", name):
        raise UserError(f"there is no device {name!r}; known: auto, cpu, cuda, cuda:0, cuda:1, ...")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(
            f"device {name} was asked for and torch finds {torch.cuda.device_count()} GPUs, "
            "counted from 0. Choose another one, cpu or auto"
        )
    return device


def supports_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 matrices in hardware, so that autocast makes training
    faster."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if platform.machine().lower() in ("aarch64", "arm64"):
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    native = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(bool(getattr(torch.cpu, name, lambda: False)()) for name in native)


def with_precision(config: Recipe, world: World, *, begun: bool | None) -> Recipe:
    """The recipe with `bf16` true or false: as it says, as the run began, or as every device can.
    begun: what the run that goes on computes in; None if none does.

    A processor without arithmetic in bfloat16 emulates it: an update of bert-tiny takes twelve
    times as long as in float32 (research/log.md). On a GPU, products of float32 matrices use TF32.
    """
    if world.device.type == "cuda":
        # Without it, they do not use the tensor cores.
        torch.backends.cuda.matmul.allow_tf32 = True
    able = supports_bf16(world.device)
    bf16 = config.train.bf16
    if bf16 is None:
        bf16 = not any_across(not (able if begun is None else begun))
    if bf16 and not able and world.is_main:
        say(
            f"this {'processor' if world.device.type == 'cpu' else 'device'} emulates bfloat16, "
            "which is slow; a run that begins with --bf16 false is many times as fast here"
        )
    return config if bf16 == config.train.bf16 else override(config, {"bf16": bf16})


def describe(device: torch.device | None = None) -> dict[str, Any]:
    """What a result depends on: device, cores, threads, versions, platform, commit, as JSON.

    device: None for the one that `auto` picks.
    """
    device = device or pick_device("auto")
    on_gpu = device.type == "cuda"
    facts: dict[str, Any] = {
        "device": str(device),
        "device_name": device_name(device),
        "device_memory_bytes": torch.cuda.get_device_properties(device).total_memory
        if on_gpu
        else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "platform": f"{platform.system()}-{platform.machine()}",
        "commit": git_commit(),
        "cuda": torch.version.cuda,
    }
    for name in ("electrify", "torch", "transformers", "tokenizers", "numpy", "safetensors"):
        facts[name] = metadata.version(name)
    return facts


def device_name(device: torch.device) -> str:
    """The name of the GPU, or of the processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    with suppress(OSError):  # macOS has no such file
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def git_commit(file: Path = Path(__file__)) -> str | None:
    """The commit of the source tree that `file` belongs to, with `-dirty` if files were changed;
    None outside one. A package that is installed inside somebody else's repository is not tracked
    there, so it does not get that repository's commit."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=file.parent, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", file.name)
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.CalledProcessError):
        return None


# ---------------------------------------------------------------------------- threads

# Longer than a scheduler's time slice; otherwise the first slice would decide the result.
TURN_S = 0.08
# At most this many rounds, and only as many as begin within BUDGET_S: on a busy machine one pass
# may take half a second.
ROUNDS = 5
BUDGET_S = 1.0
GAIN = 1.05  # the least gain of one more thread; with less, the core is left to others
FLOPS = 5e9  # of one pass, which takes 10 to 25 ms of a core
# As in the tiny recipes: the tokens of a row, and the width of an attention head.
ROW = 64
HEAD = 32
USERS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # torchrun sets the first


@dataclass(frozen=True)
class Threads:
    """A number of threads and who chose it. own: chosen by torch, by the environment, or earlier in
    this process."""

    number: int
    chosen_by: Literal["user", "own", "earlier", "measurement"]
    asked: int | None = None
    """The number that the user asked for, if it exceeds the number of cores."""
    speeds: dict[int, float] = field(default_factory=dict)
    """For each number of threads, the speed relative to one thread; empty if nothing was
    measured."""

    def facts(self) -> dict[str, Any]:
        """The same for run.json."""
        return {
            "number": self.number,
            "chosen_by": self.chosen_by,
            "speeds": {str(n): round(s, 3) for n, s in self.speeds.items()},
        }

    def text(self) -> str:
        """`computing with 1 thread (measured: 2 threads 0.87 times as fast as one)`; empty if there
        is nothing to say."""
        if self.asked:
            return (
                f"warning: threads {self.asked} is more than the cores that this process may use: "
                f"computing with {self.number}"
            )
        others = ", ".join(f"{n} threads {s:.2f}" for n, s in self.speeds.items() if n > 1)
        return others and (
            f"computing with {self.number} thread{'s' * (self.number > 1)} (measured: {others} "
            "times as fast as one)"
        )


def choose(
    given: str,
    *,
    device: torch.device,
    width: int,
    tokens: int,
    bf16: bool,
    earlier: object = None,
    processes: int = 1,
) -> Threads:
    """Chooses the threads of a run. given: --threads; earlier: the number that a continued run has
    used so far, if any. The order of sums depends on the number, so a run changes it only if the
    user says so.

    In this order: what the user asked for; what the environment says (OMP_NUM_THREADS), or torch's
    own number on a GPU or with several processes; what the run has used so far; a measurement with
    at most torch's own number. Raises UserError if `given` is neither auto nor a number.
    """
    asked = thread_count(given)
    own = torch.get_num_threads()
    if asked:
        return Threads(min(asked, cores()), "user", asked if asked > cores() else None)
    if device.type != "cpu" or processes > 1 or any(os.environ.get(name) for name in USERS):
        return Threads(own, "own")
    # A continued run may have begun on a larger machine.
    if isinstance(earlier, int) and earlier <= cores():
        return Threads(earlier, "earlier")
    if own == 1:
        return Threads(own, "own")
    speeds = measured(candidates(own), width=width, tokens=tokens, bf16=bf16)
    return Threads(fewest_fast(speeds), "measurement", speeds=speeds)


@contextmanager
def computing_with(threads: Threads) -> Iterator[Threads]:
    """A context in which torch computes with this many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads.number)
    try:
        yield threads
    finally:
        torch.set_num_threads(before)


def candidates(most: int) -> list[int]:
    """The numbers to measure: 1, 2, 4, ... and `most`."""
    return sorted({2**k for k in range(most.bit_length())} | {most})


def fewest_fast(speeds: dict[int, float]) -> int:
    """The fastest number of threads such that each step up to it gains at least GAIN."""
    best = 1
    for number, speed in sorted(speeds.items()):
        if speed > GAIN * speeds[best]:
            best = number
    return best


def measured(numbers: list[int], *, width: int, tokens: int, bf16: bool) -> dict[int, float]:
    """The speed of each number of threads relative to one thread, for passes through a Transformer
    layer of this width, forward and backward: it has the mix of matrix products and small
    operations of a training step. The numbers are measured in turns; the result is the median of
    paired rounds.

    tokens: per pass, fewer if the layer is wide. torch's number of threads and its random generator
    are left as they were.
    """
    heads = max(1, width // HEAD)
    width -= width % heads
    rows = -(-max(256, min(tokens, int(FLOPS / (72 * width**2)))) // ROW)
    with torch.random.fork_rng(devices=[]):
        layer = torch.nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True
        )
        x_RLD = torch.randn(rows, ROW, width)

    from torch.utils.benchmark import Timer

    def one_pass() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = layer(x_RLD).square().mean()
        torch.autograd.grad(loss, list(layer.parameters()))

    timers = {n: Timer("f()", globals={"f": one_pass}, num_threads=n) for n in numbers}
    seconds: dict[int, list[float]] = {number: [] for number in numbers}
    began = time.perf_counter()
    for k in range(ROUNDS):
        if k and time.perf_counter() - began > BUDGET_S:
            break
        for number in numbers[:: 1 if k % 2 == 0 else -1]:
            seconds[number].append(timers[number].blocked_autorange(min_run_time=TURN_S).mean)
    return {
        n: statistics.median(one / s for one, s in zip(seconds[1], seconds[n], strict=True))
        for n in numbers
    }


# ---------------------------------------------------------------------------- memory

# From malloc.h of glibc.
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3
TRAINED_BYTES = 16  # for a parameter in float32 with its gradient and two moments
CGROUP = Path("/sys/fs/cgroup/memory.max")


def keep_memory() -> bool:
    """Tells glibc to keep freed memory instead of handing it back to the kernel. Returns whether
    that worked.

    By default glibc maps every large block (above 32 MiB at the latest) anew and the kernel zeroes
    it page by page, so a step spends up to a third of its time in page faults (logits and attention
    weights are such blocks). Measured in research/results.md.
    """
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # macOS and musl have none
        return False
    settings = {_M_MMAP_THRESHOLD: 1 << 30, _M_TRIM_THRESHOLD: (1 << 31) - 1, _M_TOP_PAD: 64 << 20}
    return all(mallopt(ctypes.c_int(k), ctypes.c_int(v)) == 1 for k, v in settings.items())


def peak_memory_bytes(device: torch.device) -> int:
    """The peak of memory so far: allocated by torch on a GPU, or resident in the process on a
    CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Not getrusage: on Linux it starts a process's peak at what its parent had resident.
    return _kilobytes("/proc/self/status", "VmHWM:")


def available_bytes() -> int:
    """The memory that this process may still take: what the system has available, up to the limit
    of its container."""
    if sys.platform == "darwin":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    available = _kilobytes("/proc/meminfo", "MemAvailable:")
    with suppress(OSError, ValueError):  # "max" if there is no limit
        available = min(available, int(CGROUP.read_text(encoding="ascii")))
    return available


def _kilobytes(file: str, name: str) -> int:
    """The bytes that a file of the kernel gives under this name in kilobytes."""
    lines = Path(file).read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


def run_must_fit(config: Recipe, shape: Shape, *, rows: int, world: World) -> None:
    """Raises UserError if the training of an encoder of this shape cannot fit into memory. The
    estimate is a lower bound: it counts the parameters with their optimiser state, and one hidden
    state per token and layer for the backward pass.

    rows: rows of one forward pass of this process.
    """
    length = max(config.data.max_seq_length, *config.data.seq_length_schedule, 0)
    shares = world.size if config.train.fsdp == "full_shard" else 1
    parameters = shape.least_parameters
    states = 2 * rows * length * shape.hidden_size * shape.num_hidden_layers
    need = TRAINED_BYTES * parameters // shares + states
    room = (
        torch.cuda.get_device_properties(world.device).total_memory
        if world.device.type == "cuda"
        else available_bytes()
    )
    if need > room:
        raise UserError(
            f"{parameters:,} parameters with their optimiser, and {rows:,} rows of {length:,} "
            f"tokens, needs at least {size(need)} of memory; {size(room)} are free. Choose smaller "
            "numbers"
        )
