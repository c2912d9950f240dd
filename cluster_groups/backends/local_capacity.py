"""What this machine has, for the `default` resource package of a fresh installation."""

import os
from pathlib import Path

import psutil

from kernel.resources import ANY_GPU, Resources


def machine_capacity() -> Resources:
    """Cores and memory this process may use (affinity and cgroup v2 limits count), and NVIDIA devices of any model."""
    gpus = len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
    return Resources(cpu=_cores(), memory_gib=_memory_gib(), gpu={ANY_GPU: float(gpus)} if gpus else {})


def _cores() -> float:
    cores = float(len(os.sched_getaffinity(0)))
    limit = _cgroup_limit("cpu.max")
    return cores if limit is None else min(cores, max(1.0, limit[0] // limit[1]))


def _memory_gib() -> float:
    memory_bytes = float(psutil.virtual_memory().total)
    limit = _cgroup_limit("memory.max")
    usable_bytes = memory_bytes if limit is None else min(memory_bytes, limit[0])
    return round(usable_bytes / 2**30, 1)


def _cgroup_limit(name: str) -> list[int] | None:
    try:
        words = Path("/sys/fs/cgroup", name).read_text().split()
    except OSError:
        return None
    return None if words[0] == "max" else [int(word) for word in words]
