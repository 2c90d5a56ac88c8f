"""The machine: which device computes, in which precision and how fast at most, how many threads,
what memory there is. Nothing here names the host or one of its folders."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import linear

from ..errors import UserError
from ..process import cores, thread_count
from ..progress import say
from ..recipe import Recipe, override
from .dist import World, any_across

# ---------------------------------------------------------------------------- device and precision


def pick_device(name: str) -> torch.device:
    """The device for `auto`, `cpu`, `cuda` or `cuda:N`. Each of several processes has the GPU of
    its LOCAL_RANK. Raises UserError if there is none."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return torch.device("cpu")
    if not re.fullmatch(r"cuda(:(0|[1-9][0-9]?))?", name):
        raise UserError(f"there is no device {name!r}; known: auto, cpu, cuda, cuda:0, cuda:1, ...")
    device = torch.device(name)
    if device.index is None or os.environ.get("WORLD_SIZE", "1") != "1":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    if device.index >= torch.cuda.device_count():
        raise UserError(
            f"device {device} was asked for and torch finds {torch.cuda.device_count()} GPUs, "
            "counted from 0. Choose another one, cpu or auto, or start fewer processes"
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


def can_compile(device: torch.device) -> bool:
    """Whether it is a GPU for which torch's compiler writes kernels: from Volta on, and with the
    package triton and a C compiler, which builds what starts them."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (7, 0):
        return False
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    return bool(compiler) and find_spec("triton") is not None


def with_machine(recipe: Recipe, world: World, begun: Mapping[str, Any]) -> Recipe:
    """The recipe with `bf16` and `torch_compile` true or false: as it says, as the run began, or as
    every device can. begun: the recipe of the run that goes on; empty if none does.

    A processor without arithmetic in bfloat16 emulates it: an update of bert-tiny takes twelve
    times as long as in float32 (research/log.md). On a GPU this also lets all products of float32
    matrices use TF32.
    """
    t, device = recipe.train, world.device
    if device.type == "cuda":
        # Without it, they do not use the tensor cores.
        torch.backends.cuda.matmul.allow_tf32 = True
    fast = supports_bf16(device)
    able = {"bf16": fast, "torch_compile": can_compile(device) and t.fsdp != "full_shard"}
    free = [name for name in able if getattr(t, name) is None]
    chosen = {name: not any_across(not begun.get(name, able[name])) for name in free}
    recipe = override(recipe, chosen)
    if recipe.train.bf16 and not fast:
        world.say(
            f"this {'processor' if device.type == 'cpu' else 'device'} emulates bfloat16, "
            "which is slow; a run that begins with bf16=false is many times as fast here"
        )
    return recipe


def describe(device: torch.device) -> dict[str, Any]:
    """What a result depends on: device, cores, threads, versions, platform, commit, as JSON."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory
    facts: dict[str, Any] = {
        "device": str(device),
        "device_name": device_name(device),
        "device_memory_bytes": memory,
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


def git_commit() -> str | None:
    """The commit of this source tree, with `-dirty` if files were changed; None for an installed
    package."""
    tree = Path(__file__).parents[3]
    if not (tree / ".git").exists() or not shutil.which("git"):
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True).stdout.strip() or None


# ---------------------------------------------------------------------------- threads

# Longer than a scheduler's time slice; otherwise the first slice would decide the result.
TURN_S = 0.08
BUDGET_S = 1.0  # in which the last round begins: on a busy machine one pass may take half a second
GAIN = 1.05  # the least gain of one more thread; with less, the core is left to others
FLOPS = 5e9  # of one pass, which takes 10 to 25 ms of a core
# As in the tiny recipes: the tokens of a row, and the width of an attention head.
ROW = 64
HEAD = 32
USERS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # torchrun sets the first


def choose_threads(
    given: str,
    *,
    device: torch.device,
    width: int,
    tokens: int,
    bf16: bool,
    earlier: object = None,
    processes: int = 1,
) -> int:
    """The number of threads of a run; reports a measurement. given: the option `threads`; earlier:
    the number that a continued run has used so far, if any. The order of sums depends on the
    number, so a run changes it only if the user says so.

    In this order: what the user asked for, up to the cores; what the environment says
    (OMP_NUM_THREADS), or torch's own number on a GPU or with several processes; what the run has
    used so far; a measurement with at most torch's own number. Raises UserError if `given` is
    neither auto nor a number.
    """
    asked = thread_count(given)
    own = torch.get_num_threads()
    if asked:
        return min(asked, cores())
    if device.type != "cpu" or processes > 1 or any(os.environ.get(name) for name in USERS):
        return own
    # A continued run may have begun on a larger machine.
    if isinstance(earlier, int) and earlier <= cores():
        return earlier
    if own == 1:
        return own
    numbers = sorted({2**k for k in range(own.bit_length())} | {own})
    speeds = thread_speeds(numbers, width=width, tokens=tokens, bf16=bf16)
    number = fewest_fast(speeds)
    others = ", ".join(f"{n} threads {speed:.2f}" for n, speed in speeds.items() if n > 1)
    used = f"{number} thread{'s' * (number > 1)}"
    say(f"computing with {used} (measured: {others} times as fast as one)")
    return number


@contextmanager
def computing_with(threads: int) -> Iterator[None]:
    """A context in which torch computes with this many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fewest_fast(speeds: dict[int, float]) -> int:
    """The fastest number of threads such that each step up to it gains at least GAIN."""
    best = 1
    for number, speed in sorted(speeds.items()):
        if speed > GAIN * speeds[best]:
            best = number
    return best


def thread_speeds(numbers: list[int], *, width: int, tokens: int, bf16: bool) -> dict[int, float]:
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
    end = time.perf_counter() + BUDGET_S
    while not seconds[1] or time.perf_counter() < end:
        for number in numbers:
            seconds[number].append(timers[number].blocked_autorange(min_run_time=TURN_S).mean)
        numbers = numbers[::-1]
    return {
        n: round(statistics.median(o / s for o, s in zip(seconds[1], its, strict=True)), 3)
        for n, its in seconds.items()
    }


# ---------------------------------------------------------------------------- the peak rate

SIZES = {"cpu": 1024, "cuda": 8192}


@torch.inference_mode()
def measure_peak(device: torch.device, dtype: torch.dtype, *, seconds: float = 0.25) -> float:
    """FLOP/s of the fastest of the square matrix products in `dtype` that fit into `seconds`, with
    the threads that torch has now: what the machine reaches at this moment."""
    from torch.utils.benchmark import Timer

    size, threads = SIZES[device.type], torch.get_num_threads()
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    timer = Timer("linear(a, b)", globals={"linear": linear, "a": a, "b": b}, num_threads=threads)
    return 2.0 * size**3 / min(timer.blocked_autorange(min_run_time=seconds).times)


# ---------------------------------------------------------------------------- memory

# From malloc.h of glibc.
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3


def keep_memory() -> None:
    """Tells glibc to keep freed memory instead of handing it back to the kernel.

    By default glibc maps every large block (above 32 MiB at the latest) anew and the kernel zeroes
    it page by page, so a step spends up to a third of its time in page faults (logits and attention
    weights are such blocks). Measured in research/results.md.
    """
    with suppress(OSError, AttributeError):  # macOS and musl have none
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)
        mallopt(_M_TOP_PAD, 64 << 20)


def peak_memory_bytes(device: torch.device) -> int:
    """The peak of memory so far: allocated by torch on a GPU, or resident in the process on a
    CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Not getrusage: on Linux it starts a process's peak at what its parent had resident.
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
