"""Fresh memory in large pages: to touch each small one of hundreds of MiB first costs more than the computation."""

import ctypes
import mmap
import sys
from typing import Any

import torch
from torch import Tensor

# Of x86-64 and of arm64 with pages of 4 KiB; elsewhere the advice covers whole small pages all the same.
LARGE_PAGE = 2 << 20


def fresh_like(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """`torch.empty_like` in ``dtype``; on a CPU under Linux its memory comes in large pages, where the kernel has them.

    That is the kernel's ``madvise`` of transparent huge pages; where it is not to be had nothing is lost. With
    ``THP_MEM_ALLOC_ENABLE=1`` torch itself does so for all of its memory.
    """
    made = torch.empty_like(tensor, dtype=dtype)
    if _madvise is not None and type(made) is Tensor and made.device.type == "cpu":
        start, size = made.data_ptr(), made.nbytes
        first, stop = -(-start // LARGE_PAGE) * LARGE_PAGE, (start + size) // LARGE_PAGE * LARGE_PAGE
        if stop > first:
            _madvise(first, stop - first, mmap.MADV_HUGEPAGE)
    return made


def _libc_madvise() -> Any:
    if sys.platform != "linux" or not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return madvise


_madvise = _libc_madvise()
