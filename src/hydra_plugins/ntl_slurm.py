"""Hydra takes launchers from this namespace alone. Ours is ``ntl.launch.slurm``, imported when it is used."""

from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class SlurmLauncher(Launcher):
    """``hydra/launcher=slurm``: one Slurm job a run, by hydra-submitit-launcher, watched without accounting, too."""

    def __init__(self, **params: Any) -> None:
        self.params = params

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep what the jobs need."""
        self.context: dict[str, Any] = {
            "hydra_context": hydra_context,
            "task_function": task_function,
            "config": config,
        }

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Submit what has no record and is not in the queue; wait for all. UserError without the extra ``slurm``."""
        from ntl.launch.slurm import launch

        return launch(self.params, self.context, job_overrides, initial_job_idx)
