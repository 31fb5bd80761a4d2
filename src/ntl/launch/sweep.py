"""Runs made as a multirun of Hydra makes them, by any launcher, for example one job of a cluster each."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ntl.launch.plan import Run
from ntl.launch.workers import Ended, Report, error_line, output_to
from ntl.system.errors import Busy
from ntl.system.secrets import print_traceback

if TYPE_CHECKING:
    from omegaconf import DictConfig


def sweep_all(runs: Sequence[Run], launcher: str, settings: Sequence[str] = ()) -> Report:
    """Train runs by ``hydra/launcher=LAUNCHER``, with ``settings`` of Hydra; one that fails does not stop the others.

    UserError, or an error of Hydra, for a launcher that does not exist or has wrong settings.
    """
    started, bases = time.monotonic(), {run.base for run in runs}
    ended: list[Ended] = []
    # Bases come first: the other runs start from their checkpoints.
    for wave in ([run for run in runs if run.id in bases], [run for run in runs if run.id not in bases]):
        if wave:
            ended += [Ended(run, 0.0, error) for run, error in zip(wave, _sweep(wave, launcher, settings), strict=True)]
    return Report.of(ended, started)


def _sweep(runs: Sequence[Run], launcher: str, settings: Sequence[str]) -> list[str]:
    """The error of each run; empty if it has none."""
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
        plugin = Plugins.instance().instantiate_launcher(context, train, config)
        results = plugin.launch([list(run.overrides) for run in runs], initial_job_idx=0)
    return [error_line(each._return_value) if each.status is JobStatus.FAILED else "" for each in results]


def train(raw: "DictConfig") -> None:
    """Train a run in a job of a launcher, on whatever machine that is; its output goes to its run.log."""
    from ntl.config.composition import config_of_job
    from ntl.config.identity import run_id

    config, overrides = config_of_job(raw)
    with output_to(Path(config.output_dir) / run_id(config) / "run.log"):
        try:
            from ntl.training.train import train

            train(config, overrides=overrides)
        except Busy:
            raise  # nothing is added to the log of the process that is working on the run
        except Exception:
            print_traceback()
            raise
