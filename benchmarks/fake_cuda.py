"""Lets a torch without CUDA handle CUDA tensors that have no data, when imported before torch.

Compiles fake_cuda.cpp with g++, which takes a few seconds.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

# What the compiler asks about a device.
H100 = SimpleNamespace(
    name="NVIDIA H100 80GB HBM3",
    gcnArchName="",
    major=9,
    minor=0,
    multi_processor_count=132,
    warp_size=32,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    shared_memory_per_block=48 << 10,
    shared_memory_per_block_optin=227 << 10,
    shared_memory_per_multiprocessor=228 << 10,
    L2_cache_size=50 << 20,
    total_memory=80 << 30,
)

if "torch" in sys.modules:
    raise ImportError("fake_cuda must be imported before torch, which asks for CUDA only once")

spec = find_spec("torch")
assert spec is not None
assert spec.origin is not None
installed = Path(spec.origin).parent
with tempfile.TemporaryDirectory() as folder:
    library = Path(folder) / "fake_cuda.so"
    source = Path(__file__).with_suffix(".cpp")
    flags = ["-std=c++20", "-shared", "-fPIC", f"-I{installed / 'include'}"]
    subprocess.run(["g++", *flags, str(source), "-o", str(library)], check=True)
    for path in (installed / "lib/libc10.so", installed / "lib/libtorch_cpu.so", library):
        ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
