"""A simulated CUDA device: ``python -m pytest -p simulated`` has one, where the library of device.cpp was preloaded.

In a torch without CUDA, torch.cuda says that there is no device, and its functions raise. Here they describe one, whose
memory and random numbers are those of the host.
"""

import ctypes
import os
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import torch
import torch._dynamo  # it reads the functions of torch.cuda: before they are replaced

NAME = "simulated GPU"
SYNC_MODES = ("default", "warn", "error")
_LIBRARY = ctypes.CDLL(os.environ["LD_PRELOAD"])
_PROPERTIES = SimpleNamespace(name=NAME, major=9, minor=0, total_memory=80 << 30, multi_processor_count=132)
_PROPERTIES.L2_cache_size = 50 << 20
_mode = 0


def _set_sync_debug_mode(mode: int | str) -> None:
    global _mode
    _mode = SYNC_MODES.index(mode) if isinstance(mode, str) else mode


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)
def _on_wait(operator: bytes) -> int:
    """Warn, as torch does, in the line that called the operator; what is not 0 raises there."""
    if SYNC_MODES[_mode] == "warn":
        message, frame = f"called a synchronizing CUDA operation: {operator.decode()}", sys._getframe(1)
        warnings.warn_explicit(message, UserWarning, frame.f_code.co_filename, frame.f_lineno)
    return SYNC_MODES[_mode] == "error"


def _nothing(*arguments: Any, **options: Any) -> None:
    pass


_RANDOM = {
    "get_rng_state": lambda device="cuda": torch.get_rng_state(),
    "get_rng_state_all": lambda: [torch.get_rng_state()],
    "set_rng_state": lambda state, device="cuda": torch.set_rng_state(state),
    "set_rng_state_all": lambda states: torch.set_rng_state(states[0]),
    **dict.fromkeys(("manual_seed", "manual_seed_all"), _nothing),  # torch.manual_seed has seeded the host
}
_DEVICE = {
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "get_device_name": lambda device=None: NAME,
    "get_device_capability": lambda device=None: (_PROPERTIES.major, _PROPERTIES.minor),
    "get_device_properties": lambda device=None: _PROPERTIES,
    "is_bf16_supported": lambda including_emulation=True: True,
    "is_current_stream_capturing": lambda: False,
    "memory_allocated": lambda device=None: 0,
    "max_memory_allocated": lambda device=None: 1,
    **dict.fromkeys(("_exchange_device", "_maybe_exchange_device"), lambda device: 0),
    "get_sync_debug_mode": lambda: _mode,
    "set_sync_debug_mode": _set_sync_debug_mode,
    **dict.fromkeys(("_lazy_init", "set_device", "synchronize", "empty_cache", "reset_peak_memory_stats"), _nothing),
}
_LIBRARY.call_on_wait(_on_wait)
vars(torch.cuda).update(_RANDOM | _DEVICE)
vars(torch.cuda.random).update(_RANDOM)
torch.cuda.amp.common.amp_definitely_not_available = lambda: False
torch.autograd.set_multithreading_enabled(False)  # a thread of the device's own has no Python frame that called it


@torch.library.impl("aten::histc", "CUDA")
def _histc(values: torch.Tensor, bins: int, low: float, high: float) -> torch.Tensor:
    """Counts integers, too, which a GPU does and a CPU does not."""
    places = ((values - low) * (bins / (high - low))).long().clamp(0, bins - 1)
    inside = ((values >= low) & (values <= high)).to(values.dtype)
    return values.new_zeros(bins).index_add(0, places, inside)
