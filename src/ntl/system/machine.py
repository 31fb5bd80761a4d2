"""What a record says about where it was made."""

import ctypes
import os
import platform
import resource
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from ntl.system.errors import UserError

if TYPE_CHECKING:
    import torch

PACKAGES = ("ntl", "torch", "transformers", "tokenizers", "accelerate", "numpy", "sentencepiece", "datasets")


def packages() -> dict[str, str]:
    """Versions of Python and of the packages that a result depends on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def git_state() -> dict[str, str | bool | None]:
    """The commit of the source tree and whether a tracked file differs from it; None outside a checkout.

    What lies in ``results`` is made by runs and makes none.
    """
    root = Path(__file__).resolve().parent

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    changes = git("status", "--porcelain", "--untracked-files=no", "--", ":(top)", ":(top,exclude)results")
    return {"commit": git("rev-parse", "HEAD"), "dirty": None if changes is None else bool(changes)}


def pick_device(name: str) -> "torch.device":
    """Where ``device=auto``, ``cpu`` or ``cuda`` computes: auto is a CUDA device where there is one, else the CPU.

    Apple's GPU is left out: it has no float64, in which losses are summed for the log.
    """
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device=cuda: torch sees no CUDA device here; use device=cpu or device=auto.")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def device_name(device: "torch.device") -> str:
    """The accelerator's name, or the processor's with its instructions and the number of threads in use.

    All of that decides how sums are rounded: the same run on another processor has other last digits.
    """
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{processor_name()}, {torch.get_num_threads()} of {os.cpu_count()} threads"


def processor_name() -> str:
    """With the instructions in use, and its model number where Linux tells."""
    import torch

    found = f"cpu {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0].splitlines()
    except OSError:
        return found
    told = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    known = {"model name", "model"} <= told.keys()
    return f"{found} ({told['model name']}, model {told['model']})" if known else found


def peak_memory_bytes(device: "torch.device") -> int:
    """Peak device memory on a GPU, peak resident memory of this process on a CPU."""
    import torch

    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def available_cores() -> int:
    """Cores this process may use: its affinity mask, and a container's quota where there is one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or "max"
        return cores


def keep_freed_memory() -> None:
    """From here on freed memory stays with the process: else every step maps large tensors anew and faults in their
    pages, which on a CPU can take as long as the arithmetic. Of glibc alone; elsewhere nothing changes.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(-4, 0)  # M_MMAP_MAX: nothing is mapped on its own
        mallopt(-1, -1)  # M_TRIM_THRESHOLD: nothing is given back
