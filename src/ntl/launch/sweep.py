"""Runs made as a multirun of Hydra makes them, by any launcher, for example one Slurm job each."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ntl.launch.plan import Run, waves
from ntl.launch.workers import error_line, output_to
from ntl.system.errors import Busy
from ntl.system.secrets import print_traceback

if TYPE_CHECKING:
    from omegaconf import DictConfig


def sweep_all(
    runs: Sequence[Run], launcher: str, settings: Sequence[str] = (), say: Callable[[str], None] = print
) -> list[str]:
    """Train runs by ``hydra/launcher=LAUNCHER``, with ``settings`` of Hydra; one that fails does not stop the others.

    Returns:
        The error of each run in one line, empty for those that ended well.

    Raises:
        KeyboardInterrupt: jobs that were submitted go on; ``say`` is told so.
        An error of Hydra: the launcher does not exist, or has wrong settings. One of submitit: a job was killed.
    """
    errors = dict[str, str]()
    for wave in waves(runs):
        say(f"{len(wave)} runs by launcher={launcher}; how far they are: add --status to this command.")
        try:
            errors |= zip((run.id for run in wave), _sweep(wave, launcher, settings), strict=True)
        except KeyboardInterrupt:
            say("Jobs that were submitted go on. Run the same command again when they have ended.")
            raise
    return [errors[run.id] for run in runs]


def _sweep(runs: Sequence[Run], launcher: str, settings: Sequence[str]) -> list[str]:
    from hydra import initialize_config_dir
    from hydra._internal.callbacks import Callbacks
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.plugins import Plugins
    from hydra.core.utils import JobStatus
    from hydra.types import HydraContext, RunMode

    from ntl.config.composition import register
    from ntl.config.folders import CONFIG_DIR

    register()
    GlobalHydra.instance().clear()
    folder = (runs[0].folder.parent / ".sweep").resolve()
    overrides = [f"hydra/launcher={launcher}", f"hydra.sweep.dir='{folder}'", *settings]
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3", job_name="reproduce"):
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        config = hydra.compose_config("train", overrides, RunMode.MULTIRUN, from_shell=False)
        context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks(config))
        plugin = Plugins.instance().instantiate_launcher(context, train_job, config)
        results = plugin.launch([list(run.overrides) for run in runs], initial_job_idx=0)
    return [error_line(each._return_value) if each.status is JobStatus.FAILED else "" for each in results]


def train_job(raw: "DictConfig") -> None:
    """Train a run in a job of a launcher, on whatever machine that is; its output goes to its run.log.

    A job of several tasks is one run with a rank in each.
    """
    from ntl.config.composition import config_of_job
    from ntl.config.identity import run_id

    rank = _rank_of_task()
    config, overrides = config_of_job(raw)
    with output_to(Path(config.output_dir) / run_id(config) / "run.log"):
        try:
            from ntl.training.train import train

            train(config, overrides=overrides)
        except Busy:
            raise  # nothing is added to the log of the process that is working on the run
        except KeyboardInterrupt:
            # The time limit: the first rank puts the job back into the queue, which an error of another would prevent.
            sys.exit(0 if rank else 1)
        except Exception:
            print_traceback()
            if rank is not None:
                sys.exit(1)  # else this task would end as if all was well, and the others wait for it
            raise


def _rank_of_task() -> int | None:
    """Set what torch.distributed reads, in a job of several tasks. Returns the rank; None in a job of one task."""
    if "SUBMITIT_EXECUTOR" not in os.environ:
        return None
    from submitit.helpers import TorchDistributedEnvironment

    ranks = TorchDistributedEnvironment()
    if ranks.world_size == 1:
        return None
    # Every rank sees all devices of its node and takes that of its LOCAL_RANK.
    ranks.export(set_cuda_visible_devices=False, overwrite=True)
    return ranks.rank
