"""``python on_ranks.py float64,shard train.py ...``: train.py as one rank of a test sees it.

plain: as it is.
float64: torch's default type. shard: FSDP on the CPU, where accelerate leaves it out though torch has it.
die: the second rank raises an error of its own in step 3.
"""

import os
import runpy
import sys
from typing import Any

import torch


def plain() -> None:
    pass


def float64() -> None:
    torch.set_default_dtype(torch.float64)


def shard() -> None:
    from accelerate.state import AcceleratorState
    from accelerate.utils import DistributedType

    original = AcceleratorState.__init__

    def init(self: Any, *args: Any, fsdp_plugin: Any = None, **kwargs: Any) -> None:
        original(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if fsdp_plugin is not None:
            self.distributed_type = DistributedType.FSDP
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


if __name__ == "__main__":
    for name in sys.argv[1].split(","):
        {"plain": plain, "float64": float64, "shard": shard, "die": die}[name]()
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
