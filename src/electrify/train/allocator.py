"""One setting of the C allocator that makes training steps on a CPU faster."""

from __future__ import annotations

import ctypes
import sys

# From malloc.h of glibc.
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3


def keep_memory() -> bool:
    """Tells glibc to keep freed memory instead of handing it back to the kernel. Returns whether
    that worked.

    By default glibc maps every large block (above 32 MiB at the latest) anew and the kernel zeroes
    it page by page, so a step spends up to a third of its time in page faults (logits and attention
    weights are such blocks). Measured in docs/results.md.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # musl has neither
        return False
    settings = {_M_MMAP_THRESHOLD: 1 << 30, _M_TRIM_THRESHOLD: (1 << 31) - 1, _M_TOP_PAD: 64 << 20}
    return all(mallopt(ctypes.c_int(k), ctypes.c_int(v)) == 1 for k, v in settings.items())
