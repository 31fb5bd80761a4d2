"""``python altered.py HOW train.py ...``: train.py as a test alters it. HOW is one or more of these, with commas:

plain: as it is.
float64: torch's default type. shard: FSDP on the CPU, where accelerate leaves it out though torch has it.
die: the second rank raises an error of its own in step 3.
kill:EVENT:NAME:NTH: kill -9 strikes at the NTH operation (from 1) on a file of this name. EVENT is the operation's
audit event, as Python raises it before the system is called: ``open`` (for writing) or ``os.rename``; NAME the pattern
of the file's name, for a rename the new one.
"""

import os
import runpy
import signal
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any


def float64() -> None:
    import torch

    torch.set_default_dtype(torch.float64)


def shard() -> None:
    from accelerate.state import AcceleratorState
    from accelerate.utils import DistributedType

    original = AcceleratorState.__init__

    def init(self: Any, *args: Any, fsdp_plugin: Any = None, **kwargs: Any) -> None:
        original(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if fsdp_plugin is not None:
            self.distributed_type = DistributedType.FSDP
            if self._mixed_precision != "no":  # as it does on a GPU
                fsdp_plugin.set_mixed_precision(self._mixed_precision)
            self.fsdp_plugin = fsdp_plugin

    AcceleratorState.__init__ = init  # pyright: ignore[reportAttributeAccessIssue]


def die() -> None:
    from ntl.training.trainer import ObjectiveTrainer

    original = ObjectiveTrainer.training_step

    def training_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.state.global_step == 2 and os.environ["RANK"] == "1":
            raise RuntimeError("the second rank's own trouble")
        return original(self, *args, **kwargs)

    ObjectiveTrainer.training_step = training_step


def kill(awaited: str, pattern: str, nth: str) -> None:
    seen: list[str] = []

    def strike(event: str, arguments: tuple[Any, ...]) -> None:
        if event != awaited:
            return
        path = arguments[0] if event == "open" else arguments[1]
        writes = event != "open" or arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if isinstance(path, str | os.PathLike) and writes and fnmatch(name := Path(path).name, pattern):
            seen.append(name)
            if len(seen) == int(nth):
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(strike)


if __name__ == "__main__":
    ways = {"plain": lambda: None, "float64": float64, "shard": shard, "die": die, "kill": kill}
    for each in sys.argv[1].split(","):
        name, *arguments = each.split(":")
        ways[name](*arguments)
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
