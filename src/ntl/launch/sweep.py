"""Missing runs by any launcher of Hydra instead of worker processes: Slurm, joblib, one after the other."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from hydra import initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig

from ntl.config.composition import CONFIG_DIR, config_of_job, register
from ntl.config.identity import run_id
from ntl.launch.plan import Ended, Run, plan_runs
from ntl.launch.worker import error_line, output_to
from ntl.launch.workers import Report
from ntl.system.errors import Busy
from ntl.system.secrets import print_traceback


def sweep_missing(
    runs: Iterable[Sequence[str]], launcher: str, settings: Sequence[str] = (), *, root: Path | None = None
) -> Report:
    """Train every run that has no record, as ``hydra/launcher=LAUNCHER`` would in a multirun.

    A run that fails does not stop the others. The output of a run goes to its run.log.

    Args:
        runs: one list of overrides per run.
        settings: of Hydra, such as ``hydra.launcher.partition=gpu``.
        root: folder of run folders; by default the ``output_dir`` of each config.

    UserError, or an error of Hydra, for a launcher that does not exist or has wrong settings.
    """
    started = time.monotonic()
    todo, skipped = plan_runs(runs, root)
    bases = {run.base for run in todo}
    ended: list[Ended] = []
    # Bases come first: the other runs start from their checkpoints.
    for wave in ([run for run in todo if run.id in bases], [run for run in todo if run.id not in bases]):
        results = _launch(wave, launcher, settings) if wave else []
        ended += [_ended(run, result) for run, result in zip(wave, results, strict=True)]
    return Report(
        done=tuple(result.run for result in ended if not result.error),
        failed=tuple(result for result in ended if result.error),
        skipped=tuple(skipped),
        seconds=time.monotonic() - started,
    )


def _launch(todo: Sequence[Run], launcher: str, settings: Sequence[str]) -> Sequence[JobReturn]:
    register()
    GlobalHydra.instance().clear()
    sweep = (todo[0].folder.parent / ".sweep").resolve()
    overrides = [f"hydra/launcher={launcher}", f"hydra.sweep.dir='{sweep}'", *settings]
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3", job_name="reproduce"):
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        config = hydra.compose_config("train", overrides, RunMode.MULTIRUN, from_shell=False)
        context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks(config))
        plugin = Plugins.instance().instantiate_launcher(context, train, config)
        return plugin.launch([list(run.overrides) for run in todo], initial_job_idx=0)


def train(raw: DictConfig) -> None:
    """Called by a launcher for each run, on whatever machine that is."""
    config, overrides = config_of_job(raw)
    folder = Path(config.output_dir) / run_id(config)
    with output_to(folder / "run.log"):
        try:
            from ntl.training import run

            run(config, overrides=overrides)
        except Busy:
            raise  # nothing is added to the log of the process that is working on the run
        except Exception:
            print_traceback()
            raise


def _ended(run: Run, result: JobReturn) -> Ended:
    if result.status is JobStatus.FAILED:
        return Ended(run, 0.0, error_line(result._return_value))
    return Ended(run, 0.0, "" if run.is_done else f"it ended without {run.record}")
