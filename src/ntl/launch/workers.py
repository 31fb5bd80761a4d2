"""Runs trained as subprocesses of train.py, several at a time; or by a launcher of Hydra, for example as Slurm jobs."""

import ctypes
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ntl.config.composition import compose, register
from ntl.config.folders import CONFIG_DIR
from ntl.config.identity import run_id
from ntl.config.root import Config
from ntl.launch.plan import Run, waves
from ntl.system.errors import Diverged, UserError, redact
from ntl.system.machine import available_cores, visible_gpus
from ntl.system.messages import logger, printed

if TYPE_CHECKING:
    from omegaconf import DictConfig


TRAIN = CONFIG_DIR.parent / "train.py"
POLL_SECONDS = 0.25
QUIET_SECONDS = 20.0  # a line of progress is printed at least this often
GRACE_SECONDS = 60.0  # in which an interrupted run writes its checkpoint
KILLED = "its worker process was killed: from outside, or out of memory"


def run_all(runs: Sequence[Run], *, workers: int | None = None) -> list[str]:
    """Train runs, ``workers`` at a time, by default one per GPU, or else per core. Each gets a share of the cores.

    A run that fails, or whose process is killed, does not stop the others. Ctrl-C interrupts the runs, waits for their
    checkpoints and is raised again. Returns the error of each run in one line, empty for those that ended well.
    """
    if workers is not None and workers < 1:
        raise UserError(f"workers={workers}: give a number from 1 up")
    cores, errors, logged = available_cores(), dict[str, str](), time.monotonic()
    gpus = [] if all("device=cpu" in run.overrides for run in runs) else visible_gpus()
    size = min(workers or len(gpus) or cores, len(runs))
    slots = [gpus[number % len(gpus)] if gpus else None for number in range(size)]
    logger.info(f"{len(runs)} runs in {size} worker process{'es' if size > 1 else ''}.")
    active: list[tuple[Run, subprocess.Popen[bytes], float, str | None]] = []
    try:
        for waiting in waves(runs):
            while waiting or active:
                while waiting and len(active) < size:
                    run, gpu = waiting.pop(0), slots.pop(0)
                    active.append((run, _start(run, cores // size or 1, gpu), time.monotonic(), gpu))
                time.sleep(POLL_SECONDS)
                for run, process, since, gpu in [job for job in active if job[1].poll() is not None]:
                    active.remove((run, process, since, gpu))
                    slots.append(gpu)
                    code, logged = process.returncode, time.monotonic()
                    error = KILLED if code < 0 else code and (run.last_line or f"exit status {code}")
                    errors[run.id] = error or ""
                    took = f"FAILED after {logged - since:.1f} s: {error}" if error else f"{logged - since:.1f} s"
                    logger.info(f"[{len(errors)}/{len(runs)}] {run.id}: {took}")
                if active and time.monotonic() - logged >= QUIET_SECONDS:
                    logged = time.monotonic()
                    logger.info(
                        "  running: " + ", ".join(f"{run.id} {run.step}/{run.steps or '?'}" for run, *_ in active)
                    )
    except KeyboardInterrupt:
        logger.info("Stopping: each run leaves a checkpoint. Ctrl-C again ends them at once.")
        raise
    finally:
        _end([process for _, process, *_ in active])
    return [errors[run.id] for run in runs]


def _start(run: Run, threads: int, gpu: str | None) -> "subprocess.Popen[bytes]":
    """A process that trains the run and prints to its log. It has a session of its own: Ctrl-C reaches the parent only,
    which passes it on. Where the parent is killed, Linux interrupts it."""
    run.folder.mkdir(parents=True, exist_ok=True)
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    on_death = prctl and (lambda: prctl(1, signal.SIGINT))  # PR_SET_PDEATHSIG
    env = {**os.environ, "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}
    env |= {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}
    command = [sys.executable, str(TRAIN), *run.overrides]
    with run.log.open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=env,
            start_new_session=True,
            preexec_fn=on_death,
        )


def _end(processes: Sequence["subprocess.Popen[bytes]"]) -> None:
    """Interrupt the runs, and wait for their checkpoints; Ctrl-C again, or too long a wait, kills them."""
    try:
        for process in processes:
            process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            for process in processes:
                process.wait(GRACE_SECONDS)
    finally:
        for process in processes:
            process.kill()


# ---- by a launcher


def sweep_all(runs: Sequence[Run], launcher: str, settings: Sequence[str] = ()) -> list[str]:
    """Train runs by ``hydra/launcher=LAUNCHER``, with ``settings`` of Hydra; one that fails does not stop the others.

    Returns as ``run_all`` does. Jobs that were submitted go on after Ctrl-C. An error of Hydra: the launcher does not
    exist, or has wrong settings; one of submitit: a job was killed.
    """
    import hydra

    overrides = {run.id: run.overrides for run in runs}

    def train_one(raw: "DictConfig") -> None:
        with suppress(Exception):  # it is in the log; raised, it would end the command
            train_job(compose(overrides[raw.run]), overrides[raw.run])

    folder = _sweep_folder(runs)
    quiet = ["hydra/job_logging=none", "hydra/hydra_logging=none", "hydra.output_subdir=null"]
    words = ["-m", f"hydra/launcher={launcher}", f"hydra.sweep.dir='{folder}'", *quiet, *settings]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises its exceptions instead of exiting
    argv = sys.argv
    try:
        for wave in waves(runs):
            logger.info(f"{len(wave)} runs by launcher={launcher}; how far they are: add --dry-run to this command.")
            sys.argv = [argv[0], *words, f"+run={','.join(run.id for run in wave)}"]
            hydra.main(version_base="1.3", config_path=str(CONFIG_DIR), config_name=None)(train_one)()
    except KeyboardInterrupt:
        logger.info("Jobs that were submitted go on. Run the same command again when they have ended.")
        raise
    finally:
        sys.argv = argv
    return ["" if run.is_done else run.last_line for run in runs]


def job_scripts(runs: Sequence[Run], launcher: str, settings: Sequence[str] = ()) -> str:
    """The sbatch scripts that ``sweep_all`` would submit, one for each wave; nothing is written, and no Slurm needed.

    UserError: the launcher is none of Slurm's. Errors of Hydra as of ``sweep_all``.
    """
    from submitit import SlurmExecutor

    class Unsubmitted(SlurmExecutor):
        @classmethod
        def affinity(cls) -> int:
            return 1  # as where there is a Slurm

    options = launcher_settings(launcher, settings, _sweep_folder(runs))
    if not str(options.pop("_target_")).endswith(".SlurmLauncher"):
        raise UserError(f"launcher={launcher}: it has no sbatch script, since it is none of Slurm's; take slurm.")
    executor = Unsubmitted(options.pop("submitit_folder"), max_num_timeout=options.pop("max_num_timeout"))
    parameters = {name: value for name, value in options.items() if value is not None}
    executor.update_parameters(**executor._convert_parameters(parameters))
    scripts = []
    for wave in waves(runs):
        executor.parameters["map_count"] = len(wave) if len(wave) > 1 else None
        scripts.append(executor._make_submission_file_text(executor._submitit_command_str, ""))
    return "\n".join(scripts)


def launcher_settings(launcher: str, settings: Sequence[str] = (), folder: Path | None = None) -> dict[str, Any]:
    """The settings of ``hydra/launcher=LAUNCHER``, with ``settings`` of Hydra. An error of Hydra: no such one."""
    import hydra
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    register()
    GlobalHydra.instance().clear()
    words = [f"hydra/launcher={launcher}", f"hydra.sweep.dir='{folder or '.'}'", *settings]
    with hydra.initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        node = hydra.compose("train", words, return_hydra_config=True).hydra.launcher
        return cast("dict[str, Any]", OmegaConf.to_container(node, resolve=True))


def _sweep_folder(runs: Sequence[Run]) -> Path:
    return (runs[0].folder.parent / ".sweep").resolve()


def train_job(config: Config, overrides: Sequence[str]) -> None:
    """Train a run in a job of a launcher, on whatever machine that is; what it prints, and its error, are in run.log.

    A job of several tasks is one run with a rank in each.
    """
    rank = _rank_of_task()
    if int(os.environ.get("SLURM_RESTART_COUNT", "0")):  # requeued: its own checkpoint is the newest
        config.resume = "auto"
    log = Path(config.output_dir) / run_id(config) / "run.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("a", buffering=1, errors="backslashreplace") as file,
        redirect_stdout(file),
        redirect_stderr(file),
        printed(),
    ):
        try:
            from ntl.training.train import train

            train(config, overrides=overrides)
        except KeyboardInterrupt:
            # The time limit: the first rank puts the job back into the queue, which an error of another would prevent.
            sys.exit(0 if rank else 1)
        except Exception as error:
            is_told = isinstance(error, UserError | Diverged)
            print(redact(f"error: {error}" if is_told else traceback.format_exc()), file=sys.stderr)
            if rank is None:
                raise
            sys.exit(1)  # else this task would end as if all was well, and the others wait for it


def _rank_of_task() -> int | None:
    """Set what torch.distributed reads, in a job of several tasks. Returns the rank; None in a job of one task."""
    if "SUBMITIT_EXECUTOR" not in os.environ:
        return None
    from submitit.helpers import TorchDistributedEnvironment

    ranks = TorchDistributedEnvironment()
    if ranks.world_size == 1:
        return None
    # Every rank sees all devices of its node and takes the one of its LOCAL_RANK.
    ranks.export(set_cuda_visible_devices=False, overwrite=True)
    return ranks.rank
