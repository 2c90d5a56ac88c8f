"""The machine: which device computes, what it is, and how much memory and energy a run took.
Nothing here names the host or one of its folders."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from ..cores import cores
from ..errors import UserError

POWERCAP = Path("/sys/class/powercap")
CUDA = re.compile(r"cuda(?::([0-9]{1,20}))?")


def pick_device(name: str) -> Any:
    """The torch.device for `auto`, `cpu`, `cuda` or `cuda:N`. Raises UserError if that device does
    not exist."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cpu":
        return torch.device("cpu")
    found = CUDA.fullmatch(name)
    if found is None:
        raise UserError(f"there is no device {name!r}; known: auto, cpu, cuda, cuda:0, cuda:1, ...")
    if not torch.cuda.is_available():
        built = (
            "this torch was built without CUDA"
            if torch.version.cuda is None
            else "torch finds no usable GPU"
        )
        raise UserError(f"device {name} was asked for and {built}; choose cpu or auto")
    number = found[1]
    if number and int(number) >= torch.cuda.device_count():
        raise UserError(
            f"device {name} was asked for and there are {torch.cuda.device_count()} GPUs, counted "
            "from 0"
        )
    return torch.device("cuda", int(number)) if number else torch.device("cuda")


def supports_bf16(device: Any) -> bool:
    """Whether the device multiplies bfloat16 matrices in hardware, so that autocast makes training
    faster."""
    import torch

    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if platform.machine().lower() in ("aarch64", "arm64"):
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    native = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(bool(getattr(torch.cpu, name, lambda: False)()) for name in native)


def describe(device: Any = None) -> dict[str, Any]:
    """What a result depends on: device, cores, threads, versions, platform, commit. JSON; no host
    names, no paths.

    device: a torch.device, or None for the one that `auto` picks.
    """
    import torch

    device = device or pick_device("auto")
    facts: dict[str, Any] = {
        "device": str(device),
        "device_name": device_name(device),
        "device_memory_bytes": torch.cuda.get_device_properties(device).total_memory
        if device.type == "cuda"
        else _memory_bytes(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "platform": f"{platform.system()}-{platform.machine()}",
        "commit": git_commit(),
        "cuda": torch.version.cuda,
    }
    return facts | {
        name: _version(name)
        for name in ("electrify", "torch", "transformers", "tokenizers", "numpy", "safetensors")
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def device_name(device: Any) -> str:
    """The name of the GPU, or of the processor."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_name()


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def git_commit(file: Path | None = None) -> str | None:
    """The commit of the source tree this package runs from, with `-dirty` if files were changed;
    None if the package is installed.

    file: a file of the tree to ask about. A package that is installed inside somebody else's
    repository is not tracked there, so it does not get that repository's commit.
    """
    file = file or Path(__file__)

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", *arguments],
            cwd=file.parent,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )

    try:
        if git("ls-files", "--error-unmatch", file.name).returncode:
            return None
        answer = git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None


def peak_memory_bytes(device: Any) -> int:
    """The peak of memory so far: allocated by torch on a GPU, or resident in the process on a
    CPU."""
    if device.type == "cuda":
        import torch

        return torch.cuda.max_memory_allocated(device)
    import resource

    # On Linux, getrusage starts a process's peak at what its parent had resident.
    with suppress(OSError, ValueError, StopIteration):
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return 1024 * int(
            next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # kilobytes on Linux


class EnergyMeter:
    """The joules used since it was created: by the GPU (NVML) for a CUDA device, by the processor
    packages (RAPL) for a CPU.

    `source` is "nvml", "rapl" or None; if neither is available, `joules()` is None rather than a
    guess. Both count the whole device, whoever uses it. RAPL's counter wraps (after minutes to
    hours): call `joules()` at every log step.
    """

    def __init__(self, device: Any, *, powercap: Path = POWERCAP) -> None:
        counters = _nvml(device) if device.type == "cuda" else _rapl(powercap)
        self.source = None if not counters else "nvml" if device.type == "cuda" else "rapl"
        self._counters = counters
        self._total = 0.0
        try:
            self._last = [read() for read, _ in counters]
        except (OSError, ValueError):
            self._counters = []
            self.source = None

    def joules(self) -> float | None:
        if not self._counters:
            return None
        try:
            now = [read() for read, _ in self._counters]
        # If a counter fails, nothing more is measured and the run goes on. NVML raises its own
        # kinds of exceptions.
        except Exception:  # noqa: BLE001
            self._counters = []
            self.source = None
            return None
        for (_, wraps_at), before, after in zip(self._counters, self._last, now, strict=True):
            self._total += after - before if after >= before else after + wraps_at - before
        self._last = now
        return self._total


# A counter: a function that reads joules, and the joules at which it starts again from 0.
_Counter = tuple[Callable[[], float], float]


def _rapl(powercap: Path) -> list[_Counter]:
    """One counter for each processor package. Sub-zones (`intel-rapl:0:0`) are part of their
    package."""
    counters: list[_Counter] = []
    for zone in sorted(powercap.glob("*-rapl:[0-9]*")):
        if zone.name.count(":") != 1 or "mmio" in zone.name:  # mmio: the same package again
            continue
        try:
            name = (zone / "name").read_text(encoding="ascii")
            limit = int((zone / "max_energy_range_uj").read_text(encoding="ascii")) * 1e-6
        except (OSError, ValueError):
            continue
        # `psys` is left out: it is the whole board and would count the packages twice.
        if name.startswith("package"):
            counters.append(
                (
                    lambda path=zone / "energy_uj": int(path.read_text(encoding="ascii")) * 1e-6,
                    limit,
                )
            )
    return counters


def _nvml(device: Any) -> list[_Counter]:
    try:
        import pynvml  # type: ignore[import-not-found]
        import torch

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(
            f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        )
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    # It is not installed, or there is no driver, or the GPU is too old: then nothing is measured.
    except Exception:  # noqa: BLE001
        return []
    return [(lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) * 1e-3, float("inf"))]
