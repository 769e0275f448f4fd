"""Memory of a processor without an accelerator: kept instead of given back, and measured."""

import ctypes
import os
import resource
import sys
from pathlib import Path

import torch

__all__ = ["device_memory", "keep_freed_memory", "peak_memory"]

CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

TRIM_THRESHOLD, MMAP_MAX = -1, -4
"""Parameters of glibc's mallopt(3)."""


def keep_freed_memory() -> None:
    """Makes glibc keep freed blocks for the next step instead of returning them to the system.

    Otherwise every large tensor is mapped anew, and the first touch of each of its pages is a fault: a tenth of the time
    of a training step on a CPU. Elsewhere than on glibc nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_MAX, 0)
        mallopt(TRIM_THRESHOLD, 2**31 - 1)


def peak_memory() -> int:
    """The most memory this process has used: of the GPU where there is one, otherwise resident memory, in bytes."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def device_memory(device: torch.device) -> int:
    """The bytes that a device has in all; of a processor, those that its container may use, where it is in one."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in map(Path, CONTAINER_LIMITS):
        text = path.read_text().strip() if path.is_file() else "max"
        limits += [int(text)] if text.isdigit() else []
    return min(limits)
