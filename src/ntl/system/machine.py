"""The machine and software that a run uses, as its record describes them."""

import ctypes
import os
import platform
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ntl.system.errors import UserError

if TYPE_CHECKING:
    import torch


def pick_device(name: str) -> "torch.device":
    """Return the device for ``device=auto``, ``cpu`` or ``cuda``; auto takes a CUDA device if there is one.

    Of several processes on a machine each has its own.
    """
    import torch

    # Apple GPUs are not used because they lack float64, in which losses are summed for the log.
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device=cuda: torch sees no CUDA device here; use device=cpu or device=auto.")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    rank = int(os.environ.get("LOCAL_RANK", -1))
    return torch.device("cuda") if rank < 0 else torch.device("cuda", rank)


def uses_bf16(wanted: bool | str, device: "torch.device") -> bool:
    """Return ``trainer.bf16``, or for ``auto`` whether the device has instructions for bfloat16."""
    import torch

    if isinstance(wanted, bool):
        return wanted
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def set_tf32(wanted: bool, device: "torch.device") -> None:
    """Switch TF32 on or off for float32 matrix products of this process. UserError where the device has none."""
    import torch

    if wanted and (device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0)):
        raise UserError(f"trainer.tf32=true: {device_name(device)} has no TF32; leave it out, or train on a newer GPU.")
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = wanted


def precision(bf16: bool, tf32: bool, device: "torch.device", *, sharded: bool = False) -> str:
    """Return what a run computes in, in words: these are printed at its start and are in its record."""
    if bf16:
        return f"{'bf16 layers' if sharded else 'bf16 autocast'}, fp32 weights{' (TF32 on)' * tf32}"
    return f"fp32 (TF32 {'on' if tf32 else 'off'})" if device.type == "cuda" else "fp32"


def device_name(device: "torch.device") -> str:
    """Return the name of the GPU, or the processor's with its instruction set and, on Linux, its model number.

    Of a processor also the number of threads in use: all influence rounding.
    """
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = f"cpu {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8") if info.is_file() else ""
    fields = dict(reversed(re.findall(r"^(model|model name)\t+: (.+)$", text, re.MULTILINE)))  # of the first core
    if len(fields) == 2:
        name += f" ({fields['model name']}, model {fields['model']})"
    return f"{name}, {torch.get_num_threads()} of {os.cpu_count()} threads"


def available_cores() -> int:
    """Return the number of cores this process may use, by its affinity mask and a container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or "max"
        return cores


@contextmanager
def kept_random_state() -> Iterator[None]:
    """Restore the random state of Python, numpy and torch at the end, which transformers seeds."""
    import numpy as np
    import torch

    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


def visible_gpus() -> list[str]:
    """Return the CUDA devices of this process, each as CUDA_VISIBLE_DEVICES names it."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    count = torch.cuda.device_count()
    return [name.strip() for name in named.split(",")][:count] if named else [*map(str, range(count))]


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for reuse from here on; with another C library this does nothing.

    Otherwise every step maps memory for its large tensors anew, which on a CPU can take as long as the arithmetic.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(-4, 0)  # M_MMAP_MAX: no allocation uses mmap
        mallopt(-1, -1)  # M_TRIM_THRESHOLD: no memory is returned to the system
